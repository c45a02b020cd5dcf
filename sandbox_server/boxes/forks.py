"""Copies of boxes: `n` new boxes that start with the files of a running box, without its programs."""

import asyncio
import secrets
from collections.abc import Sequence

from sandbox_server import telemetry
from sandbox_server.boxes.boxes import Boxes, BoxView
from sandbox_server.boxes.creation import BoxCreation
from sandbox_server.boxes.planning import BoxRequest
from sandbox_server.boxes.snapshots import Source
from sandbox_server.boxes.states import BoxStates
from sandbox_server.errors import ServiceError, UnknownSession
from sandbox_server.records import BoxKind, OnTimeout
from sandbox_server.sessions.ending import SessionEnder
from sandbox_server.state.boxes import BoxFacts, CreateKey
from sandbox_server.tasks import TaskSet

log = telemetry.logger(__name__)

_PREFIX = "fork-"  # of the names of their checkpoints, which are permanent while copies are made
_CLOSE_S = 5.0


class BoxForks:
    """Makes copies of boxes of this node, on this node."""

    def __init__(
        self, boxes: Boxes, creation: BoxCreation, states: BoxStates, facts: BoxFacts, ending: SessionEnder
    ) -> None:
        self._boxes = boxes
        self._creation = creation
        self._states = states
        self._facts = facts
        self._ending = ending
        self._giving_back = TaskSet("copies of boxes given back")

    async def fork(
        self, sid: str, n: int, *, timeout_s: float | None = None, idempotency_key: str = ""
    ) -> list[BoxView | ServiceError]:
        """Create `n` copies with a lifetime of `timeout_s` seconds (None: SANDBOX_BOX_DEFAULT_S); each is a box or an
        error.

        A copy has the image, files, environment, metadata, limits, network and API key of the box. A repeated request
        with the same `idempotency_key` returns the boxes of the first one. Cancelling the call leaves nothing behind.

        Raises:
            UnknownSession, OwnedElsewhere, SandboxPaused. MalformedRequest: the lifetime. NotForkable: the contents of
            the box prevent it. SandboxLost, InfrastructureError.
        """
        self._boxes.policy.life_s(timeout_s)
        view = await self._boxes.get(sid)
        await self._boxes.here(view)
        name = f"{view.box.owner}\0fork\0{sid}\0{idempotency_key}"
        key = CreateKey(name, f"{n} {timeout_s}") if idempotency_key else None
        if key and (made := await self._facts.created_by(key)) is not None:
            return [await self._known(copy) for copy in made.split()]
        stored = _PREFIX + secrets.token_hex(10)
        checkpoint = await self._states.take(await self._boxes.sandbox(view), stored)
        asked = _as(view, timeout_s)
        copies = [asyncio.create_task(self._creation.of(asked, Source(view.box, checkpoint))) for _ in range(n)]
        try:
            results = await asyncio.gather(*copies, return_exceptions=True)
        except asyncio.CancelledError:
            self._giving_back.start(self._give_back(copies))
            raise
        finally:
            self._states.drop(stored)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, ServiceError):
                self._giving_back.start(self._give_back(copies))
                raise result
            telemetry.BOX_FORKS.labels(result.code if isinstance(result, ServiceError) else "ok").inc()
        told = [result for result in results if isinstance(result, BoxView | ServiceError)]
        sids = " ".join(one.sid for one in told if isinstance(one, BoxView))
        try:
            first = await self._facts.remember(key, sids) if key else sids
        except BaseException:
            self._giving_back.start(self._give_back(copies))
            raise
        if first != sids:  # a concurrent request was faster
            self._giving_back.start(self._give_back(copies))
            return [await self._known(copy) for copy in first.split()]
        log.info("box copied", sid=sid, copies=sum(isinstance(one, BoxView) for one in told), of=n)
        return told

    async def _known(self, sid: str) -> BoxView | ServiceError:
        try:
            return await self._boxes.get(sid)
        except UnknownSession as error:
            return error

    def tidy(self) -> None:
        """Remove the checkpoints of copies that a killed server was making."""
        for name in self._states.names():
            if name.startswith(_PREFIX):
                self._states.drop(name)

    async def close(self) -> None:
        """Wait a few seconds for unwanted copies to end."""
        await self._giving_back.settle(_CLOSE_S)

    async def _give_back(self, copies: Sequence[asyncio.Task[BoxView]]) -> None:
        for made in await asyncio.gather(*copies, return_exceptions=True):
            if isinstance(made, BoxView):
                try:
                    await self._ending.end(made.sid, "client_gone")
                except ServiceError as error:
                    log.warning("an unwanted copy stays until its deadline", sid=made.sid, error=error.detail)


def _as(view: BoxView, timeout_s: float | None) -> BoxRequest:
    """The request that would create a box like this one."""
    box = view.box
    return BoxRequest(
        BoxKind(box.kind),
        template=box.template,
        metadata=box.metadata,
        user=box.user,
        timeout_s=timeout_s,
        on_timeout=OnTimeout(box.on_timeout),
        timeout_files=box.timeout_files,
        auto_resume=box.auto_resume,
        internet=box.network != "none",
        allow_out=box.allow_out,
        deny_out=box.deny_out,
        private=bool(box.traffic_token),
        host_mask=box.host_mask,
        owner=box.owner,
        run=view.record.run,
    )
