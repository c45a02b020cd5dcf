"""Takes snapshots of boxes of this node, within the limits of their API keys."""

import asyncio
import secrets
from dataclasses import dataclass, replace
from weakref import WeakValueDictionary

from sandbox_server import clock, telemetry
from sandbox_server.boxes.boxes import Boxes, BoxView
from sandbox_server.boxes.snapshots import BoxSnapshots, checkpoint_name
from sandbox_server.boxes.states import BoxStates
from sandbox_server.boxes.templates import DEFAULT_TAG, TemplateBuilds, parsed
from sandbox_server.catalogue.snapshots import Snapshot
from sandbox_server.errors import MalformedRequest, ServiceError, TooManySnapshots
from sandbox_server.state.boxes import BoxFacts, CreateKey

log = telemetry.logger(__name__)


@dataclass(frozen=True, slots=True)
class SnapshotBounds:
    """The operator's settings SANDBOX_SNAPSHOTS*."""

    count: int
    """Maximum snapshots per key; 0: snapshots are off."""
    total_bytes: int
    """Maximum bytes of all snapshots of a key."""


class Snapshotting:
    """Takes snapshots."""

    def __init__(
        self,
        boxes: Boxes,
        states: BoxStates,
        snapshots: BoxSnapshots,
        templates: TemplateBuilds,
        facts: BoxFacts,
        bounds: SnapshotBounds,
        *,
        node: str,
    ) -> None:
        self._boxes = boxes
        self._states = states
        self._snapshots = snapshots
        self._templates = templates
        self._facts = facts
        self._bounds = bounds
        self._node = node
        self._adding = asyncio.Lock()
        self._repeated: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def take(self, sid: str, name: str = "", *, idempotency_key: str = "") -> Snapshot:
        """Take a snapshot of a running box. It replaces one of the same name once it is complete.

        A repeated request with the same `idempotency_key` returns the snapshot of the first one.

        Raises:
            UnknownSession, OwnedElsewhere, SandboxPaused. MalformedRequest: the name. TooManySnapshots. NotForkable:
            the contents of the box cannot be stored. SandboxLost, InfrastructureError.
        """
        view = await self._boxes.get(sid)
        await self._boxes.here(view)
        if not idempotency_key:
            return await self._take_new(view, name)
        key = CreateKey(f"{view.box.owner}\0snapshot\0{sid}\0{idempotency_key}", name)
        # all requests for a box come to its node, so a lock of this process makes the second one wait for the first
        async with self._repeated.setdefault(key.name, asyncio.Lock()):
            made = await self._facts.created_by(key)
            if made and (found := await self._snapshots.find(view.box.owner, made)):
                return found
            snapshot = await self._take_new(view, name)
            await self._facts.remember(key, snapshot.snapshot_id, instead=made)
            return snapshot

    async def _take_new(self, view: BoxView, name: str) -> Snapshot:
        owner = view.box.owner
        name = await self._named(owner, name) if name else ""
        await self._room(owner, name, 0)
        snapshot_id, result = secrets.token_hex(10), "unforeseen"
        try:
            with self._snapshots.taking(snapshot_id):
                snapshot = await self._take(view, snapshot_id, name)
            result = "ok"
        except ServiceError as error:
            result = error.code
            raise
        finally:
            telemetry.SNAPSHOTS.labels(result).inc()
        log.info("snapshot taken", sid=view.sid, snapshot=snapshot_id, mb=snapshot.size_bytes >> 20)
        return snapshot

    async def _take(self, view: BoxView, snapshot_id: str, name: str) -> Snapshot:
        checkpoint = await self._states.take(await self._boxes.sandbox(view), checkpoint_name(snapshot_id))
        asked_sql = False
        try:
            snapshot = Snapshot(
                snapshot_id=snapshot_id,
                owner=view.box.owner,
                name=name,
                sid=view.sid,
                node=self._node,
                created_at=clock.now(),
                size_bytes=self._states.size_bytes(checkpoint),
                box=replace(view.box, token="", traffic_token=""),
                image=checkpoint.image,
                shared=await self._snapshots.share(checkpoint),
            )
            async with self._adding:
                await self._room(snapshot.owner, name, snapshot.size_bytes)
                asked_sql = True
                await self._snapshots.add(snapshot, checkpoint)
        except BaseException:
            # If SQL was asked, it may have the snapshot although its answer was lost: keep the files. If SQL does not
            # have the snapshot, `tidy` removes them.
            if not asked_sql:
                self._states.drop(checkpoint.sid)  # the next server's `tidy` removes what is in the object store
            raise
        return snapshot

    async def _named(self, owner: str, name: str) -> str:
        name, tag = parsed(name)
        if await self._templates.store.named(owner, name) is not None:
            raise MalformedRequest(f"{name!r} names a template; give the snapshot another name")
        return f"{name}:{tag or DEFAULT_TAG}"

    async def _room(self, owner: str, name: str, size_bytes: int) -> None:
        count, used = await self._snapshots.usage(owner, but=name)
        if count >= self._bounds.count:
            raise TooManySnapshots(f"this key has {count} snapshots (SANDBOX_SNAPSHOTS); delete some")
        if used + size_bytes > self._bounds.total_bytes:
            raise TooManySnapshots(
                f"this key's snapshots have {used >> 20} MB, and this one has {size_bytes >> 20} MB"
                " (SANDBOX_SNAPSHOTS_MB); delete some"
            )
