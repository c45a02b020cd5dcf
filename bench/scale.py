"""One host with 1 to 200 live sessions: memory, files, idle CPU, and the cost of starts, actions and rewards."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from statistics import mean, median

from bench import containers, machine
from bench.actions import PACED, crowd
from bench.results import Figure, Point, Side, percentile
from bench.samples import NUMBERS, Sample, distinct, sample
from bench.starts import parked
from bench.subject import WITHOUT_POOL, Bench, Served, prepare, served
from bench.trainer import Clock, bash

_SIZES = (1, 50, 200)
"""All costs grow linearly, if at all: a middle one shows it."""
_QUICK_SIZES = (200,)
_GROUP = 8
"""Sessions of one instance, started at once, as by a trainer."""


async def measure(bench: Bench) -> None:
    """Grow, and measure at each size."""
    one = sample()
    sizes = _QUICK_SIZES if bench.quick else _SIZES
    groups = [one.numbered(number) for number in range(NUMBERS)]
    sids: list[str] = []
    await prepare(bench)
    async with served(bench, [one.row, *groups]) as server:
        for size in sorted({*sizes, PACED}):
            await _grow(server, groups, sids, size)
            if size == PACED:
                await _settled(server, bench.of(20, 5))
                await crowd(bench, server, sids)
                continue
            values = await _calls(bench, server, one, sids)
            values |= await _footprint(server)
            if not bench.quick or size == sizes[-1]:
                values |= await _idle(server, bench.of(20, 6))
            bench.run.scale.append(Point(size, values))
            bench.say(f"  {size} sessions: " + ", ".join(f"{name} {value:.4g}" for name, value in values.items()))
        answered = await _answers(server, sids)
    _add(bench, bench.run.scale[-1], answered)


def _add(bench: Bench, last: Point, answered: int) -> None:
    size, values = last.sessions, last.values

    def figure(name: str, key: str, unit: str, note: str = "") -> Figure:
        return Figure(name, unit, Side(values[key], 1) if key in values else None, note=note)

    beside = f"the whole machine: {values['idle_machine_pct']:.2f} %; engine {values['idle_engine_pct']:.2f} %"
    none = "no peer holds sessions in a server"
    bench.add(
        Figure(f"sessions_answering_at_{size}", "", Side(answered, size), note=none),
        figure(f"rss_mb_at_{size}", "server_mb", "MB", f"the server's process; {none}"),
        figure(f"redis_mb_at_{size}", "redis_mb", "MB"),
        figure(f"container_mb_at_{size}", "container_mb", "MB", "mean of the sessions' cgroups"),
        figure(f"open_files_at_{size}", "open_files", ""),
        figure(f"idle_cpu_pct_at_{size}", "idle_pct", "%", f"server and Redis, of one core; {beside}"),
    )


async def _grow(server: Served, groups: Sequence[dict[str, object]], sids: list[str], size: int) -> None:
    while len(sids) < size:
        instance_id = str(groups[len(sids) // _GROUP]["instance_id"])
        count = min(_GROUP - len(sids) % _GROUP, size - len(sids))
        sids += await asyncio.gather(*(server.client.start(instance_id) for _ in range(count)))


async def _calls(bench: Bench, server: Served, one: Sample, sids: Sequence[str]) -> dict[str, float]:
    """Starts, actions and rewards with that many live sessions."""
    took: dict[str, list[float]] = defaultdict(list)
    for number in range(bench.of(5, 1)):
        await parked(server, one.instance_id, 1)
        with Clock() as clock:
            sid = await server.client.start(one.instance_id)
        took["start_warm_ms"].append(clock.ms)
        patch = distinct(one.gold, len(sids) * 100 + number)
        await server.client.act(sid, bash(f"git apply - <<'END_OF_PATCH'\n{patch}END_OF_PATCH"))
        with Clock() as clock:
            await server.client.postprocess(sid)
            await server.client.reward(sid)
        took["grade_total_ms"].append(clock.ms)
        with Clock() as clock:
            await server.client.reward(sid)
        took["reward_cached_ms"].append(clock.ms)
    # on the same engine, by a server without a pool: only there is every start a cold one
    async with served(bench, [one.row], **WITHOUT_POOL) as bare:
        for _ in range(bench.of(5, 1)):
            with Clock() as clock:
                sid = await bare.client.start(one.instance_id)
            took["start_cold_ms"].append(clock.ms)
            await bare.client.end(sid)
    await _settled(server, bench.of(20, 5))
    actions = []
    for number in range(bench.of(1000, 200)):
        with Clock() as clock:
            await server.client.act(sids[number % len(sids)], bash("true"))
        actions.append(clock.ms)
    return {
        **{name: median(values) for name, values in took.items()},
        "action_p50_ms": median(actions),
        "action_p99_ms": percentile(actions, 99),
    }


async def _settled(server: Served, bound_s: int) -> None:
    """Wait until the pool and the reaper have left the engine alone for a second, up to a bound."""
    before: set[str] = set()
    for _ in range(bound_s):
        now = set(server.process.containers())
        if now == before:
            return
        before = now
        await asyncio.sleep(1.0)


async def _footprint(server: Served) -> dict[str, float]:
    redis = machine.redis_pid(server.data_dir)
    values = {
        "server_mb": machine.rss_mb(server.process.pid),
        "open_files": float(machine.open_files(server.process.pid)),
        "engine_mb": sum(machine.rss_mb(pid) for pid in machine.engine_pids()),
    }
    if redis is not None:
        values["redis_mb"] = machine.rss_mb(redis)
    if ids := server.process.containers():
        pids = (await containers.docker("inspect", "-f", "{{.State.Pid}}", *ids)).split()
        with suppress(OSError):  # an unknown cgroup layout: the figure is missing
            values["container_mb"] = mean(machine.container_memory_mb(int(pid)) for pid in pids if pid != "0")
    values["parked"] = float(sum(bucket["parked"] for bucket in (await server.client.get("/v1/pool"))["buckets"]))
    return values


async def _idle(server: Served, seconds: int) -> dict[str, float]:
    """CPU use of idle sessions, in percent of one core."""
    redis = machine.redis_pid(server.data_dir)
    inside = [
        *(
            await containers.docker(
                "ps", "-q", "--no-trunc", "--filter", f"label=sandbox.node={server.process.node_id}"
            )
        ).split()
    ]
    of = {
        "server": [server.process.pid],
        "redis": [redis] if redis is not None else [],
        "engine": machine.engine_pids(),
        "containers": machine.pids_of(inside),
    }
    before = {name: sum(map(machine.cpu_s, pids)) for name, pids in of.items()} | {"machine": machine.busy_s()}
    await asyncio.sleep(seconds)
    after = {name: sum(map(machine.cpu_s, pids)) for name, pids in of.items()} | {"machine": machine.busy_s()}
    pct = {f"idle_{name}_pct": 100 * (after[name] - before[name]) / seconds for name in before}
    return {"idle_pct": pct["idle_server_pct"] + pct["idle_redis_pct"], **pct}


async def _answers(server: Served, sids: Sequence[str]) -> int:
    """Number of sessions that answer an action correctly."""
    said = await asyncio.gather(
        *(server.client.act(sid, bash("echo $((6*7))")) for sid in sids), return_exceptions=True
    )
    return sum(isinstance(text, str) and "42" in text for text in said)
