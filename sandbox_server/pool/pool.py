"""Containers for sessions, parked ahead of expected starts or made on demand.

Containers of one spec form a bucket, whatever instances they serve. A start takes a parked container of its bucket, or
the next one to be ready there, whichever start it was made for. `want` registers expected starts. Containers are
parked for them only while no start waits, and removed again when sessions, memory or newer wants need the room.
A container carries the sid of its future session from its creation on. No session of that sid exists until a start
takes the container; until then the process that made it holds it. A server removes its parked containers when it
stops; the reaper removes those of a killed server.
"""

import asyncio
import random
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from operator import itemgetter

from sandbox_server import clock, telemetry
from sandbox_server.errors import ServiceError
from sandbox_server.pool.bucket import BucketView, ParkedContainer, PoolBucket, TakenContainer
from sandbox_server.pool.fair_queue import FairQueue, Ticket
from sandbox_server.pool.host_memory import available_mb
from sandbox_server.sandbox.base import ContainerSpec, Runtime, Sandbox
from sandbox_server.tasks import TaskSet

log = telemetry.logger(__name__)

_LIVENESS_S = 1.0  # a healthy shell answers in a millisecond; if it does not, a start tries the next container
_CLOSE_S = 20.0  # for removals when the server stops; the next server's reaper removes the rest
_TICK_S = 5.0  # between checks of containers' ages and of the host's memory


@dataclass(frozen=True, slots=True)
class PoolConfig:
    """Bounds of parking; times in seconds."""

    size: int
    """Maximum number of parked containers; 0 disables parking."""
    idle_s: float
    """Maximum age of a parked container; older ones are removed."""
    min_free_mb: int
    """Available host memory required for parking; below it, parked containers are removed."""
    together: int
    """Maximum number of containers made ahead at a time."""
    lasts_s: float
    """Longest life of a session, its end included; a container's deadline is its creation + `idle_s` + `lasts_s`."""
    admitted: int = 16
    """Maximum number of starts that wait for their containers to be made; further starts queue fairly by run."""


@dataclass(slots=True)
class _Want:
    bucket: PoolBucket
    count: int
    until: float
    now: bool


