"""Boxes: sessions that run an image instead of an instance, for clients that bring their own commands.

Like any session, a box has a slot, a record, a container, a node, and is watched by the reaper; it has no actions, no
patch and no grading. It ends at its deadline, whether idle or busy, or when its node dies: boxes have no journal, so
they cannot be restored.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from sandbox_server import telemetry
from sandbox_server.boxes.lives import BoxLives
from sandbox_server.boxes.network import connect, egress_of
from sandbox_server.boxes.plan import BoxPlan, Life
from sandbox_server.boxes.policy import BoxPolicy
from sandbox_server.boxes.templates import TemplateBuilds
from sandbox_server.boxes.view import BoxView as BoxView  # re-exported: the methods here return it
from sandbox_server.catalogue.templates import Result, TemplateBuild
from sandbox_server.errors import (
    ImageUnavailable,
    MalformedRequest,
    SandboxLost,
    SandboxPaused,
    SandboxRunning,
    ServiceError,
    StateUnavailable,
    UnknownImage,
    UnknownSession,
)
from sandbox_server.fleet.ownership import Ownership
from sandbox_server.fleet.placement import Placement
from sandbox_server.images.box_images import BoxImages
from sandbox_server.images.template_images import start_ready
from sandbox_server.lifecycle import OVER, SessionState
from sandbox_server.records import BoxKind, BoxRecord, OnTimeout, SessionKind
from sandbox_server.sandbox.base import ImageInfo, Runtime, Sandbox
from sandbox_server.sandbox.image_names import tagged
from sandbox_server.sessions.data import SessionData
from sandbox_server.sessions.ending import Ending
from sandbox_server.sessions.log import SessionLog
from sandbox_server.sessions.starts import Starts
from sandbox_server.state.boxes import BoxFacts
from sandbox_server.tasks import TaskSet

log = telemetry.logger(__name__)

_TOKEN_BYTES = 32
_CLOSE_S = 5.0


@dataclass(frozen=True, slots=True)
class BoxRequest:
    """A client's request for a box; the policy fills in what it leaves out."""

    kind: BoxKind
    image: str = ""
    """"": taken from the metadata or the template."""
    template: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    """User of commands that name none; "": the policy's default."""
    timeout_s: float | None = None
    """Lifetime from creation; None: SANDBOX_BOX_DEFAULT_S."""
    cpus: float | None = None
    memory_mb: int | None = None
    """None: from the metadata's size, else a session's default."""
    on_timeout: OnTimeout = OnTimeout.KILL
    auto_resume: bool = False
    """Requests to the paused box resume it."""
    internet: bool | None = None
    """False: no network, whatever the policy allows."""
    allow_out: tuple[str, ...] = ()
    deny_out: tuple[str, ...] = ()
    private: bool = False
    """Its ports accept only requests with its traffic token."""
    host_mask: str = ""
    """See `BoxRecord.host_mask`."""
    owner: str = ""
    """Name of the API key."""
    run: str = ""
    """Run that it counts for in the fair queue."""
    idempotency_key: str = ""
    """A repeated request with the same key returns the first one's box while it is live."""


