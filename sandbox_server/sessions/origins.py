"""Where a copy of a session begins: a checkpoint of the session or of an ancestor, and the actions after it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.errors import (
    IsBox,
    MalformedRequest,
    NotForkable,
    OwnedElsewhere,
    SessionBusy,
    SessionOver,
    UnknownInstance,
    UnknownSession,
)
from sandbox_server.fleet.placement import Placement
from sandbox_server.lifecycle import SessionState
from sandbox_server.records import SessionRecord
from sandbox_server.sandbox.base import Runtime
from sandbox_server.scoring.journals import Journals
from sandbox_server.sessions.acting import Acting, refusal
from sandbox_server.sessions.checkpointing import Checkpointing, Origin
from sandbox_server.sessions.data import SessionData


class Origins:
    """Finds the states from which copies start on this node."""

    def __init__(
        self,
        runtime: Runtime,
        data: SessionData,
        placement: Placement,
        acting: Acting,
        checkpointing: Checkpointing,
        *,
        node: str,
        wait_s: float,
    ) -> None:
        """`wait_s`: limit on waiting for a session's lock."""
        self._runtime = runtime
        self._data = data
        self._placement = placement
        self._acting = acting
        self._checkpointing = checkpointing
        self._node = node
        self._wait_s = wait_s
        self._journals = Journals(data.store, data.history)

    async def of(self, sid: str, at: int | None) -> Origin:
        """The state from which one copy after action `at` (None: the last one) starts.

        Raises:
            As `parent` and `find`.
        """
        parent, instance = await self.parent(sid)
        return await self.find(parent, instance, 1, at)

    async def parent(self, sid: str) -> tuple[SessionRecord, TaskInstance]:
        """The session to copy, and its instance.

        Raises:
            UnknownSession, IsBox, StateUnavailable, CatalogueUnavailable. NotForkable: the instance was removed.
        """
        parent = await self._data.session(sid)
        if parent is None:
            raise UnknownSession.of(sid)
        if not parent.kind.is_rollout:
            raise IsBox(f"session {sid} is a box: only sessions of instances are copied")
        try:
            return parent, await self._data.instances.by_id(parent.instance_id)
        except UnknownInstance as error:
            raise NotForkable(f"the instance of session {sid} was removed: {error.detail}") from error

    async def find(
        self, parent: SessionRecord, instance: TaskInstance, n: int, at: int | None, *, anew: bool = False
    ) -> Origin:
        """The state from which `n` copies start. `anew`: do not use stored checkpoints.

        Raises:
            MalformedRequest (`at`), SessionBusy, SessionOver, SandboxLost, OwnedElsewhere. NotForkable: the contents of
            the sandbox prevent it.
        """
        if parent.state == SessionState.LIVE and not parent.asleep and at in (None, parent.actions):
            return await self._present(parent.sid, instance, at)
        await self._placement.settle(instance, n)
        origin = await self._past(parent, instance, at)
        return replace(origin, checkpoint=None) if anew else origin

    async def as_copy(self, origin: Origin, first: str) -> Origin:
        """The origin for further copies: a checkpoint of the first copy, in which the actions were run again.

        Raises:
            As `find`.
        """
        async with self._held(first) as record:
            if record.actions != origin.at:  # a client found and used it: its state is not the parent's
                return origin
            sandbox = await self._runtime.attach(record.container_id)
            checkpoint = await self._checkpointing.take(record, sandbox, origin.instance, of=origin.parent.sid)
        return replace(origin, checkpoint=checkpoint)

    async def _present(self, sid: str, instance: TaskInstance, at: int | None) -> Origin:
        """A new checkpoint of a live session."""
        await self._acting.sandbox(sid)  # restored here first, if its node has died
        async with self._held(sid) as record:
            if at is not None and at != record.actions:
                raise SessionBusy(f"session {sid} went on to action {record.actions} meanwhile; send the request again")
            sandbox = await self._runtime.attach(record.container_id)
            checkpoint = await self._checkpointing.take(record, sandbox, instance)
        actions = await self._journals.complete(record)
        return Origin(record, instance, actions[: record.actions], checkpoint, undone=record.undone)

    @asynccontextmanager
    async def _held(self, sid: str) -> AsyncIterator[SessionRecord]:
        """Lock a live session of this node between two actions; yields its record."""
        store = self._data.store
        async with store.lock(sid, self._wait_s):
            record = await store.session(sid)
            if record is None or record.state != SessionState.LIVE:
                raise refusal(record)
            if record.node != self._node:
                raise OwnedElsewhere(record.node)
            if await store.interrupted(sid):
                raise SessionBusy(
                    f"session {sid} was interrupted during an action; its next action settles that, copy it then"
                )
            yield record

    async def _past(self, parent: SessionRecord, instance: TaskInstance, at: int | None) -> Origin:
        """The nearest checkpoint of a session or its ancestors, and the actions after it."""
        if parent.state == SessionState.LOST and at is None:
            raise SessionOver(f"session {parent.sid} was lost; name the action to go on from: `at`")
        actions = await self._journals.complete(parent)
        wanted = parent.actions if at is None else at
        if wanted > len(actions):
            raise MalformedRequest(f"at: session {parent.sid} has {len(actions)} actions, not {wanted}")
        return await self._checkpointing.origin(parent, instance, actions[:wanted])