class Pool:
    """The containers of this node that are no session yet. `park` makes them ahead; otherwise `take` makes them."""

    def __init__(self, runtime: Runtime, config: PoolConfig, *, room: Callable[[], int]) -> None:
        """`room()`: sessions that may still start, which also bounds the number of parked containers."""
        self._runtime = runtime
        self._config = config
        self._room = room
        self._buckets: dict[Hashable, PoolBucket] = {}
        self._wants: OrderedDict[str, _Want] = OrderedDict()
        self.queue = FairQueue(config.admitted)
        """Starts for which a container is being made, and starts queued for that."""
        self._ahead = 0
        self._tasks = TaskSet("pool")
        self._changed = asyncio.Event()
        self._closed = False
        self._random = random.SystemRandom()

    # ---- for starts

    async def take(self, spec: ContainerSpec, ticket: Ticket | None = None) -> TakenContainer:
        """Take a container of `spec`, ready to run actions; the pool sets its sid and deadline.

        A parked container, or one being made that no start waits for, is taken without queueing. Otherwise a container
        is made when it is the run's turn. If the caller is cancelled in the queue, `ticket` has its last position.

        Raises:
            ImageUnavailable, EngineUnavailable: the container could not be made.
        """
        if taken := await self._parked(spec):
            return taken
        bucket = self._bucket(spec)
        if len(bucket.making) > len(bucket.waiters):
            telemetry.POOL_TAKES.labels("joined").inc()
            return await self._wait(bucket)
        ticket = ticket or Ticket("")
        await self.queue.acquire(ticket)
        try:
            if taken := await self._parked(spec):  # parked during the wait
                return taken
            telemetry.POOL_TAKES.labels("cold").inc()
            return await self._wait(self._bucket(spec))
        finally:
            self.queue.release(ticket.run)

    async def _parked(self, spec: ContainerSpec) -> TakenContainer | None:
        """The next healthy parked container; unhealthy and too old ones are removed."""
        while (bucket := self._bucket(spec)).parked:
            parked = bucket.parked.popleft()
            self._show()
            try:
                young = time.monotonic() - parked.made_at < self._config.idle_s
                well = young and await (self._answers if spec.with_shell else self._runs)(parked.sandbox)
            except BaseException:  # cancelled: the container is in no bucket any more
                self._remove(parked.sandbox)
                raise
            if well:
                telemetry.POOL_TAKES.labels("warm").inc()
                return TakenContainer(parked.sid, parked.sandbox, True)
            telemetry.POOL_TAKES.labels("dead").inc()
            self._remove(parked.sandbox)
        return None

    async def _wait(self, bucket: PoolBucket) -> TakenContainer:
        """Wait for the next container made in the bucket; begin one if fewer are being made than starts wait."""
        waiter: asyncio.Future[TakenContainer] = asyncio.get_running_loop().create_future()
        bucket.waiters.append(waiter)
        if len(bucket.making) < len(bucket.waiters):
            self._begin(bucket, ahead=False)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and not waiter.exception():
                sid, sandbox, _ = waiter.result()
                self._place(bucket.spec, ParkedContainer(sid, sandbox, time.monotonic()))
            raise
        finally:
            if waiter in bucket.waiters:
                bucket.waiters.remove(waiter)
            self._changed.set()

    def want(self, name: str, spec: ContainerSpec, count: int, *, for_s: float, now: bool) -> None:
        """Expect `count` starts under `name` within `for_s` seconds; replaces the previous want of that name.

        `now`: the starts may come at any moment, so they take precedence over wants for later. Containers with
        services are not parked: each would hold the memory of several.
        """
        self._wants.pop(name, None)
        if count > 0 and self._config.size and not spec.services:
            self._wants[name] = _Want(self._bucket(spec), count, time.monotonic() + for_s, now)
        self._changed.set()

    @property
    def sids(self) -> frozenset[str]:
        """Sids of the containers that are parked or being made."""
        return frozenset(sid for bucket in self._buckets.values() for sid in bucket.sids())

    @property
    def size(self) -> int:
        """Maximum number of parked containers."""
        return self._config.size

    def view(self) -> list[BucketView]:
        """Every kind of container that is parked, being made or wanted."""
        names: dict[int, list[str]] = {}
        wanted: Counter[int] = Counter()
        for name, want in self._wants.items():
            names.setdefault(id(want.bucket), []).append(name)
            wanted[id(want.bucket)] += want.count
        return [
            BucketView(
                image=bucket.spec.image,
                parked=len(bucket.parked),
                making=len(bucket.making),
                waiting=len(bucket.waiters),
                wanted=wanted[id(bucket)],
                instances=tuple(names.get(id(bucket), ())),
                sids=tuple(bucket.sids()),
            )
            for bucket in self._buckets.values()
            if bucket.parked or bucket.making or bucket.waiters or wanted[id(bucket)]
        ]

    # ---- parking

    async def park(self) -> None:
        """Wait for a change, at most `_TICK_S`, then park wanted containers and remove surplus ones."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_TICK_S):
                await self._changed.wait()
        self._changed.clear()
        self._tidy()
        self._park()

    async def close(self) -> None:
        """Stop, and remove the containers that are parked or being made."""
        self._closed = True
        ends = asyncio.get_running_loop().time() + _CLOSE_S
        with suppress(TimeoutError):
            async with asyncio.timeout_at(ends):
                await self._tasks.cancel()
        for bucket in self._buckets.values():
            while bucket.parked:
                self._remove(bucket.parked.popleft().sandbox)
        await self._tasks.settle(ends - asyncio.get_running_loop().time())

    def _tidy(self) -> None:
        """Remove expired wants, too old containers, and parked containers that sessions or memory need to give way."""
        now = time.monotonic()
        for name in [name for name, want in self._wants.items() if want.until < now]:
            del self._wants[name]
        for bucket in self._buckets.values():
            while bucket.parked and now - bucket.parked[0].made_at > self._config.idle_s:
                self._remove(bucket.parked.popleft().sandbox)
        parked = self._count()
        if parked and (parked > max(0, self._room()) or self._memory_is_short()):
            self._give_up_one([*self._surplus(), *self._buckets.values()])
            self._changed.set()  # more may have to be removed
        wanted = {id(want.bucket) for want in self._wants.values()}
        idle = [
            key
            for key, bucket in self._buckets.items()
            if not (bucket.parked or bucket.making or bucket.waiters or id(bucket) in wanted)
        ]
        for key in idle:
            del self._buckets[key]
        self._show()

    def _park(self) -> None:
        """Begin to make missing wanted containers, within the bounds."""
        for bucket in self._missing():
            if self._ahead >= self._config.together or self._someone_waits() or self._closed:
                return
            present = self._count() + self._ahead
            if present >= self._room() or self._memory_is_short():
                return
            if present >= self._config.size and not self._give_up_one(self._surplus()):
                return
            self._begin(bucket, ahead=True)

    def _missing(self) -> Iterator[PoolBucket]:
        """The bucket of each missing wanted container, in the order in which they are to be made.

        First come all containers wanted now, then one for each other want, then a second one for each, and so on,
        because the number of starts of an announced instance is a guess.
        """
        present = Counter({id(bucket): len(bucket.parked) + len(bucket.making) for bucket in self._buckets.values()})
        short: list[tuple[int, PoolBucket]] = []
        # this many wants fill the pool, even if each gets only one container
        for want in islice(sorted(self._wants.values(), key=lambda want: not want.now), self._config.size):
            there = min(want.count, present[id(want.bucket)])
            present[id(want.bucket)] -= there
            short += [(0 if want.now else number, want.bucket) for number in range(there, want.count)]
        short.sort(key=itemgetter(0))  # stable: older wants first
        for _, bucket in short:
            yield bucket

    def _surplus(self) -> list[PoolBucket]:
        """Buckets with more parked containers than wanted."""
        wanted: Counter[int] = Counter()
        for want in self._wants.values():
            wanted[id(want.bucket)] += want.count
        return [bucket for bucket in self._buckets.values() if len(bucket.parked) > wanted[id(bucket)]]

    def _give_up_one(self, buckets: list[PoolBucket]) -> bool:
        """Remove the oldest parked container of the first bucket that has one; False if none has."""
        for bucket in buckets:
            if bucket.parked:
                self._remove(bucket.parked.popleft().sandbox)
                return True
        return False

    def _someone_waits(self) -> bool:
        return self.queue.waiting > 0 or any(bucket.waiters for bucket in self._buckets.values())

    def _memory_is_short(self) -> bool:
        free_mb = available_mb()
        return free_mb is not None and free_mb < self._config.min_free_mb

    # ---- one container

    def _begin(self, bucket: PoolBucket, *, ahead: bool) -> None:
        sid = str(self._random.randrange(1, 2**53))
        bucket.making.add(sid)
        self._ahead += ahead
        self._tasks.start(self._make(bucket, sid, ahead))

    async def _make(self, bucket: PoolBucket, sid: str, ahead: bool) -> None:
        ends = datetime.fromtimestamp(clock.now() + self._config.idle_s + self._config.lasts_s, UTC)
        try:
            sandbox = await self._runtime.create(replace(bucket.spec, sid=sid, deadline=ends))
        except BaseException as error:
            self._failed(bucket, error)
            if not isinstance(error, ServiceError):
                raise
        else:
            for stage, seconds in sandbox.boot_s.items():
                telemetry.START_SECONDS.labels(stage).observe(seconds)
            self._place(bucket.spec, ParkedContainer(sid, sandbox, time.monotonic()))
        finally:
            bucket.making.discard(sid)
            self._ahead -= ahead
            self._changed.set()

    def _place(self, spec: ContainerSpec, made: ParkedContainer) -> None:
        """Give the container to the start that waits longest, else park it, else remove it."""
        bucket = self._bucket(spec)  # `_tidy` may have removed an idle bucket meanwhile
        while bucket.waiters:
            waiter = bucket.waiters.popleft()
            if not waiter.done():
                waiter.set_result(TakenContainer(made.sid, made.sandbox, False))
                return
        if self._closed or bucket.spec.services or self._count() >= min(self._config.size, self._room()):
            self._remove(made.sandbox)
        else:
            bucket.parked.append(made)
            self._show()

    def _failed(self, bucket: PoolBucket, error: BaseException) -> None:
        """Pass the error to the start that waits longest. Drop the bucket's wants, which would fail again and again."""
        for name in [name for name, want in self._wants.items() if want.bucket is bucket]:
            del self._wants[name]
        while bucket.waiters:
            waiter = bucket.waiters.popleft()
            if not waiter.done():
                if isinstance(error, asyncio.CancelledError):
                    waiter.cancel()
                else:
                    waiter.set_exception(error)
                return
        if isinstance(error, ServiceError):
            log.warning("container not parked", image=bucket.spec.image, code=error.code, error=error.detail)

    async def _answers(self, sandbox: Sandbox) -> bool:
        try:
            async with asyncio.timeout(_LIVENESS_S):
                return await sandbox.shell.answers(within_s=_LIVENESS_S)
        except (TimeoutError, ServiceError):
            return False

    async def _runs(self, sandbox: Sandbox) -> bool:
        """Like `_answers`, for a container without a shell."""
        try:
            async with asyncio.timeout(_LIVENESS_S):
                result = await sandbox.exec(["true"], timeout_s=_LIVENESS_S)
        except (TimeoutError, ServiceError):
            return False
        return result.exit_code == 0

    def _remove(self, sandbox: Sandbox) -> None:
        self._show()

        async def remove() -> None:
            try:
                await self._runtime.remove(sandbox.container_id)
            except ServiceError as e:
                log.warning("parked container left to the reaper", container_id=sandbox.container_id[:12], code=e.code)

        self._tasks.start(remove())

    def _bucket(self, spec: ContainerSpec) -> PoolBucket:
        of_image = (
            spec.image,
            spec.workdir,
            tuple(sorted(spec.env.items())),
            spec.activate,
            spec.with_shell,
            spec.user,
        )
        key = (*of_image, spec.network, spec.egress, spec.limits, spec.setuid, spec.services, spec.awaits, spec.health)
        return self._buckets.setdefault(key, PoolBucket(spec))

    def _count(self) -> int:
        return sum(len(bucket.parked) for bucket in self._buckets.values())

    def _show(self) -> None:
        telemetry.POOL_PARKED.set(self._count())
