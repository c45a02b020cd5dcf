"""Creates boxes on this node."""

import asyncio
import secrets
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sandbox_server import telemetry
from sandbox_server.boxes.allowed import AllowedImages
from sandbox_server.boxes.boxes import Boxes, BoxView
from sandbox_server.boxes.network import egress_of
from sandbox_server.boxes.plan import BoxPlan, Life
from sandbox_server.boxes.templates import TemplateBuilds
from sandbox_server.catalogue.templates import Result, TemplateBuild
from sandbox_server.errors import ImageUnavailable, MalformedRequest, ServiceError, UnknownImage
from sandbox_server.fleet.placement import Placement
from sandbox_server.images.template_images import start_ready
from sandbox_server.records import BoxKind, BoxRecord, OnTimeout
from sandbox_server.sandbox.base import Runtime
from sandbox_server.sandbox.image_names import tagged
from sandbox_server.sessions.ending import Ending
from sandbox_server.sessions.log import SessionLog
from sandbox_server.sessions.starts import Starts
from sandbox_server.state.boxes import BoxFacts
from sandbox_server.state.store import Store
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


class BoxCreation:
    """Creates boxes of images and of clients' templates."""

    def __init__(
        self,
        runtime: Runtime,
        boxes: Boxes,
        store: Store,
        facts: BoxFacts,
        starts: Starts,
        placement: Placement,
        ending: Ending,
        log: SessionLog,
        allowed: AllowedImages,
        templates: TemplateBuilds,
    ) -> None:
        self._runtime = runtime
        self._boxes = boxes
        self._store = store
        self._facts = facts
        self._starts = starts
        self._placement = placement
        self._ending = ending
        self._log = log
        self._allowed = allowed
        self._templates = templates
        self._giving_back = TaskSet("boxes given back")

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
            await self._allowed.permit(image)
        try:
            record = await self._starts.begin(
                plan, run=asked.run, owner=asked.owner, wait_s=self._boxes.policy.create_wait_s
            )
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
        if not self._boxes.policy.by_template(asked.image, asked.template, asked.metadata):
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
        view = await self._boxes.get(sid)
        return view if view.live else None

    def _plan(self, asked: BoxRequest, template: TemplateBuild | None) -> BoxPlan:
        policy = self._boxes.policy
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
            box, limits, egress, life, images=self._allowed.images, store=self._store, facts=self._facts, built=built
        )
