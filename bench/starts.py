"""Starts: from the pool, without a pool, and sixteen of one instance at once."""

import asyncio
import time
from contextlib import AsyncExitStack
from statistics import median
from typing import Any

from bench import containers, swerex_image
from bench.containers import DockerFailed
from bench.peer import Peer, PeerFailed
from bench.results import Figure, Side
from bench.samples import Sample, image_of, rows, sample
from bench.subject import WITHOUT_POOL, Bench, Served, prepare, served
from bench.trainer import Clock, Refused, bash

_GROUP = 16
_PARK_S = 60.0
"""Maximum wait for containers to be parked."""


async def parked(server: Served, instance_id: str, count: int) -> None:
    """Announce a start of the instance and wait until `count` containers are parked and none is being created.

    Raises:
        Refused: they are not parked within a minute.

    """
    end = time.monotonic() + _PARK_S
    await server.client.post("/v1/lookahead", instances=[instance_id])
    while True:
        buckets = (await server.client.get("/v1/pool"))["buckets"]
        there, making = (sum(bucket[kind] for bucket in buckets) for kind in ("parked", "making"))
        if there >= count and not making:
            return
        if time.monotonic() > end:
            raise Refused(f"{there} of {count} containers are parked after {_PARK_S:g} s")
        await asyncio.sleep(0.1)


async def cold(bench: Bench) -> None:
    """Without a pool: a container created on request, against plain Docker and SWE-ReX's deployment, alternating."""
    one = sample()
    ours: list[float] = []
    plain: list[float] = []
    swerex: list[float] = []
    peer = Peer("swerex", "swerex")
    await prepare(bench)
    async with served(bench, [one.row], **WITHOUT_POOL) as server, AsyncExitStack() as stack:
        stack.push_async_callback(peer.close)
        try:
            image = await swerex_image.with_swerex(one.image)
            has_swerex = True
        except DockerFailed as error:
            bench.miss("start: swerex", error)
            has_swerex = False
        for _ in range(bench.of(10, 3)):
            ours.append(await _our_start(server, one))
            plain.append(await _plain_start(one))
            if has_swerex and len(swerex) < bench.of(10, 1):
                try:
                    swerex.append((await peer.ask("start", image=image, label=containers.LABEL))["s"] * 1000)
                    await peer.ask("stop")
                except PeerFailed as error:
                    bench.miss("start: swerex", error)
                    has_swerex = False
    cold = Side.median(ours)
    bench.add(
        Figure("start_cold_ms", "ms", cold, Side.median(plain), "docker run -d + docker exec"),
        Figure("start_cold_p99_ms", "ms", Side.p99(ours), Side.p99(plain), "docker run -d + docker exec"),
        Figure(
            "start_cold_swerex_ms",
            "ms",
            cold,
            Side.median(swerex) if swerex else None,
            "SWE-ReX DockerDeployment.start, first session and command",
        ),
    )


async def _our_start(server: Served, one: Sample) -> float:
    """Milliseconds until the sid; then checks that the session answers, and ends it."""
    with Clock() as clock:
        sid = await server.client.start(one.instance_id)
    await server.client.act(sid, bash("true"))
    await server.client.end(sid)
    return clock.ms


async def _plain_start(one: Sample) -> float:
    """Milliseconds of `docker run -d` and the first `docker exec`."""
    with Clock() as clock:
        container = await containers.run(one.image)
        await containers.execute(container, "true")
    await containers.remove(container)
    return clock.ms


async def warm(bench: Bench) -> None:
    """A start that takes a parked container."""
    one = sample()
    ours, plain = [], []
    await prepare(bench)
    async with served(bench, [one.row]) as server:
        for _ in range(bench.of(15, 4)):
            await parked(server, one.instance_id, 1)
            await asyncio.sleep(0.2)  # so that the rest of the parking work is not counted
            ours.append(await _our_start(server, one))
            plain.append(await _plain_start(one))
    name = "docker run -d + docker exec"
    bench.add(
        Figure("start_warm_ms", "ms", Side.median(ours), Side.median(plain), name),
        Figure("start_warm_p99_ms", "ms", Side.p99(ours), Side.p99(plain), name),
    )


async def groups(bench: Bench) -> None:
    """Sixteen simultaneous starts of one instance as veRL sends them, against plain Docker at its best concurrency.

    Every round uses another image, as every group of a trainer does.
    """
    known = rows()[: bench.of(2, 1)]
    tried = (8,) if bench.quick else (4, 8, 16)  # fewer at a time never were the best
    plain: dict[int, list[float]] = {concurrency: [] for concurrency in tried}
    ours: dict[str, list[float]] = {"": [], "_cold": [], "_call": [], "_ahead": []}
    failed: list[BaseException] = []
    await prepare(bench)
    async with served(bench, known) as pooled, served(bench, known, **WITHOUT_POOL) as bare:
        for row in known:
            await _sixteen(pooled, row, ours[""], failed)
            await _sixteen(bare, row, ours["_cold"], failed)
            with Clock() as clock:
                group = await bare.client.post("/v1/groups", instance=row["instance_id"], n=_GROUP)
            ours["_call"].append(clock.s)
            await bare.client.end(*group["sids"])
            for concurrency, took in plain.items():
                took.append(await _plain(image_of(row), concurrency))
    if not bench.quick:
        async with served(bench, known, SANDBOX_POOL_GROUP=str(_GROUP)) as ahead:
            for row in known:
                await parked(ahead, row["instance_id"], _GROUP)
                await _sixteen(ahead, row, ours["_ahead"], failed)
    best = min(plain, key=lambda concurrency: median(plain[concurrency]))
    searched = ", ".join(f"{concurrency}: {median(took):.2f} s" for concurrency, took in plain.items())
    name = f"{_GROUP} docker run -d, {best} at a time"
    notes = {
        "": f"by how many docker run at a time: {searched}",
        "_cold": "without a pool",
        "_call": "without a pool, by one /v1/groups",
        "_ahead": "announced by /v1/lookahead and parked (SANDBOX_POOL_GROUP=16)",
    }
    for suffix, took in ours.items():
        if took:
            sides = Side.median(took), Side.median(plain[best])
            bench.add(Figure(f"start_group16{suffix}_s", "s", *sides, name, notes[suffix]))
    count = _GROUP * sum(len(took) for suffix, took in ours.items() if suffix != "_call")
    note = "; ".join(sorted({str(error) for error in failed}))
    bench.add(Figure("start_group16_failed", "", Side(len(failed), count), note=note))


async def _sixteen(server: Served, row: dict[str, Any], took: list[float], failed: list[BaseException]) -> None:
    with Clock() as clock:
        starts = (server.client.start(row["instance_id"]) for _ in range(_GROUP))
        sids = await asyncio.gather(*starts, return_exceptions=True)
    took.append(clock.s)
    failed += [sid for sid in sids if isinstance(sid, BaseException)]
    await server.client.end(*(sid for sid in sids if isinstance(sid, str)))


async def _plain(image: str, concurrency: int) -> float:
    """Seconds for sixteen `docker run -d`, `concurrency` at a time."""
    turns = asyncio.Semaphore(concurrency)

    async def one() -> str:
        async with turns:
            return await containers.run(image)

    with Clock() as clock:
        made = await asyncio.gather(*(one() for _ in range(_GROUP)))
    await containers.remove(*made)
    return clock.s
