"""Boxes: sessions that run an image instead of an instance, for clients that bring their own commands.

Like any session, a box has a slot, a record, a container and a node, and the reaper watches it. It has no actions, no
patch and no grading. It ends at its deadline, when it is idle for longer than the operator allows, or when its node
dies. A box has no journal, so it cannot be restored on another node.
"""

from collections.abc import Sequence

from sandbox_server.boxes.lives import BoxLives
from sandbox_server.boxes.network import egress_of
from sandbox_server.boxes.policy import BoxPolicy
from sandbox_server.boxes.redis_reconciler import BoxRedisReconciler
from sandbox_server.boxes.use import BoxUse
from sandbox_server.boxes.view import BoxView as BoxView  # re-exported: the methods here return it
from sandbox_server.errors import SandboxLost, SandboxPaused, SandboxRunning, StateUnavailable, UnknownSession
from sandbox_server.fleet.ownership import Ownership
from sandbox_server.lifecycle import OVER, SessionState
from sandbox_server.records import OnTimeout, SessionKind
from sandbox_server.sandbox.base import Runtime, Sandbox
from sandbox_server.sandbox.inspector import ContainerInspector
from sandbox_server.sessions.data import SessionData
from sandbox_server.sessions.ending import SessionEnder
from sandbox_server.state.boxes import BoxFacts


