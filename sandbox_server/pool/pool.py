"""Containers for sessions: parked ahead of the starts that are expected, else made when a start asks.

What is alike is kept together: containers of one spec are a bucket, whatever instances they serve. A start takes a
parked container of its bucket, or the next one that is ready there, whoever it was begun for. `want` says what is
expected; parking for it begins only while no start waits, and gives way again to sessions, memory and newer wishes.
Each container has the sid of the session that it will be from its creation on; until then no session of that sid
exists, and the process that parked it holds it. A server that ends takes its parked containers away; one that was
killed leaves them to the reaper.
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
from sandbox_server.pool.bucket import BucketView, Parked, PoolBucket, Taken
from sandbox_server.pool.fair import FairQueue, Ticket
from sandbox_server.pool.host_memory import available_mb
from sandbox_server.sandbox.base import ContainerSpec, Runtime, Sandbox, ShellOutcome
from sandbox_server.tasks import TaskSet

log = telemetry.logger(__name__)

_LIVENESS_S = 1.0  # a shell that is well answers in a millisecond; a start that meets a sick one goes on to the next
_CLOSE_S = 20.0  # for the removals when the server stops; what a slow engine has not done then is the next one's
_TICK_S = 5.0  # between looks at ages and at the host's memory


@dataclass(frozen=True, slots=True)
class PoolConfig:
    """Bounds of parking; times in seconds."""

    size: int
    """Parked containers at most; 0: none."""
    idle_s: float
    """A parked container older than this goes."""
    min_free_mb: int
    """Memory that must be available on the host for parking to go on; below it parked containers go."""
    together: int
    """Containers made ahead at a time."""
    lasts_s: float
    """Longest life of a session and of its end; with `idle_s` it makes up the container's deadline."""
    admitted: int = 16
    """Starts that containers are made for at a time; among the others the runs share (`pool.fair`)."""


@dataclass(slots=True)
class _Want:
    bucket: PoolBucket
    count: int
    until: float
    now: bool


