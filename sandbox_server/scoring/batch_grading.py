"""Grade batches without sessions: code search answers at once, patches through the grading queue."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.catalogue.instances import Instances
from sandbox_server.catalogue.localization.truth import Truth
from sandbox_server.errors import MalformedRequest, ServiceError, Ungradable
from sandbox_server.grading.base import GradeRequest, Reward
from sandbox_server.grading.localization.answers import AUTO, structured_answer
from sandbox_server.grading.localization.base import Events, RewardContext
from sandbox_server.grading.localization.composition import Composition
from sandbox_server.grading.localization.messages import conversation, message_of
from sandbox_server.grading.localization.verdict import verdict_of
from sandbox_server.grading.queue import GradingQueue
from sandbox_server.scoring.answering import roots_of
from sandbox_server.scoring.localizing import Localizing
from sandbox_server.tasks import TaskSet
from sandbox_server.verdicts import Answer, Verdict

_LOOKUPS = 8  # concurrent SQL look-ups, whatever the size of a batch


@dataclass(frozen=True, slots=True)
class GradeItem:
    """One item to grade: an answer for an instance or a truth, or a patch for an instance."""

    instance: int | str | None = None
    """Hash or id."""
    truth: Truth | None = None
    """Overrides the instance's truth."""
    answer: object = None
    """A text, or the arguments of a finishing call; None: see `messages`."""
    messages: Sequence[dict[str, object]] | None = None
    """The chat; gives the answer if `answer` is None, and the events if `events` is not set."""
    events: Events | None = None
    composition: Composition | None = None
    """None: the instance's composition, else the service's."""
    patch: bytes | None = None
    roots: tuple[str, ...] = ()
    written: str = AUTO


@dataclass(frozen=True, slots=True)
class Graded:
    """Result of an item: a verdict with its reward, or an error."""

    verdict: Verdict | None = None
    total: float | None = None
    """None: masked, or an error."""
    composition: str = ""
    error: ServiceError | None = None


class BatchGrading:
    """Grades batches; a bad item does not fail the others."""

    def __init__(
        self,
        instances: Instances,
        queue: GradingQueue,
        localizing: Localizing,
        reward: Reward,
        *,
        wait_s: float,
        most: int,
        permit: Callable[[str], Awaitable[None]],
    ) -> None:
        """`reward` is the reward function for patches; after `wait_s` seconds a patch gets `pending`.

        `permit(account)` raises OverQuota if the account may have no more patches graded now.
        """
        self._permit = permit
        self.most = most
        """Maximum items of one batch."""
        self._looking = asyncio.Semaphore(_LOOKUPS)
        self._instances = instances
        self._queue = queue
        self._localizing = localizing
        self._reward = reward
        self._wait_s = wait_s
        self._under_way = TaskSet("batch gradings")

    async def grade(self, items: Sequence[GradeItem | ServiceError], *, run: str = "", owner: str = "") -> list[Graded]:
        """One result per item, in order; an error in place of an item is returned as its result.

        Raises:
            OverQuota: there is a patch among them, and the run's seconds of gradings are used up. StateUnavailable.
        """
        if any(isinstance(item, GradeItem) and item.patch is not None for item in items):
            await self._permit(owner or run)
        return list(await asyncio.gather(*(self._one(item, run, owner) for item in items)))

    async def close(self) -> None:
        """Cancel the running gradings of patches."""
        await self._under_way.cancel()

    async def _one(self, item: GradeItem | ServiceError, run: str, owner: str) -> Graded:
        if isinstance(item, ServiceError):
            return Graded(error=item)
        try:
            instance = None if item.instance is None else await self._instance(item.instance)
            if item.patch is not None:
                return await self._patch(item.patch, instance, run, owner)
            return await self._scored(item, instance)
        except ServiceError as error:
            return Graded(error=error)

    async def _instance(self, named: int | str) -> TaskInstance:
        async with self._looking:
            return await (self._instances.by_hash(named) if isinstance(named, int) else self._instances.by_id(named))

    async def _scored(self, item: GradeItem, instance: TaskInstance | None) -> Graded:
        task = None if instance is None else instance.localization
        truth = item.truth or (task.truth if task else None)
        if truth is None:
            raise Ungradable(
                "The item has no `patch` to grade, and an answer is scored by its `truth` or by an `instance` with a"
                " localization, of which it has neither."
            )
        if task is not None and instance is not None:
            written = task.answer if item.written == AUTO else item.written
            item = replace(item, written=written, roots=(*roots_of(instance), *item.roots))
        composition = item.composition or self._localizing.composition(instance)
        # in a thread: a batch may have many long answers
        answer, events = await asyncio.to_thread(_read, item)
        context = RewardContext(answer, truth, events, instance.instance_id if instance else "")
        if lacking := composition.lacks(context):
            raise MalformedRequest(lacking)
        score = await asyncio.to_thread(composition.score, context)
        return Graded(verdict_of(score, truth), score.total, composition.name)

    async def _patch(self, patch: bytes, instance: TaskInstance | None, run: str, owner: str) -> Graded:
        if instance is None or instance.localizes:
            raise MalformedRequest("A patch is graded by an instance whose grader takes patches; name one.")
        if instance.carried:
            raise MalformedRequest(
                f"{instance.instance_id} is graded by the files that a session leaves; a diff says nothing of them."
            )
        if instance.grader is None:
            raise Ungradable(f"{instance.instance_id} cannot be graded: {instance.ungradable_because}")
        sid = f"grade-{uuid.uuid4().hex}"
        request = GradeRequest(instance=instance, patch=patch, sid=sid, run=run, owner=owner)
        task = self._under_way.start(self._verdict(request), name=request.sid, awaited=True)
        done, _ = await asyncio.wait({task}, timeout=self._wait_s)
        verdict = task.result() if done else self._queue.pending(request, self._wait_s)
        if verdict.mask:
            return Graded(verdict)
        return Graded(verdict, self._reward(instance, verdict) if verdict.pays else 0.0)

    async def _verdict(self, request: GradeRequest) -> Verdict:
        key = await self._queue.key(request)
        try:
            return await self._queue.verdict(request, key)
        finally:
            await self._queue.written(key)


def _read(item: GradeItem) -> tuple[Answer | None, Events | None]:
    """The answer and its events.

    Raises:
        MalformedRequest: there is neither an answer nor messages.

    """
    if item.messages is not None:
        answer, events = conversation(item.messages, written=item.written, roots=item.roots)
        if item.answer is None:
            return answer, item.events or events
        item = replace(item, events=item.events or events)
    if item.answer is None:
        raise MalformedRequest("There is nothing to grade: give an answer, messages, or a patch.")
    if isinstance(item.answer, str):
        return message_of(item.answer).answer(written=item.written, roots=item.roots), item.events
    return structured_answer(item.answer, roots=item.roots), item.events
