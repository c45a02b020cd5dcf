"""Snapshots of boxes: their files at one time, from which further boxes start, on any node that can have them.

What a snapshot is stands in SQL; its files are a checkpoint that stands until the snapshot is deleted, on the node that
took it, or in the object store if there is one. A snapshot belongs to the API key of its box. A checkpoint whose
snapshot is not in SQL is what a killed server left; `tidy` removes it.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sandbox_server import clock, telemetry
from sandbox_server.boxes.boxes import Boxes, BoxView
from sandbox_server.boxes.planning import Source
from sandbox_server.boxes.states import BoxStates
from sandbox_server.boxes.templates import DEFAULT_TAG, TemplateBuilds, parsed
from sandbox_server.catalogue.snapshots import Snapshot, Snapshots
from sandbox_server.checkpoints.checkpoint import Checkpoint
from sandbox_server.checkpoints.lasting import LastingCheckpoints
from sandbox_server.errors import (
    InfrastructureError,
    MalformedRequest,
    OwnedElsewhere,
    ServiceError,
    TooManySnapshots,
    UnknownSnapshot,
)
from sandbox_server.state.boxes import BoxFacts
from sandbox_server.state.nodes import HOP, Hop, Liveness, Nodes

log = telemetry.logger(__name__)

_PREFIX = "snapshot-"  # of the names of their checkpoints


@dataclass(frozen=True, slots=True)
class SnapshotBounds:
    """The operator's settings SANDBOX_SNAPSHOT*."""

    count: int
    """Snapshots of one key; 0: none are taken."""
    total_bytes: int
    """All of them together."""


