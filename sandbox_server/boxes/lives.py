"""Deadlines and pauses of boxes. A pause freezes the processes and keeps memory, files and slot, for a bounded time;
one without memory keeps only the files (`sleeping`).

The record is authoritative: it is written before a container is paused and after one is unpaused. If a server died in
between, or someone else paused or unpaused the container, the reaper makes the engine follow the record.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from sandbox_server import clock, telemetry
from sandbox_server.boxes.events import BoxEvents
from sandbox_server.boxes.network import connect, egress_of
from sandbox_server.boxes.redis_reconciler import BoxRedisReconciler
from sandbox_server.boxes.sleeping import BoxSleep
from sandbox_server.boxes.view import BoxView
from sandbox_server.errors import (
    DataDiskFull,
    EngineUnavailable,
    MalformedRequest,
    NotForkable,
    SandboxPaused,
    SandboxRunning,
    ServiceError,
    UnknownSession,
)
from sandbox_server.lifecycle import SessionState
from sandbox_server.records import OnTimeout, SessionKind, SessionRecord
from sandbox_server.sandbox.base import ContainerInfo, Runtime
from sandbox_server.starts.log import SessionLog
from sandbox_server.state.boxes import BoxFacts
from sandbox_server.state.store import Store

log = telemetry.logger(__name__)


class BoxLives:
    """Moves the deadlines of all boxes; pauses and resumes boxes of this node."""

    def __init__(
        self,
        runtime: Runtime,
        store: Store,
        facts: BoxFacts,
        log: SessionLog,
        sleep: BoxSleep,
        events: BoxEvents,
        reconciler: BoxRedisReconciler,
        *,
        wait_s: float,
    ) -> None:
        """`wait_s`: limit on waiting for the session's lock."""
        self._sleep = sleep
        self._reconciler = reconciler
        self._events = events
        self._runtime = runtime
        self._store = store
        self._facts = facts
        self._log = log
        self._wait_s = wait_s

    async def set_end(self, sid: str, life_s: float, *, only_longer: bool) -> BoxView:
        """Move the box's end to `life_s` seconds from now; `only_longer`: keep the current end if it is later.

        Raises:
            UnknownSession: it has ended, or is paused. SessionBusy. StateUnavailable.
        """
        async with self._store.lock(sid, self._wait_s):
            view = await self._live(sid)
            if view.paused:
                raise UnknownSession(f"box {sid} is paused; connect to it, which resumes it")
            deadline = min(clock.now() + life_s, view.box.last_s)
            if only_longer:
                deadline = max(deadline, view.ends_at)
            return self._noted(view, deadline, await self._facts.prolong(view.box, deadline))

    async def set_network(self, sid: str, network: str, allow_out: Sequence[str], deny_out: Sequence[str]) -> None:
        """Connect, disconnect or restrict the network of a running box.

        Raises:
            UnknownSession: it has ended. SandboxPaused. MalformedRequest: it was created without a network.
            SessionBusy. As `BoxSleep.wake`. InfrastructureError: its old rules still apply.
        """
        async with self._store.lock(sid, self._sleep.wait_s):
            view = await self._running(sid)
            await connect(self._runtime, view, network, egress_of(allow_out, deny_out))
            box = replace(view.box, network=network, allow_out=tuple(allow_out), deny_out=tuple(deny_out))
            await self._put(BoxView(view.record, box), view.ends_at)

    async def pause(self, sid: str, *, memory: bool = True) -> BoxView:
        """Freeze the box; or, without its memory, store its files and remove its container.

        Raises:
            UnknownSession: it has ended. SandboxPaused: already paused. MalformedRequest: no pause time
            left. SessionBusy. SandboxLost: its container is gone. InfrastructureError, NotForkable: it runs on.
        """
        async with self._store.lock(sid, self._wait_s):
            view = await self._live(sid)
            if view.paused:
                raise SandboxPaused(f"box {sid} is paused already")
            if view.box.pausable_s <= 0:
                raise MalformedRequest(
                    f"box {sid} cannot be paused any more: it has been paused for as long as a box may be"
                    " (SANDBOX_BOX_PAUSED_MAX_S)"
                )
            return await (self._freeze if memory else self._store_files)(view, clock.now())

    async def resume(
        self, sid: str, life_s: float, *, memory: bool = True, on_timeout: OnTimeout | None = None
    ) -> BoxView:
        """Resume the box; it ends `life_s` seconds from now. `on_timeout`: what happens then; None: unchanged.

        Without `memory`, or if only its files were kept, it gets a fresh container with its files.

        Raises:
            UnknownSession: it has ended. SandboxRunning: it is not paused. SessionBusy. SandboxLost.
            InfrastructureError, CapacityError, NotForkable, UnknownImage: it is still paused.
        """
        async with self._store.lock(sid, self._wait_s):
            view = await self._live(sid)
            if not view.paused:
                raise SandboxRunning(f"box {sid} is running already")
            if not view.record.asleep and not memory:
                view = await self._without_memory(view)
            if not view.record.asleep:
                await self._runtime.unpause(view.record.container_id)
            now = clock.now()
            stood_s = max(0.0, now - view.paused_from)
            box = replace(
                view.box,
                paused_at=0.0,
                files_only=False,
                pausable_s=max(0.0, view.box.pausable_s - stood_s),
                last_s=view.box.last_s + stood_s,
                on_timeout=on_timeout or view.box.on_timeout,
            )
            deadline = min(now + life_s, box.last_s)
            if view.record.asleep:
                resumed = await self._sleep.wake(view, box, deadline)
            else:
                resumed = await self._put(BoxView(view.record, box), deadline)
        log.info("box resumed", sid=sid, paused_s=stood_s)
        self._events.add(sid, "sandbox", "Sandbox resumed", paused_s=round(stood_s, 3))
        return resumed

    async def pause_at_end(self, sid: str) -> bool:
        """Pause the box if it is past its deadline and pauses then; False: it must end. Raises as `pause`."""
        async with self._store.lock(sid, self._wait_s):
            view = await self._view(sid)
            if view is None or not view.due:
                return view is not None and view.live
            if not view.box.timeout_files:
                await self._freeze(view, view.ends_at)
                return True
            try:
                await self._store_files(view, view.ends_at)
            except (NotForkable, DataDiskFull) as error:
                log.warning("a box keeps its memory: its files cannot be stored", sid=sid, error=error.detail)
                await self._freeze(view, view.ends_at)
            return True

    async def wake(self, sid: str) -> BoxView:
        """Restore a hibernating box in a container.

        Raises:
            SandboxPaused. UnknownSession: it has ended. SessionBusy. As `BoxSleep.wake`.
        """
        async with self._store.lock(sid, self._sleep.wait_s):
            return await self._running(sid)

    async def reconcile(self, sid: str) -> bool:
        """Put back what Redis lacks of the box; True if it lacked anything. Raises SessionBusy, InfrastructureError."""
        async with self._store.lock(sid, self._wait_s):
            return await self._reconciler.reconcile(sid)

    def forget(self, sid: str) -> None:
        """Drop the stored files of a box that has ended."""
        self._sleep.forget(sid)

    async def follow(self, containers: Sequence[ContainerInfo], sessions: Sequence[SessionRecord]) -> None:
        """Pause or unpause the containers whose state differs from their box's record."""
        frozen = {c.container_id: c.paused for c in containers if c.running or c.paused}
        found = [
            s
            for s in sessions
            if s.kind is SessionKind.BOX and s.state == SessionState.LIVE and s.container_id in frozen
        ]
        boxes = await self._facts.all([record.sid for record in found])
        for record in found:
            if self._sleep.is_removing(record.sid):
                continue
            if (box := boxes.get(record.sid)) and frozen[record.container_id] != (box.paused_at > 0):
                try:
                    await self._mend(record.sid)
                except ServiceError as e:
                    log.warning("box not paused or resumed; the next pass tries again", sid=record.sid, error=e.detail)

    async def _mend(self, sid: str) -> None:
        async with self._store.lock(sid, self._wait_s):
            await self._reconciler.reconcile(sid)
            view = await self._view(sid)
            if view is None or view.record.state != SessionState.LIVE:
                return
            paused = view.box.paused_at > 0
            # list again: since the caller's list, a pause or resume may have frozen, unfrozen or removed the container
            frozen = {c.container_id: c.paused for c in await self._runtime.list() if c.running or c.paused}
            if frozen.get(view.record.container_id, paused) == paused:
                return
            log.warning("a box's container was paused or running against its record; corrected", sid=sid, paused=paused)
            await (self._runtime.pause if paused else self._runtime.unpause)(view.record.container_id)

    async def _freeze(self, view: BoxView, at: float) -> BoxView:
        box = replace(view.box, paused_at=at)
        paused = await self._put(BoxView(view.record, box), at + box.pausable_s)
        if view.record.asleep:
            return paused
        try:
            await self._runtime.pause(view.record.container_id)
        except EngineUnavailable:
            # The client gets an error, so the pause must not happen later. If the engine did pause it, the reaper
            # unpauses it; if this write fails too, the record says paused and the reaper pauses the container.
            with suppress(ServiceError):
                await self._put(view, view.ends_at)
            raise
        log.info("box paused", sid=view.sid, until=paused.ends_at)
        self._events.add(view.sid, "sandbox", "Sandbox paused")
        return paused

    async def _store_files(self, view: BoxView, at: float) -> BoxView:
        """Pause the box and keep only its files.

        It counts as paused while its files are read. If the server dies meanwhile, the next server freezes the
        container.
        """
        box = replace(view.box, paused_at=at, files_only=True)
        with self._sleep.removing(view.sid):
            paused = await self._put(BoxView(view.record, box), at + box.pausable_s)
            if not view.record.asleep:
                try:
                    await self._sleep.take(paused)
                    paused = await self._sleep.let_go(paused)
                except ServiceError:
                    with suppress(ServiceError):  # the client gets an error, so the box must run on
                        await self._put(view, view.ends_at)
                    raise
        log.info("box paused with its files only", sid=view.sid, until=paused.ends_at)
        self._events.add(view.sid, "sandbox", "Sandbox paused", files_only=True)
        return paused

    async def _without_memory(self, view: BoxView) -> BoxView:
        """Drop the memory of a frozen box; keep its files."""
        with self._sleep.removing(view.sid):
            await self._runtime.unpause(view.record.container_id)
            try:
                await self._sleep.take(view)
                return await self._sleep.let_go(view)
            except ServiceError:
                if view.box.paused_at:
                    with suppress(ServiceError):  # otherwise the reaper freezes it
                        await self._runtime.pause(view.record.container_id)
                raise

    async def _put(self, view: BoxView, deadline: float) -> BoxView:
        return self._noted(view, deadline, await self._facts.change(view.box, deadline))

    def _noted(self, view: BoxView, deadline: float, changes: int) -> BoxView:
        if not changes:
            raise UnknownSession(f"box {view.sid} has ended")
        changed = BoxView(replace(view.record, deadline=deadline, changes=changes), view.box)
        self._log.add(changed.record, changed.box)
        return changed

    async def _running(self, sid: str) -> BoxView:
        view = await self._live(sid)
        if view.paused:
            raise SandboxPaused(f"box {sid} is paused; connect to it, which resumes it")
        return await self._sleep.wake(view, view.box, view.ends_at) if view.record.asleep else view

    async def _live(self, sid: str) -> BoxView:
        view = await self._view(sid)
        if view is None or not view.live:
            raise UnknownSession(f"box {sid} has ended")
        return view

    async def _view(self, sid: str) -> BoxView | None:
        record, box = await self._facts.with_session(sid)
        if record is not None and self._facts.is_behind(record) and await self._reconciler.reconcile(sid):
            record, box = await self._facts.with_session(sid)
        return None if record is None or box is None else BoxView(record, box)
