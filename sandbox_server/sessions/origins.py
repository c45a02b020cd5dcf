"""Where a copy of a session begins: a checkpoint of the session or of an ancestor, and the actions after it."""

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
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

    @asynccontextmanager
    async def of(self, sid: str, at: int | None) -> AsyncIterator[Origin]:
        """Like `found`, for one copy after action `at` (None: the last one) of a session.

        Raises:
            As `parent` and `found`.
        """
        parent, instance = await self.parent(sid)
        async with self.found(parent, instance, 1, at) as origin:
            yield origin

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

    @asynccontextmanager
    async def found(
        self, parent: SessionRecord, instance: TaskInstance, n: int, at: int | None, *, anew: bool = False
    ) -> AsyncIterator[Origin]:
        """The state from which `n` copies start; within the context its checkpoint can be read, even if another request
        replaces it. `anew`: do not use stored checkpoints.

        Raises:
            MalformedRequest (`at`), SessionBusy, SessionOver, SandboxLost, OwnedElsewhere. NotForkable: the contents of
            the sandbox prevent it.
        """
        with ExitStack() as kept:
            if parent.state == SessionState.LIVE and not parent.asleep and at in (None, parent.actions):
                yield await self._present(parent.sid, instance, at, kept)
                return
            await self._placement.settle(instance, n)
            origin = await self._past(parent, instance, at)
            if anew:
                origin = replace(origin, checkpoint=None)
            elif origin.checkpoint is not None:
                kept.enter_context(self._checkpointing.kept(origin.checkpoint))
            yield origin

    @asynccontextmanager
    async def as_copy(self, origin: Origin, first: str) -> AsyncIterator[Origin]:
        """Like `found`, for further copies: a checkpoint of the first copy, in which the actions were run again.

        Raises:
            As `found`.
        """
        with ExitStack() as kept:
            async with self._locked(first) as record:
                if record.actions == origin.at:  # else a client has used the copy: it no longer has the parent's state
                    sandbox = await self._runtime.attach(record.container_id)
                    checkpoint = await self._checkpointing.take(record, sandbox, origin.instance, of=origin.parent.sid)
                    kept.enter_context(self._checkpointing.kept(checkpoint))
                    origin = replace(origin, checkpoint=checkpoint)
            yield origin

    async def _present(self, sid: str, instance: TaskInstance, at: int | None, kept: ExitStack) -> Origin:
        """A new checkpoint of a live session, entered into `kept`."""
        await self._acting.sandbox(sid)  # restored here first, if its node has died
        async with self._locked(sid) as record:
            if at is not None and at != record.actions:
                raise SessionBusy(f"session {sid} went on to action {record.actions} meanwhile; send the request again")
            sandbox = await self._runtime.attach(record.container_id)
            checkpoint = await self._checkpointing.take(record, sandbox, instance)
            kept.enter_context(self._checkpointing.kept(checkpoint))
        actions = await self._journals.complete(record)
        return Origin(record, instance, actions[: record.actions], checkpoint, undone=record.undone)

    @asynccontextmanager
    async def _locked(self, sid: str) -> AsyncIterator[SessionRecord]:
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