class BoxSnapshots:
    """Takes snapshots of this node's boxes; finds and deletes those of all nodes. An owner of None sees all."""

    def __init__(
        self,
        boxes: Boxes,
        states: BoxStates,
        store: Snapshots,
        lasting: LastingCheckpoints | None,
        templates: TemplateBuilds,
        facts: BoxFacts,
        nodes: Nodes,
        bounds: SnapshotBounds,
        *,
        node: str,
    ) -> None:
        """`lasting`: where all nodes can have the files, if they are anywhere."""
        self._boxes = boxes
        self._states = states
        self._store = store
        self._lasting = lasting
        self._templates = templates
        self._facts = facts
        self._nodes = nodes
        self._bounds = bounds
        self._node = node
        self._taking: set[str] = set()

    async def take(self, sid: str, name: str = "", *, idempotency_key: str = "") -> Snapshot:
        """Take a snapshot of a running box. One with the same name is replaced once the new one stands.

        A repeated request with the same `idempotency_key` returns the first one's snapshot.

        Raises:
            UnknownSession, OwnedElsewhere, SandboxPaused. MalformedRequest: the name. TooManySnapshots.
            NotForkable: what is in the box cannot be stored. SandboxLost, InfrastructureError.
        """
        view = await self._boxes.get(sid)
        await self._boxes.here(view)
        owner = view.box.owner
        key = f"{owner}\0snapshot\0{sid}\0{idempotency_key}" if idempotency_key else ""
        if key and (made := await self._facts.made(key)) and (found := await self._store.find(owner, made)):
            return found
        name = await self._named(owner, name) if name else ""
        await self._room(owner, 0)
        snapshot_id = secrets.token_hex(10)
        result = "ok"
        self._taking.add(snapshot_id)
        try:
            snapshot = await self._take(view, snapshot_id, name)
        except ServiceError as error:
            result = error.code
            raise
        finally:
            self._taking.discard(snapshot_id)
            telemetry.SNAPSHOTS.labels(result).inc()
        if key:
            await self._facts.remember(key, snapshot_id)
        log.info("snapshot taken", sid=sid, snapshot=snapshot_id, mb=snapshot.size_bytes >> 20)
        return snapshot

    async def _take(self, view: BoxView, snapshot_id: str, name: str) -> Snapshot:
        owner = view.box.owner
        checkpoint = await self._states.take(await self._boxes.sandbox(view), _PREFIX + snapshot_id)
        try:
            size_bytes = self._states.size_bytes(checkpoint)
            await self._room(owner, size_bytes)
            if self._lasting is not None:
                await self._lasting.save(checkpoint)
            snapshot = Snapshot(
                snapshot_id=snapshot_id,
                owner=owner,
                name=name,
                sid=view.sid,
                node=self._node,
                created_at=clock.now(),
                size_bytes=size_bytes,
                box=replace(view.box, token="", traffic_token=""),
                image=checkpoint.image,
                shared=self._lasting is not None,
            )
            former = await self._store.add(snapshot)
        except BaseException:
            self._states.drop(checkpoint.sid)  # what is in the object store goes with the next `tidy`
            raise
        if self._lasting is not None:  # the object store has it, so it may make room here
            await self._states.release(checkpoint)
        for one in former:
            await self._forget(one)
        return snapshot

    async def _named(self, owner: str, name: str) -> str:
        name, tag = parsed(name)
        if await self._templates.store.named(owner, name) is not None:
            raise MalformedRequest(f"{name!r} names a template; give the snapshot another name")
        return f"{name}:{tag or DEFAULT_TAG}"

    async def _room(self, owner: str, size_bytes: int) -> None:
        count, used = await self._store.usage(owner)
        if count >= self._bounds.count:
            raise TooManySnapshots(f"this key has {count} snapshots (SANDBOX_SNAPSHOTS); delete some")
        if used + size_bytes > self._bounds.total_bytes:
            raise TooManySnapshots(
                f"this key's snapshots have {used >> 20} MB, and this one has {size_bytes >> 20} MB"
                " (SANDBOX_SNAPSHOTS_MB); delete some"
            )

    async def find(self, owner: str | None, named: str) -> Snapshot | None:
        """The snapshot of this id or `name[:tag]`."""
        try:
            name, tag = parsed(named)
        except MalformedRequest:
            return None
        return await self._store.find(owner, name if not tag else f"{name}:{tag}") or (
            None if tag else await self._store.find(owner, f"{name}:{DEFAULT_TAG}")
        )

    async def listed(self, owner: str | None, *, sid: str = "", name: str = "") -> Sequence[Snapshot]:
        """The owner's snapshots, newest first; of one box, or of this id or `name[:tag]`."""
        names: Sequence[str] = ()
        if name:
            try:
                bare, tag = parsed(name)
            except MalformedRequest:
                return []
            names = [f"{bare}:{tag or DEFAULT_TAG}", *([bare] if not tag else [])]
        return await self._store.listed(owner, sid=sid, names=names)

    async def delete(self, owner: str | None, named: str) -> bool:
        """Delete the snapshot; boxes made from it live on. False: there is none."""
        found = await self.find(owner, named)
        if found is None:
            return False
        if found.shared and self._lasting is not None:
            await self._lasting.remove(found.node, _PREFIX + found.snapshot_id)
        gone = await self._store.remove(found.snapshot_id)
        self._states.drop(_PREFIX + found.snapshot_id)  # another node's goes when that node tidies up
        return gone

    async def _forget(self, former: Snapshot) -> None:
        """Remove the files of a snapshot that is not in SQL any more; what fails is left to `tidy`."""
        self._states.drop(_PREFIX + former.snapshot_id)
        if former.shared and self._lasting is not None:
            try:
                await self._lasting.remove(former.node, _PREFIX + former.snapshot_id)
            except InfrastructureError as error:
                log.warning("a replaced snapshot stays in the object store for now", error=error.detail)

    async def source(self, owner: str, named: str) -> Source | None:
        """What a box from this snapshot begins with, on this node; None: there is no such snapshot.

        Raises:
            OwnedElsewhere: another node has its files. UnknownSnapshot: nobody has them any more.
            InfrastructureError: that node, or the object store, is away.
        """
        snapshot = await self.find(owner, named)
        if snapshot is None:
            return None
        return Source(snapshot.box, await self._checkpoint(snapshot))

    async def _checkpoint(self, snapshot: Snapshot) -> Checkpoint:
        name = _PREFIX + snapshot.snapshot_id
        if (found := self._states.find(name)) is not None:
            return found
        gone = f"snapshot {snapshot.shown!r} does not exist any more: its files are lost; delete it"
        if snapshot.shared:
            if self._lasting is None:
                raise InfrastructureError(
                    f"snapshot {snapshot.shown!r} is in an object store, which this node does not have; set"
                    " SANDBOX_CHECKPOINTS_URL"
                )
            fetched = await self._lasting.fetch(snapshot.node, name)
            if fetched is None:
                raise UnknownSnapshot(gone)
            return fetched
        if snapshot.node == self._node:
            raise UnknownSnapshot(gone)
        if HOP.get() is Hop.TRIED or await self._nodes.liveness(snapshot.node) is Liveness.DEAD:
            raise InfrastructureError(
                f"snapshot {snapshot.shown!r} lies on node {snapshot.node}, which does not answer; with"
                " SANDBOX_CHECKPOINTS_URL every node would have it"
            )
        raise OwnedElsewhere(snapshot.node)

    async def tidy(self) -> None:
        """Remove the files of this node's snapshots that are not in SQL: a killed server's, or deleted elsewhere."""
        taking = set(self._taking)  # in this order: what is stored meanwhile is not among `here`
        here = {name for name in self._states.names() if name.startswith(_PREFIX)}
        known = {_PREFIX + one for one in await self._store.ids(self._node) | taking}
        for name in here - known:
            log.info("files of a snapshot without an owner removed", name=name)
            self._states.drop(name)

    async def recover(self) -> None:
        """As `tidy`, also in the object store; called before the server takes requests."""
        await self.tidy()
        if self._lasting is not None:
            try:
                await self._lasting.tidy({_PREFIX + one for one in await self._store.ids(self._node)})
            except InfrastructureError as error:
                log.warning("snapshots without an owner may be left in the object store", error=error.detail)
