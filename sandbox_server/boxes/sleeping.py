"""Boxes without a container: their files are in a checkpoint, and a fresh container gets them when needed.

Such a box is paused with its files only, or hibernates (`hibernation`). It holds no slot and no memory. Nothing else
can restore the files, so the node keeps the checkpoint until the box has a container again or has ended.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime

from sandbox_server import clock, telemetry
from sandbox_server.boxes.base_images import BaseImages
from sandbox_server.boxes.network import egress_of
from sandbox_server.boxes.policy import BoxPolicy
from sandbox_server.boxes.states import BoxStates
from sandbox_server.boxes.view import BoxView
from sandbox_server.checkpoints.checkpoint import Checkpoint
from sandbox_server.checkpoints.store import CheckpointDamaged
from sandbox_server.errors import CapacityError, InfrastructureError, SandboxLost, ServiceError, UnknownSession
from sandbox_server.records import BoxRecord
from sandbox_server.sandbox.base import ContainerSpec, Role, Runtime, Sandbox
from sandbox_server.sessions.data import SessionData
from sandbox_server.starts.log import SessionLog
from sandbox_server.starts.starts import Starts
from sandbox_server.state.boxes import BoxFacts

log = telemetry.logger(__name__)

_PREFIX = "box-"  # of the names of their checkpoints
_GRACE_S = 0.05  # time for a request that still saw the container to note its use of the box


class BoxSleep:
    """Removes the containers of boxes of this node, and restores the boxes. Callers hold the box's lock."""

    def __init__(
        self,
        runtime: Runtime,
        data: SessionData,
        facts: BoxFacts,
        log: SessionLog,
        starts: Starts,
        states: BoxStates,
        bases: BaseImages,
        policy: BoxPolicy,
    ) -> None:
        self._runtime = runtime
        self._data = data
        self._facts = facts
        self._log = log
        self._starts = starts
        self._states = states
        self._bases = bases
        self._policy = policy
        self._removing: set[str] = set()

    @property
    def wait_s(self) -> float:
        """Limit on waiting for a box that another request restores."""
        return self._policy.create_wait_s

    def is_removing(self, sid: str) -> bool:
        """Whether the box's container is being removed now."""
        return sid in self._removing

    @contextmanager
    def removing(self, sid: str) -> Iterator[None]:
        """Mark the box while its container is removed in the body: `take`, then `let_go`."""
        self._removing.add(sid)
        try:
            yield
        finally:
            self._removing.discard(sid)

    async def take(self, view: BoxView) -> Checkpoint:
        """Checkpoint the box's files. Raises as `BoxStates.take`."""
        sandbox = await self._runtime.attach(view.record.container_id)
        return await self._states.take(sandbox, _PREFIX + view.sid)

    async def let_go(self, view: BoxView, *, unused: Callable[[], bool] | None = None) -> BoxView:
        """Write the box as in `view` but without a container; then remove the container and free the slot.

        If the box was used since (`unused` is False), it keeps its container, as the returned view says.

        Raises:
            UnknownSession: it has ended. StateUnavailable, CatalogueUnavailable.
        """
        asleep = BoxView(replace(view.record, container_id="", changes=view.record.changes + 1), view.box)
        try:
            # SQL first: if Redis forgets the box, SQL must know that it has no container
            self._log.add(asleep.record, asleep.box)
            await self._log.drain()
            if not await self._facts.change(view.box, view.ends_at, container_id=""):
                raise UnknownSession(f"box {view.sid} has ended")
            if unused is not None:
                await asyncio.sleep(_GRACE_S)
                if not unused():
                    container_id = view.record.container_id
                    changes = await self._facts.change(view.box, view.ends_at, container_id=container_id)
                    awake = BoxView(replace(view.record, changes=changes), view.box)
                    self._log.add(awake.record, awake.box)
                    return awake
        except InfrastructureError:
            self._log.add(view.record, view.box)  # it still has its container
            raise
        await self._starts.release(view.sid)
        with suppress(ServiceError):
            for pid in await self._facts.commands(view.sid):  # a later server must not look for them
                await self._facts.forget_command(view.sid, pid)
        await self._remove(view.record.container_id)
        return asleep

    async def wake(self, view: BoxView, box: BoxRecord, deadline: float) -> BoxView:
        """Restore the box in a container, parked or new, as `box` with the deadline `deadline` (Unix seconds).

        Raises:
            CapacityError: no room within SANDBOX_BOX_CREATE_WAIT_S. UnknownImage, NotForkable: its files cannot be
            restored now. After these errors it is still without a container. SandboxLost: its files are gone.
            UnknownSession: it has ended. InfrastructureError.
        """
        checkpoint = self._states.find(_PREFIX + view.sid)
        if checkpoint is None:
            raise SandboxLost("it had no container, and its files are not stored any more")
        began = time.monotonic()
        wait_s = self._policy.create_wait_s
        try:
            async with asyncio.timeout(wait_s), self._starts.place(view.record):
                sandbox = await self._restored(view, checkpoint)
                container_id = sandbox.container_id
                # If this fails without an answer, the reaper decides from the record whose the container is.
                changes = await self._facts.change(box, deadline, container_id=container_id)
                if not changes:
                    await self._remove(container_id)
                    raise UnknownSession(f"box {view.sid} has ended")
                awake = BoxView(
                    replace(
                        view.record,
                        container_id=container_id,
                        deadline=deadline,
                        touched_at=clock.now(),
                        changes=changes,
                    ),
                    box,
                )
        except TimeoutError:
            raise CapacityError(
                f"box {view.sid} has no container, and there was no room for one within {wait_s:g} s"
                " (SANDBOX_BOX_CREATE_WAIT_S)",
                reason="slots",
            ) from None
        self._log.add(awake.record, box)
        self._states.drop(_PREFIX + view.sid)
        telemetry.WAKE_SECONDS.observe(time.monotonic() - began)
        log.info("box woke", sid=view.sid, seconds=round(time.monotonic() - began, 3))
        return awake

    async def _restored(self, view: BoxView, checkpoint: Checkpoint) -> Sandbox:
        """Create a container with the box's files."""
        box = view.box
        image = await self._bases.of(box, checkpoint.image)
        spec = ContainerSpec(
            image=image.name,
            role=Role.SESSION,
            sid="",
            deadline=datetime.max.replace(tzinfo=UTC),
            network=box.network,
            egress=egress_of(box.allow_out, box.deny_out),
            limits=self._policy.size_like(box, {}),
            with_shell=False,
            setuid=self._policy.may_sudo(box.root or box.image),
        )
        async with self._starts.container(spec, view.record) as sandbox:
            try:
                await self._states.restore(checkpoint, sandbox)
            except CheckpointDamaged as error:
                raise SandboxLost(f"it had no container, and its stored files are damaged: {error}") from error
        return sandbox

    def forget(self, sid: str) -> None:
        """Drop the files of a box that has ended. Idempotent."""
        self._states.drop(_PREFIX + sid)

    async def tidy(self) -> None:
        """Drop the files of boxes that have ended or have a container again. Raises StateUnavailable and others."""
        for name in self._states.names():
            sid = name.removeprefix(_PREFIX)
            if sid == name or sid in self._removing:
                continue
            record = await self._data.session(sid)
            if (record is None or not record.asleep) and sid not in self._removing:
                self._states.drop(name)

    async def _remove(self, container_id: str) -> None:
        with suppress(ServiceError):  # otherwise the reaper finds it
            await self._runtime.remove(container_id)