class Pool:
    """The containers of this node that are no session yet. `run` parks; `take` works without it too."""

    def __init__(self, runtime: Runtime, config: PoolConfig, *, room: Callable[[], int]) -> None:
        """`room()`: sessions that may still start; more containers than that are not parked."""
        self._runtime = runtime
        self._config = config
        self._room = room
        self._buckets: dict[Hashable, PoolBucket] = {}
        self._wants: OrderedDict[str, _Want] = OrderedDict()
        self.queue = FairQueue(config.admitted)
        """Starts for which a container is being made, and those that wait for their turn."""
        self._ahead = 0
        self._tasks = TaskSet("pool")
        self._changed = asyncio.Event()
        self._closed = False
        self._random = random.SystemRandom()

    # ---- what starts ask

    async def take(self, spec: ContainerSpec, ticket: Ticket | None = None) -> Taken:
        """A container of `spec` (its sid and deadline are the pool's to say), ready to run actions.

        One that is parked, or is being made and nobody's yet, waits for nothing; another one is made when it is the
        turn of the start's run, and `ticket` tells where it stood when the caller was cancelled before.

        Raises:
            ImageUnavailable, EngineUnavailable: it could not be made. When the caller is cancelled, nothing is lost.
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
            if taken := await self._parked(spec):  # meanwhile
                return taken
            telemetry.POOL_TAKES.labels("cold").inc()
            return await self._wait(self._bucket(spec))
        finally:
            self.queue.release(ticket.run)

    async def _parked(self, spec: ContainerSpec) -> Taken | None:
        """The next parked container that is well."""
        while (bucket := self._bucket(spec)).parked:
            parked = bucket.parked.popleft()
            self._show()
            try:
                young = time.monotonic() - parked.made_at < self._config.idle_s
                well = young and await (self._answers if spec.with_shell else self._runs)(parked.sandbox)
            except BaseException:  # cancelled: it is in no bucket any more
                self._remove(parked.sandbox)
                raise
            if well:
                telemetry.POOL_TAKES.labels("warm").inc()
                return Taken(parked.sid, parked.sandbox, True)
            telemetry.POOL_TAKES.labels("dead").inc()
            self._remove(parked.sandbox)
        return None

    async def _wait(self, bucket: PoolBucket) -> Taken:
        """The next container that is made in the bucket; one more is begun where fewer are than wait."""
        waiter: asyncio.Future[Taken] = asyncio.get_running_loop().create_future()
        bucket.waiters.append(waiter)
        if len(bucket.making) < len(bucket.waiters):
            self._begin(bucket, ahead=False)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and not waiter.exception():
                sid, sandbox, _ = waiter.result()
                self._place(bucket.spec, Parked(sid, sandbox, time.monotonic()))
            raise
        finally:
            if waiter in bucket.waiters:
                bucket.waiters.remove(waiter)
            self._changed.set()

    def want(self, name: str, spec: ContainerSpec, count: int, *, for_s: float, now: bool) -> None:
        """Expect `count` starts under `name` within `for_s` seconds; in place of what was expected under it before.

        `now`: they may come at any moment, so before what others will want later.
        """
        self._wants.pop(name, None)
        if count > 0 and self._config.size:
            self._wants[name] = _Want(self._bucket(spec), count, time.monotonic() + for_s, now)
        self._changed.set()

    @property
    def sids(self) -> frozenset[str]:
        """Those of the containers that are parked or being made."""
        return frozenset(sid for bucket in self._buckets.values() for sid in bucket.sids())

    @property
    def size(self) -> int:
        """Parked containers at most."""
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
        """Wait for a change, or a second, then park what is wanted."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_TICK_S):
                await self._changed.wait()
        self._changed.clear()
        self._tidy()
        self._park()

    async def close(self) -> None:
        """Stop, and remove what is parked or being made."""
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
        """Forget wishes that were not heard of again, remove what is too old or in the way."""
        now = time.monotonic()
        for name in [name for name, want in self._wants.items() if want.until < now]:
            del self._wants[name]
        for bucket in self._buckets.values():
            while bucket.parked and now - bucket.parked[0].made_at > self._config.idle_s:
                self._remove(bucket.parked.popleft().sandbox)
        parked = self._count()
        if parked and (parked > max(0, self._room()) or self._memory_is_short()):
            self._give_up_one([*self._surplus(), *self._buckets.values()])
            self._changed.set()  # there may be more to give up
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
        """Begin to make what is wanted and not there, as far as the bounds allow."""
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
        """Buckets with less than is wanted of them, once for each container.

        All of what is wanted now comes first, then one for each wish, then a second one, and so on: whether as many
        starts of an instance will come as it was announced with is a guess.
        """
        present = Counter({id(bucket): len(bucket.parked) + len(bucket.making) for bucket in self._buckets.values()})
        short: list[tuple[int, PoolBucket]] = []
        # so many wishes fill the pool, even when each gets but one
        for want in islice(sorted(self._wants.values(), key=lambda want: not want.now), self._config.size):
            there = min(want.count, present[id(want.bucket)])
            present[id(want.bucket)] -= there
            short += [(0 if want.now else number, want.bucket) for number in range(there, want.count)]
        short.sort(key=itemgetter(0))  # stable: the first wish first
        for _, bucket in short:
            yield bucket

    def _surplus(self) -> list[PoolBucket]:
        """Buckets in which more is parked than anyone wants."""
        wanted: Counter[int] = Counter()
        for want in self._wants.values():
            wanted[id(want.bucket)] += want.count
        return [bucket for bucket in self._buckets.values() if len(bucket.parked) > wanted[id(bucket)]]

    def _give_up_one(self, buckets: list[PoolBucket]) -> bool:
        """Remove the oldest container of the first bucket that has any; False: none has."""
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
            self._place(bucket.spec, Parked(sid, sandbox, time.monotonic()))
        finally:
            bucket.making.discard(sid)
            self._ahead -= ahead
            self._changed.set()

    def _place(self, spec: ContainerSpec, made: Parked) -> None:
        """To whoever waits, else into the bucket, else away."""
        bucket = self._bucket(spec)  # an idle one may have been cleared away meanwhile
        while bucket.waiters:
            waiter = bucket.waiters.popleft()
            if not waiter.done():
                waiter.set_result(Taken(made.sid, made.sandbox, False))
                return
        if self._closed or self._count() >= min(self._config.size, self._room()):
            self._remove(made.sandbox)
        else:
            bucket.parked.append(made)
            self._show()

    def _failed(self, bucket: PoolBucket, error: BaseException) -> None:
        """Whoever waits longest learns of it; wishes for this kind end with it, else they would fail for ever."""
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
                result = await sandbox.shell.run(":", timeout_s=_LIVENESS_S)
        except (TimeoutError, ServiceError):
            return False
        return result.outcome is ShellOutcome.FINISHED and not result.shell_replaced

    async def _runs(self, sandbox: Sandbox) -> bool:
        """As `_answers`, of one without a shell."""
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
        of_image = (spec.image, spec.workdir, tuple(sorted(spec.env.items())), spec.activate, spec.with_shell)
        key = (*of_image, spec.network, spec.egress, spec.limits)
        return self._buckets.setdefault(key, PoolBucket(spec))

    def _count(self) -> int:
        return sum(len(bucket.parked) for bucket in self._buckets.values())

    def _show(self) -> None:
        telemetry.POOL_PARKED.set(self._count())
