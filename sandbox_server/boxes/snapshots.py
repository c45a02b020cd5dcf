"""Snapshots of boxes: the files of a box at one time, from which new boxes start, on any node that can get the files.

SQL has the description of a snapshot. Its files are a permanent checkpoint on the node that took it, or in the object
store if there is one. A snapshot belongs to the API key of its box. A checkpoint whose snapshot is not in SQL was left
by a killed server; `tidy` removes it.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sandbox_server import telemetry
from sandbox_server.boxes.states import BoxStates
from sandbox_server.boxes.templates import DEFAULT_TAG, parsed
from sandbox_server.catalogue.snapshots import Snapshot, Snapshots
from sandbox_server.checkpoints.checkpoint import Checkpoint
from sandbox_server.checkpoints.permanent import PermanentCheckpoints
from sandbox_server.errors import InfrastructureError, MalformedRequest, OwnedElsewhere, UnknownSnapshot
from sandbox_server.records import BoxRecord
from sandbox_server.state.nodes import HOP, Hop, Liveness, Nodes

log = telemetry.logger(__name__)

_PREFIX = "snapshot-"  # of the names of their checkpoints


@dataclass(frozen=True, slots=True)
class Source:
    """The files of another box, with which a new box starts in addition to its image."""

    box: BoxRecord
    """The other box at that time."""
    checkpoint: Checkpoint


def checkpoint_name(snapshot_id: str) -> str:
    """Name of the checkpoint with the snapshot's files."""
    return _PREFIX + snapshot_id


class BoxSnapshots:
    """The snapshots of all nodes, and the files of those on this node. The owner None stands for all owners."""

    def __init__(
        self, states: BoxStates, store: Snapshots, lasting: PermanentCheckpoints | None, nodes: Nodes, *, node: str
    ) -> None:
        """`lasting`: the object store for the files of all nodes; None: there is none."""
        self._states = states
        self._store = store
        self._lasting = lasting
        self._nodes = nodes
        self._node = node
        self._taking: set[str] = set()

    @contextmanager
    def taking(self, snapshot_id: str) -> Iterator[None]:
        """Mark a snapshot whose files are written in the body, so that `tidy` keeps them."""
        self._taking.add(snapshot_id)
        try:
            yield
        finally:
            self._taking.discard(snapshot_id)

    async def share(self, checkpoint: Checkpoint) -> bool:
        """Copy a snapshot's files to the object store; False: there is none. Raises InfrastructureError."""
        if self._lasting is None:
            return False
        await self._lasting.save(checkpoint)
        return True

    async def add(self, snapshot: Snapshot, checkpoint: Checkpoint) -> None:
        """Store the snapshot; it replaces one of the same name. Raises CatalogueUnavailable."""
        former = await self._store.add(snapshot)
        if snapshot.shared:  # the object store has the files, so this copy may be removed to make room
            await self._states.release(checkpoint)
        for one in former:
            await self._forget(one)

    async def find(self, owner: str | None, named: str) -> Snapshot | None:
        """The snapshot with this id or `name[:tag]`."""
        try:
            name, tag = parsed(named)
        except MalformedRequest:
            return None
        return await self._store.find(owner, name if not tag else f"{name}:{tag}") or (
            None if tag else await self._store.find(owner, f"{name}:{DEFAULT_TAG}")
        )

    async def listed(self, owner: str | None, *, sid: str = "", name: str = "") -> Sequence[Snapshot]:
        """The owner's snapshots, newest first; only those of one box, or of this id or `name[:tag]`."""
        names: Sequence[str] = ()
        if name:
            try:
                bare, tag = parsed(name)
            except MalformedRequest:
                return []
            names = [f"{bare}:{tag or DEFAULT_TAG}", *([bare] if not tag else [])]
        return await self._store.listed(owner, sid=sid, names=names)

    async def usage(self, owner: str, *, but: str) -> tuple[int, int]:
        """Number and total bytes of the owner's snapshots, without the one named `but`."""
        return await self._store.usage(owner, but=but)

    async def delete(self, owner: str | None, named: str) -> bool:
        """Delete the snapshot; boxes made from it continue. False: there is none."""
        found = await self.find(owner, named)
        if found is None:
            return False
        if found.shared and self._lasting is not None:
            await self._lasting.remove(found.node, _PREFIX + found.snapshot_id)
        gone = await self._store.remove(found.snapshot_id)
        self._states.drop(_PREFIX + found.snapshot_id)  # the node that has the files removes them in `tidy`
        return gone

    async def _forget(self, former: Snapshot) -> None:
        """Remove the files of a snapshot that is no longer in SQL; `tidy` retries what fails."""
        self._states.drop(_PREFIX + former.snapshot_id)
        if former.shared and self._lasting is not None:
            try:
                await self._lasting.remove(former.node, _PREFIX + former.snapshot_id)
            except InfrastructureError as error:
                log.warning("a replaced snapshot stays in the object store for now", error=error.detail)

    async def source(self, owner: str, named: str, settle: Callable[[Snapshot], Awaitable[None]]) -> Source | None:
        """The files of this snapshot for a box that starts on this node; None: there is no such snapshot.

        `settle` is called for a snapshot that every node can get; it returns if this node should start the box.

        Raises:
            OwnedElsewhere: another node has its files. UnknownSnapshot: its files are lost. InfrastructureError: that
            node, or the object store, does not answer. As `settle`.
        """
        snapshot = await self.find(owner, named)
        if snapshot is None:
            return None
        if snapshot.shared:
            await settle(snapshot)
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
        """Remove files of this node's snapshots that are not in SQL, left by a killed server or deleted by another
        node.
        """
        taking = set(self._taking)  # before `here`, with no await between: `here` has no file of a later snapshot
        here = {name for name in self._states.names() if name.startswith(_PREFIX)}
        known = {_PREFIX + one for one in await self._store.ids(self._node) | taking}
        for name in here - known:
            log.info("files of a snapshot without an owner removed", name=name)
            self._states.drop(name)

    async def recover(self) -> None:
        """Like `tidy`, but also in the object store; called before the server takes requests."""
        await self.tidy()
        if self._lasting is not None:
            try:
                await self._lasting.tidy({_PREFIX + one for one in await self._store.ids(self._node)})
            except InfrastructureError as error:
                log.warning("snapshots without an owner may be left in the object store", error=error.detail)