class Boxes:
    """Finds boxes on all nodes; creates them on this one."""

    def __init__(
        self,
        *,
        runtime: Runtime,
        data: SessionData,
        facts: BoxFacts,
        starts: Starts,
        placement: Placement,
        ownership: Ownership,
        ending: Ending,
        log: SessionLog,
        lives: BoxLives,
        policy: BoxPolicy,
        images: BoxImages,
        may_pull: Callable[[str], Awaitable[bool]],
        templates: TemplateBuilds,
    ) -> None:
        """`may_pull(image)`: whether the catalogue names the image."""
        self._runtime = runtime
        self._data = data
        self._facts = facts
        self._starts = starts
        self._placement = placement
        self._ownership = ownership
        self._ending = ending
        self._log = log
        self._lives = lives
        self._images = images
        self._may_pull = may_pull
        self._templates = templates
        self._giving_back = TaskSet("boxes given back")
        self.policy = policy

    async def create(self, asked: BoxRequest) -> BoxView:
        """Create a running box. Cancelling the call leaves nothing behind, but a pull of the image continues.

        Raises:
            UnknownImage, MalformedRequest: the request cannot be granted as it is.
            CapacityError: no slot, image or container within SANDBOX_BOX_CREATE_WAIT_S. OverQuota.
            OwnedElsewhere: another node must create it. InfrastructureError.
        """
        key = f"{asked.owner}\0{asked.idempotency_key}" if asked.idempotency_key else ""
        if key and (made := await self._made(key)):
            return made
        try:
            view = await self._begin(asked)
        except ServiceError as e:
            telemetry.STARTS.labels(e.code).inc()
            if e.reason:
                telemetry.STARTS_REFUSED.labels(e.reason).inc()
            log.warning("no box", template=asked.template, run=asked.run, code=e.code, error=e.detail)
            raise
        telemetry.STARTS.labels("ok").inc()
        if key:
            await self._facts.remember(key, view.sid)
        log.info("box begun", sid=view.sid, image=view.box.image, kind=asked.kind.value, run=asked.run)
        return view

    async def _begin(self, asked: BoxRequest) -> BoxView:
        template = await self._template(asked)
        plan = self._plan(asked, template)
        image = plan.box.image
        await self._placement.settle_as(plan.name, [tagged(image)])
        if template is None:
            await self._permit(image)
        try:
            record = await self._starts.begin(plan, run=asked.run, owner=asked.owner, wait_s=self.policy.create_wait_s)
        except ImageUnavailable as e:
            if not e.absent:
                raise
            raise UnknownImage(f"image {image!r} does not exist: {e.detail}") from e
        self._log.add(record, plan.box)
        view = BoxView(record, plan.box)
        if template is not None:
            await self._started(view, template)
        return view

    async def _template(self, asked: BoxRequest) -> TemplateBuild | None:
        """The client's template that the request names; None: it names an image, or an unknown template."""
        if not self.policy.by_template(asked.image, asked.template, asked.metadata):
            return None
        return await self._templates.ready(asked.owner, asked.template)

    async def _started(self, view: BoxView, template: TemplateBuild) -> None:
        """Run the template's start command until it is ready; end the box if it is not. Raises NotReady."""
        if not template.result.start:
            return
        box = view.box
        try:
            sandbox = await self._runtime.attach(view.record.container_id)
            within_s = self._templates.bounds.ready_s
            await start_ready(sandbox, template.result, env=box.env, user=box.user, within_s=within_s)
        except BaseException:
            self._giving_back.start(self._ending.end(view.sid, "not_ready"))
            raise

    async def base(self, image: str) -> ImageInfo:
        """What a box of this image would start from, for a build on it. Raises as `create`."""
        await self._permit(image)
        return await self._images.of(image, {})

    async def create_while(self, asked: BoxRequest, left: Coroutine[Any, Any, None]) -> BoxView | None:
        """Like `create`, but if `left` returns first (the client is gone), remove the box and return None."""
        creating, leaving = asyncio.create_task(self.create(asked)), asyncio.create_task(left)
        try:
            await asyncio.wait({creating, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not leaving.done():
                return creating.result()
            self._giving_back.start(self._give_back(creating))
            return None
        except asyncio.CancelledError:
            self._giving_back.start(self._give_back(creating))
            raise
        finally:
            leaving.cancel()

    async def close(self) -> None:
        """Wait a few seconds for unwanted boxes to end."""
        await self._giving_back.settle(_CLOSE_S)

    async def _give_back(self, creating: asyncio.Task[BoxView]) -> None:
        """End a box that nobody will use."""
        creating.cancel()  # it may be queued ahead of requests whose clients still wait
        (made,) = await asyncio.gather(creating, return_exceptions=True)
        if isinstance(made, BoxView):
            log.info("client gone", sid=made.sid)
            try:
                await self._ending.end(made.sid, "client_gone")
            except ServiceError as e:
                log.warning(
                    "the client of a new box disconnected; the box stays until its deadline",
                    sid=made.sid,
                    code=e.code,
                    error=e.detail,
                )

    async def _made(self, key: str) -> BoxView | None:
        sid = await self._facts.made(key)
        if sid is None:
            return None
        view = await self.get(sid)
        return view if view.live else None

    def _plan(self, asked: BoxRequest, template: TemplateBuild | None) -> BoxPlan:
        policy = self.policy
        if template is None:
            image = root = policy.image(asked.image, asked.template, asked.metadata)
            limits = policy.size(asked.metadata, asked.cpus, asked.memory_mb)
            own = Result(user=policy.user)
        else:
            own = template.result
            image, root = own.image, own.root
            limits = self._templates.limits(template, asked.metadata)
        egress = egress_of(asked.allow_out, asked.deny_out)
        life_s = policy.life_s(asked.timeout_s)
        if asked.on_timeout is OnTimeout.PAUSE and not policy.paused_max_s:
            raise MalformedRequest("boxes cannot be paused here (SANDBOX_BOX_PAUSED_MAX_S is 0); let them end")
        box = BoxRecord(
            sid="",
            kind=asked.kind.value,
            image=image,
            template=asked.template,
            metadata=dict(asked.metadata),
            env={**own.env, **asked.env},
            user=asked.user or own.user,
            workdir=own.workdir,
            token=secrets.token_urlsafe(_TOKEN_BYTES),
            network=policy.network_of(root, asked.internet, egress),
            allow_out=tuple(asked.allow_out),
            deny_out=tuple(asked.deny_out),
            cpus=limits.cpus,
            memory_mb=limits.memory_mb,
            disk_mb=limits.disk_mb,
            last_s=0.0,
            owner=asked.owner,
            life_s=life_s,
            on_timeout=asked.on_timeout.value,
            auto_resume=asked.auto_resume,
            pausable_s=policy.paused_max_s,
            traffic_token=secrets.token_urlsafe(_TOKEN_BYTES) if asked.private else "",
            host_mask=asked.host_mask,
        )
        life = Life(life_s, policy.max_s)
        built = None if template is None else partial(self._templates.image, template)
        return BoxPlan(
            box, limits, egress, life, images=self._images, store=self._data.store, facts=self._facts, built=built
        )

    async def _permit(self, image: str) -> None:
        """Return if boxes may run the image. Raises UnknownImage."""
        if self.policy.is_named(image):
            return
        if self.policy.images:
            raise UnknownImage(f"image {image!r} does not exist for boxes: no pattern of SANDBOX_BOX_IMAGES fits it")
        if await self._runtime.find_image(image) is None and not await self._may_pull(image):
            raise UnknownImage(
                f"image {image!r} does not exist on this engine, nor is it an image of the catalogue; load it there,"
                " or name it in SANDBOX_BOX_IMAGES to have it pulled"
            )

    async def get(self, sid: str) -> BoxView:
        """The box on any node, live or ended. Raises UnknownSession, StateUnavailable."""
        view = await self.find(sid)
        if view is None:
            raise UnknownSession(f"no box {sid}: a task's session has this number")
        return view

    async def find(self, sid: str) -> BoxView | None:
        """Like `get`; None if the session runs an instance."""
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
        return await self._lives.set_end(sid, life_s, only_longer=only_longer)

    async def pause(self, sid: str) -> BoxView:
        """Freeze the box. It keeps its memory, files and slot, for at most SANDBOX_BOX_PAUSED_MAX_S over all pauses.

        Raises:
            UnknownSession, OwnedElsewhere. SandboxPaused: already paused. MalformedRequest: no pause time left.
            SessionBusy, InfrastructureError.
        """
        view = await self.get(sid)
        await self._owned(view)
        try:
            return await self._lives.pause(sid)
        except SandboxLost as e:
            await self.lose(view, e.detail)
            raise UnknownSession(f"box {sid} is lost: {e.detail}") from e

    async def resume(self, sid: str, timeout_s: float | None = None, *, on_timeout: OnTimeout | None = None) -> BoxView:
        """Resume a paused box; it ends `timeout_s` seconds from now (None: SANDBOX_BOX_DEFAULT_S).

        Raises:
            UnknownSession, OwnedElsewhere. SandboxRunning: it is not paused. MalformedRequest.
            SessionBusy, InfrastructureError.
        """
        life_s = self.policy.life_s(timeout_s)
        view = await self.get(sid)
        await self._owned(view)
        try:
            return await self._lives.resume(sid, life_s, on_timeout=on_timeout)
        except SandboxLost as e:
            await self.lose(view, e.detail)
            raise UnknownSession(f"box {sid} is lost: {e.detail}") from e

    async def awake(self, view: BoxView) -> BoxView:
        """The running box on this node, resumed first if it is paused and has `auto_resume`.

        Raises:
            SandboxPaused: paused, without `auto_resume`. OwnedElsewhere, UnknownSession, NodeUnreachable, SessionBusy.
            InfrastructureError.
        """
        await self._owned(view)
        if not view.paused:
            return view
        if not view.box.auto_resume:
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
        egress = egress_of(allow_out, deny_out)
        network = self.policy.network_of(view.box.image, internet, egress)
        await connect(self._runtime, view, network, egress)
        box = replace(view.box, network=network, allow_out=tuple(allow_out), deny_out=tuple(deny_out))
        await self._facts.put(box, view.ends_at)
        self._log.add(view.record, box)

    async def kill(self, sid: str) -> bool:
        """End the box; False: it is unknown or has ended. Raises OwnedElsewhere, SessionBusy, InfrastructureError."""
        try:
            view = await self.get(sid)
        except UnknownSession:
            return False
        if view.record.state in OVER:
            return False
        return await self._ending.end(sid, "killed") is not None

    async def sandbox(self, view: BoxView) -> Sandbox:
        """The box's container on this node.

        Raises:
            OwnedElsewhere: the box is on another node. UnknownSession: it has ended, or its node has died.
            SandboxPaused. SandboxLost: its container is gone, and the box was ended.
        """
        await self.here(view)
        try:
            return await self._runtime.attach(view.record.container_id)
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

    async def _owned(self, view: BoxView) -> None:
        if not view.live:
            raise UnknownSession(f"box {view.sid} has ended ({view.record.end_reason or 'its time is over'})")
        if not self._ownership.is_here(view.record):
            await self._ownership.nobodys(view.record)
            raise UnknownSession(f"box {view.sid} is lost: its host {view.record.node} died")

    async def lose(self, view: BoxView, cause: str) -> None:
        """End a box whose container is gone."""
        await self._ending.lose(view.sid, cause)
