"""Creates boxes on this node."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from sandbox_server import telemetry
from sandbox_server.boxes.base_images import of_template
from sandbox_server.boxes.boxes import Boxes, BoxView
from sandbox_server.boxes.plan import BoxPlan
from sandbox_server.boxes.planning import BoxPlans, BoxRequest
from sandbox_server.boxes.snapshots import Source
from sandbox_server.catalogue.snapshots import Snapshot
from sandbox_server.catalogue.templates import Result
from sandbox_server.checkpoints.store import CheckpointDamaged
from sandbox_server.errors import ImageUnavailable, InfrastructureError, ServiceError, UnknownImage
from sandbox_server.fleet.placement import Placement
from sandbox_server.images.template_images import start_ready
from sandbox_server.sandbox.base import Runtime
from sandbox_server.sandbox.image_names import tagged
from sandbox_server.sessions.ending import SessionEnder
from sandbox_server.starts.log import SessionLog
from sandbox_server.starts.starts import Starts
from sandbox_server.state.boxes import BoxFacts, CreateKey
from sandbox_server.tasks import TaskSet

log = telemetry.logger(__name__)

_TOKEN_BYTES = 32
_CLOSE_S = 5.0


class BoxCreation:
    """Creates boxes of images and of clients' templates."""

    def __init__(
        self,
        runtime: Runtime,
        boxes: Boxes,
        facts: BoxFacts,
        plans: BoxPlans,
        starts: Starts,
        placement: Placement,
        ending: SessionEnder,
        log: SessionLog,
    ) -> None:
        self._runtime = runtime
        self._boxes = boxes
        self._facts = facts
        self._plans = plans
        self._starts = starts
        self._placement = placement
        self._ending = ending
        self._log = log
        self._giving_back = TaskSet("boxes given back")

    async def create(self, asked: BoxRequest) -> BoxView:
        """Create a running box. Cancelling the call leaves nothing behind, but a pull of the image continues.

        Raises:
            UnknownImage, MalformedRequest: the request cannot be granted as it is.
            CapacityError: no slot, image or container within SANDBOX_BOX_CREATE_WAIT_S. OverQuota.
            OwnedElsewhere: another node must create it. InfrastructureError.
        """
        key = CreateKey(f"{asked.owner}\0{asked.idempotency_key}", asked.text) if asked.idempotency_key else None
        known = await self._facts.created_by(key) if key else None
        if known is not None and (made := await self._boxes.get(known)).live:
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
            view = await self._first(key, view, known)
        log.info("box begun", sid=view.sid, image=view.box.image, kind=asked.kind.value, run=asked.run)
        return view

    async def _begin(self, asked: BoxRequest) -> BoxView:
        template = await self._plans.template(asked)
        source = await self._plans.source(asked, self._settle) if template is None else None
        if source is not None:
            return await self.of(asked, source)
        plan = self._plans.plan(asked, template)
        await self._placement.settle_as(plan.name, [tagged(plan.box.image)])
        if template is None:
            await self._plans.permit(plan.box.image)
        return await self._start(asked, plan)

    async def _settle(self, snapshot: Snapshot) -> None:
        await self._placement.settle_as(f"snapshot {snapshot.snapshot_id}", [tagged(snapshot.box.image)])

    async def of(self, asked: BoxRequest, source: Source) -> BoxView:
        """A running box with the files of another one, on this node. Raises as `create`; NotForkable."""
        await self._placement.ready()
        plan = self._plans.plan(asked, None, source)
        if not of_template(source.box):
            await self._plans.permit(source.box.image)
        try:
            return await self._start(asked, plan)
        except CheckpointDamaged as e:
            raise InfrastructureError(f"the files of the snapshot are damaged here: {e}; send the request again") from e

    async def _start(self, asked: BoxRequest, plan: BoxPlan) -> BoxView:
        image = plan.box.image
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
        await self._started(view)
        return view

    async def _started(self, view: BoxView) -> None:
        """Run the template's start command until it is ready; end the box if it is not. Raises NotReady."""
        box = view.box
        if not box.start:
            return
        try:
            sandbox = await self._runtime.attach(view.record.container_id)
            within_s = self._plans.ready_s
            await start_ready(
                sandbox,
                Result(start=box.start, ready=box.ready, workdir=box.workdir),
                env=box.env,
                user=box.user,
                within_s=within_s,
            )
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

    async def _first(self, key: CreateKey, view: BoxView, ended: str | None) -> BoxView:
        """The box to return for a create with this key: concurrent requests all get the first one's.

        `ended`: the box that an earlier create with this key made, and that has ended; None: there is none.
        """
        try:
            first = await self._facts.remember(key, view.sid, instead=ended)
        except BaseException:
            self._giving_back.start(self._ending.end(view.sid, "client_gone"))
            raise
        if first == view.sid:
            return view
        self._giving_back.start(self._ending.end(view.sid, "client_gone"))
        return await self._boxes.get(first)