class Boxes:
    """Finds boxes on all nodes; uses and changes those of this one."""

    def __init__(
        self,
        runtime: Runtime,
        data: SessionData,
        facts: BoxFacts,
        ownership: Ownership,
        ending: SessionEnder,
        reconciler: BoxRedisReconciler,
        lives: BoxLives,
        policy: BoxPolicy,
        use: BoxUse,
    ) -> None:
        self._runtime = runtime
        self._data = data
        self._facts = facts
        self._ownership = ownership
        self._ending = ending
        self._reconciler = reconciler
        self._lives = lives
        self.policy = policy
        self.use = use

    @property
    def inspector(self) -> ContainerInspector:
        """What this node's engine shows of containers."""
        return self._runtime.inspector

    async def get(self, sid: str) -> BoxView:
        """The box on any node, live or ended. Raises UnknownSession, StateUnavailable."""
        view = await self.find(sid)
        if view is None:
            raise UnknownSession(f"no box {sid}: a task's session has this number")
        return view

    async def find(self, sid: str) -> BoxView | None:
        """Like `get`; None if the session runs an instance."""
        record, box = await self._facts.with_session(sid)
        if record is not None and box is not None and await self._reconciler.is_behind(record):
            await self._lives.reconcile(sid)
            record, box = await self._facts.with_session(sid)
        if record is None:
            record = await self._data.history.session(sid)
            if record is not None and record.state == SessionState.LIVE:
                raise StateUnavailable(f"Redis has lost session {sid}; the reaper puts it back, ask again")
        if record is None or (box is None and record.kind is SessionKind.BOX):
            raise UnknownSession(f"no box {sid}")
        return None if box is None else BoxView(record, box)

    async def of_token(self, token: str) -> BoxView:
        """The box that the access token opens. Raises UnknownSession, StateUnavailable."""
        sid = await self._facts.of_token(token)
        if sid is None:
            raise UnknownSession("no box has this access token")
        return await self.get(sid)

    async def list(self, *, owner: str | None = None) -> list[BoxView]:
        """All running or paused boxes of all nodes, newest first; `owner`: only boxes of this API key."""
        records = [
            one for one in await self._data.store.live() if one.kind is SessionKind.BOX and owner in (None, one.owner)
        ]
        boxes = await self._facts.all([record.sid for record in records])
        views = [BoxView(record, boxes[record.sid]) for record in records if record.sid in boxes]
        return sorted((view for view in views if view.live), key=BoxView.order, reverse=True)

    async def set_timeout(self, sid: str, timeout_s: float, *, only_longer: bool = False) -> BoxView:
        """Move the box's end to `timeout_s` seconds from now, at most its `last_s`; on any node.

        `only_longer`: keep the current end if it is later.

        Raises:
            UnknownSession: there is no such box, it has ended, or it is paused. MalformedRequest. SessionBusy.
            StateUnavailable.
        """
        life_s = self.policy.life_s(timeout_s)
        await self.get(sid)
        changed = await self._lives.set_end(sid, life_s, only_longer=only_longer)
        if self.use.idle_s:
            await self._data.store.touch(sid)  # in Redis, as this may be another node than the box's
        return changed

    async def pause(self, sid: str, *, memory: bool = True) -> BoxView:
        """Freeze the box. It keeps its memory, files and slot, for at most SANDBOX_BOX_PAUSED_MAX_S over all pauses.

        Without `memory` it keeps only its files: it has no container and no slot until it is resumed.

        Raises:
            UnknownSession, OwnedElsewhere. SandboxPaused: already paused. MalformedRequest: no pause time left.
            NotForkable: its files cannot be stored. SessionBusy, InfrastructureError.
        """
        view = await self.get(sid)
        await self._owned(view)
        try:
            return await self._lives.pause(sid, memory=memory)
        except SandboxLost as e:
            await self.lose(view, e.detail)
            raise UnknownSession(f"box {sid} is lost: {e.detail}") from e

    async def resume(
        self,
        sid: str,
        timeout_s: float | None = None,
        *,
        memory: bool = True,
        on_timeout: OnTimeout | None = None,
    ) -> BoxView:
        """Resume a paused box; it ends `timeout_s` seconds from now (None: SANDBOX_BOX_DEFAULT_S).

        Without `memory` it goes on with its files only, whatever was kept.

        Raises:
            UnknownSession, OwnedElsewhere. SandboxRunning: it is not paused. MalformedRequest.
            As `BoxSleep.wake`. SessionBusy, InfrastructureError.
        """
        life_s = self.policy.life_s(timeout_s)
        view = await self.get(sid)
        await self._owned(view)
        try:
            return await self._lives.resume(sid, life_s, memory=memory, on_timeout=on_timeout)
        except SandboxLost as e:
            await self.lose(view, e.detail)
            raise UnknownSession(f"box {sid} is lost: {e.detail}") from e

    async def awake(self, view: BoxView) -> BoxView:
        """The running box on this node, resumed first if it is paused and has `auto_resume`.

        Raises:
            SandboxPaused: paused, without `auto_resume` or with its files only. OwnedElsewhere, UnknownSession,
            NodeUnreachable, SessionBusy. InfrastructureError.
        """
        await self._owned(view)
        if not view.paused:
            return view
        if not view.box.auto_resume or view.box.files_only:
            raise SandboxPaused(f"box {view.sid} is paused; connect to it, which resumes it")
        try:
            # like E2B: its requested lifetime again, but at least the default
            life_s = min(max(view.box.life_s, self.policy.default_s), self.policy.max_s)
            return await self.resume(view.sid, life_s)
        except SandboxRunning:  # another request was first
            return await self.get(view.sid)

    async def set_network(
        self, sid: str, internet: bool | None, allow_out: Sequence[str], deny_out: Sequence[str]
    ) -> None:
        """Connect, disconnect or restrict a running box's network, within the policy.

        Raises:
            UnknownSession, OwnedElsewhere, SandboxPaused. MalformedRequest: invalid rules, or the box was created
            without a network. InfrastructureError: its old rules still apply.
        """
        view = await self.get(sid)
        await self.here(view)
        network = self.policy.network_of(view.box.image, internet, egress_of(allow_out, deny_out))
        try:
            await self._lives.set_network(sid, network, allow_out, deny_out)
        except SandboxLost as e:
            await self.lose(view, e.detail)
            raise

    async def kill(self, sid: str) -> bool:
        """End the box; False: it is unknown or has ended. Raises OwnedElsewhere, SessionBusy, InfrastructureError."""
        try:
            view = await self.get(sid)
        except UnknownSession:
            return False
        if view.record.state in OVER:
            return False
        ended = await self._ending.end(sid, "killed")
        self._lives.forget(sid)
        return ended is not None

    async def sandbox(self, view: BoxView) -> Sandbox:
        """The box's container on this node; a hibernating box is restored first.

        Raises:
            OwnedElsewhere: the box is on another node. UnknownSession: it has ended, or its node has died.
            SandboxPaused. SandboxLost: its container is gone, and the box was ended. As `BoxSleep.wake`.
        """
        view = await self.running(view)
        try:
            return await self._runtime.attach(view.record.container_id)
        except SandboxLost as e:
            now = await self.get(view.sid)
            if now.record.container_id == view.record.container_id:
                await self.lose(view, e.detail)
                raise
        # the box hibernated while this request came: restore it in another container
        return await self._runtime.attach((await self.running(now)).record.container_id)

    async def running(self, view: BoxView) -> BoxView:
        """The box with a container on this node. Raises as `sandbox`."""
        await self.here(view)
        if not view.record.asleep:
            return view
        try:
            return await self._lives.wake(view.sid)
        except SandboxLost as e:
            await self.lose(view, e.detail)
            raise

    async def here(self, view: BoxView) -> None:
        """Return if the box runs on this node.

        Raises:
            OwnedElsewhere, UnknownSession, NodeUnreachable. SandboxPaused.
        """
        await self._owned(view)
        if view.paused:
            raise SandboxPaused(f"box {view.sid} is paused; connect to it, which resumes it")

    async def looked_at(self, sid: str) -> BoxView:
        """The live box, running or paused, on this node. This does not count as use of the box.

        Raises:
            OwnedElsewhere, UnknownSession, NodeUnreachable, StateUnavailable.
        """
        view = await self.get(sid)
        await self._on_this_node(view)
        return view

    async def _owned(self, view: BoxView) -> None:
        await self._on_this_node(view)
        self.use.note(view.sid)

    async def _on_this_node(self, view: BoxView) -> None:
        if not view.live:
            raise UnknownSession(f"box {view.sid} has ended ({view.record.end_reason or 'its time is over'})")
        if not self._ownership.is_here(view.record):
            await self._ownership.check_owner_dead(view.record)
            raise UnknownSession(f"box {view.sid} is lost: its host {view.record.node} died")

    async def lose(self, view: BoxView, cause: str) -> None:
        """End a box whose container is gone."""
        await self._ending.lose(view.sid, cause)
