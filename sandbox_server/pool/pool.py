"""Containers for sessions: parked ahead of the starts that are expected, else made when a start asks.

What is alike is kept together: containers of one spec are a shelf, whatever instances they serve. A start takes a
parked container of its shelf, or the next one that is ready there, whoever it was begun for. `want` says what is
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
from sandbox_server.pool.fair import FairLine, Place
from sandbox_server.pool.host_memory import available_mb
from sandbox_server.pool.shelf import Parked, Shelf, ShelfView, Taken
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
    shelf: Shelf
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
        self._shelves: dict[Hashable, Shelf] = {}
        self._wants: OrderedDict[str, _Want] = OrderedDict()
        self.line = FairLine(config.admitted)
        """Starts for which a container is being made, and those that wait for their turn."""
        self._ahead = 0
        self._tasks = TaskSet("pool")
        self._changed = asyncio.Event()
        self._closed = False
        self._random = random.SystemRandom()

    # ---- what starts ask

    async def take(self, spec: ContainerSpec, place: Place | None = None) -> Taken:
        """A container of `spec` (its sid and deadline are the pool's to say), ready to run actions.

        One that is parked, or is being made and nobody's yet, waits for nothing; another one is made when it is the
        turn of the start's run, and `place` tells where it stood when the caller was cancelled before.

        Raises:
            ImageUnavailable, EngineUnavailable: it could not be made. When the caller is cancelled, nothing is lost.
        """
        if taken := await self._parked(spec):
            return taken
        shelf = self._shelf(spec)
        if len(shelf.making) > len(shelf.waiters):
            telemetry.POOL_TAKES.labels("joined").inc()
            return await self._wait(shelf)
        place = place or Place("")
        await self.line.acquire(place)
        try:
            if taken := await self._parked(spec):  # meanwhile
                return taken
            telemetry.POOL_TAKES.labels("cold").inc()
            return await self._wait(self._shelf(spec))
        finally:
            self.line.release(place.run)

    async def _parked(self, spec: ContainerSpec) -> Taken | None:
        """The next parked container that is well."""
        while (shelf := self._shelf(spec)).parked:
            parked = shelf.parked.popleft()
            self._show()
            try:
                young = time.monotonic() - parked.made_at < self._config.idle_s
                well = young and await (self._answers if spec.with_shell else self._runs)(parked.sandbox)
            except BaseException:  # cancelled: it is on no shelf any more
                self._remove(parked.sandbox)
                raise
            if well:
                telemetry.POOL_TAKES.labels("warm").inc()
                return Taken(parked.sid, parked.sandbox, True)
            telemetry.POOL_TAKES.labels("dead").inc()
            self._remove(parked.sandbox)
        return None

    async def _wait(self, shelf: Shelf) -> Taken:
        """The next container that is made on the shelf; one more is begun where fewer are than wait."""
        waiter: asyncio.Future[Taken] = asyncio.get_running_loop().create_future()
        shelf.waiters.append(waiter)
        if len(shelf.making) < len(shelf.waiters):
            self._begin(shelf, ahead=False)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and not waiter.exception():
                sid, sandbox, _ = waiter.result()
                self._place(shelf.spec, Parked(sid, sandbox, time.monotonic()))
            raise
        finally:
            if waiter in shelf.waiters:
                shelf.waiters.remove(waiter)
            self._changed.set()

    def want(self, name: str, spec: ContainerSpec, count: int, *, for_s: float, now: bool) -> None:
        """Expect `count` starts under `name` within `for_s` seconds; in place of what was expected under it before.

        `now`: they may come at any moment, so before what others will want later.
        """
        self._wants.pop(name, None)
        if count > 0 and self._config.size:
            self._wants[name] = _Want(self._shelf(spec), count, time.monotonic() + for_s, now)
        self._changed.set()

    @property
    def sids(self) -> frozenset[str]:
        """Those of the containers that are parked or being made."""
        return frozenset(sid for shelf in self._shelves.values() for sid in shelf.sids())

    def view(self) -> list[ShelfView]:
        """Every kind of container that is parked, being made or wanted."""
        names: dict[int, list[str]] = {}
        wanted: Counter[int] = Counter()
        for name, want in self._wants.items():
            names.setdefault(id(want.shelf), []).append(name)
            wanted[id(want.shelf)] += want.count
        return [
            ShelfView(
                image=shelf.spec.image,
                parked=len(shelf.parked),
                making=len(shelf.making),
                waiting=len(shelf.waiters),
                wanted=wanted[id(shelf)],
                instances=tuple(names.get(id(shelf), ())),
                sids=tuple(shelf.sids()),
            )
            for shelf in self._shelves.values()
            if shelf.parked or shelf.making or shelf.waiters or wanted[id(shelf)]
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
        for shelf in self._shelves.values():
            while shelf.parked:
                self._remove(shelf.parked.popleft().sandbox)
        await self._tasks.settle(ends - asyncio.get_running_loop().time())

    def _tidy(self) -> None:
        """Forget wishes that were not heard of again, remove what is too old or in the way."""
        now = time.monotonic()
        for name in [name for name, want in self._wants.items() if want.until < now]:
            del self._wants[name]
        for shelf in self._shelves.values():
            while shelf.parked and now - shelf.parked[0].made_at > self._config.idle_s:
                self._remove(shelf.parked.popleft().sandbox)
        parked = self._count()
        if parked and (parked > max(0, self._room()) or self._memory_is_short()):
            self._give_up_one([*self._surplus(), *self._shelves.values()])
            self._changed.set()  # there may be more to give up
        wanted = {id(want.shelf) for want in self._wants.values()}
        idle = [
            key
            for key, shelf in self._shelves.items()
            if not (shelf.parked or shelf.making or shelf.waiters or id(shelf) in wanted)
        ]
        for key in idle:
            del self._shelves[key]
        self._show()

    def _park(self) -> None:
        """Begin to make what is wanted and not there, as far as the bounds allow."""
        for shelf in self._missing():
            if self._ahead >= self._config.together or self._someone_waits() or self._closed:
                return
            present = self._count() + self._ahead
            if present >= self._room() or self._memory_is_short():
                return
            if present >= self._config.size and not self._give_up_one(self._surplus()):
                return
            self._begin(shelf, ahead=True)

    def _missing(self) -> Iterator[Shelf]:
        """Shelves with less than is wanted of them, once for each container.

        All of what is wanted now comes first, then one for each wish, then a second one, and so on: whether as many
        starts of an instance will come as it was announced with is a guess.
        """
        present = Counter({id(shelf): len(shelf.parked) + len(shelf.making) for shelf in self._shelves.values()})
        short: list[tuple[int, Shelf]] = []
        # so many wishes fill the pool, even when each gets but one
        for want in islice(sorted(self._wants.values(), key=lambda want: not want.now), self._config.size):
            there = min(want.count, present[id(want.shelf)])
            present[id(want.shelf)] -= there
            short += [(0 if want.now else number, want.shelf) for number in range(there, want.count)]
        short.sort(key=itemgetter(0))  # stable: the first wish first
        for _, shelf in short:
            yield shelf

    def _surplus(self) -> list[Shelf]:
        """Shelves on which more is parked than anyone wants."""
        wanted: Counter[int] = Counter()
        for want in self._wants.values():
            wanted[id(want.shelf)] += want.count
        return [shelf for shelf in self._shelves.values() if len(shelf.parked) > wanted[id(shelf)]]

    def _give_up_one(self, shelves: list[Shelf]) -> bool:
        """Remove the oldest container of the first shelf that has any; False: none has."""
        for shelf in shelves:
            if shelf.parked:
                self._remove(shelf.parked.popleft().sandbox)
                return True
        return False

    def _someone_waits(self) -> bool:
        return self.line.waiting > 0 or any(shelf.waiters for shelf in self._shelves.values())

    def _memory_is_short(self) -> bool:
        free_mb = available_mb()
        return free_mb is not None and free_mb < self._config.min_free_mb

    # ---- one container

    def _begin(self, shelf: Shelf, *, ahead: bool) -> None:
        sid = str(self._random.randrange(1, 2**53))
        shelf.making.add(sid)
        self._ahead += ahead
        self._tasks.start(self._make(shelf, sid, ahead))

    async def _make(self, shelf: Shelf, sid: str, ahead: bool) -> None:
        ends = datetime.fromtimestamp(clock.now() + self._config.idle_s + self._config.lasts_s, UTC)
        try:
            sandbox = await self._runtime.create(replace(shelf.spec, sid=sid, deadline=ends))
        except BaseException as error:
            self._failed(shelf, error)
            if not isinstance(error, ServiceError):
                raise
        else:
            for stage, seconds in sandbox.boot_s.items():
                telemetry.START_SECONDS.labels(stage).observe(seconds)
            self._place(shelf.spec, Parked(sid, sandbox, time.monotonic()))
        finally:
            shelf.making.discard(sid)
            self._ahead -= ahead
            self._changed.set()

    def _place(self, spec: ContainerSpec, made: Parked) -> None:
        """To whoever waits, else onto the shelf, else away."""
        shelf = self._shelf(spec)  # an idle one may have been cleared away meanwhile
        while shelf.waiters:
            waiter = shelf.waiters.popleft()
            if not waiter.done():
                waiter.set_result(Taken(made.sid, made.sandbox, False))
                return
        if self._closed or self._count() >= min(self._config.size, self._room()):
            self._remove(made.sandbox)
        else:
            shelf.parked.append(made)
            self._show()

    def _failed(self, shelf: Shelf, error: BaseException) -> None:
        """Whoever waits longest learns of it; wishes for this kind end with it, else they would fail for ever."""
        for name in [name for name, want in self._wants.items() if want.shelf is shelf]:
            del self._wants[name]
        while shelf.waiters:
            waiter = shelf.waiters.popleft()
            if not waiter.done():
                if isinstance(error, asyncio.CancelledError):
                    waiter.cancel()
                else:
                    waiter.set_exception(error)
                return
        if isinstance(error, ServiceError):
            log.warning("container not parked", image=shelf.spec.image, code=error.code, error=error.detail)

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

    def _shelf(self, spec: ContainerSpec) -> Shelf:
        of_image = (spec.image, spec.workdir, tuple(sorted(spec.env.items())), spec.activate, spec.with_shell)
        key = (*of_image, spec.network, spec.egress, spec.limits)
        return self._shelves.setdefault(key, Shelf(spec))

    def _count(self) -> int:
        return sum(len(shelf.parked) for shelf in self._shelves.values())

    def _show(self) -> None:
        telemetry.POOL_PARKED.set(self._count())
