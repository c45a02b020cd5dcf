"""Starts: from the pool, without a pool, and sixteen of one instance at once."""

import asyncio
import time
from contextlib import AsyncExitStack

from bench import containers, swerex_image
from bench.containers import DockerFailed
from bench.peer import Peer, PeerFailed
from bench.results import Figure, Side, percentile
from bench.samples import sample
from bench.subject import Bench, Served, served
from bench.trainer import Clock, Refused, bash

_GROUP = 16
_PARK_S = 60.0
"""Longest wait for containers to be parked."""
WITHOUT_POOL = {"SANDBOX_POOL_SIZE": "0"}


async def parked(server: Served, instance_id: str, count: int) -> None:
    """Ask for `count` parked containers of the instance and wait until they stand.

    Raises:
        Refused: they do not within a minute.

    """
    await server.client.post("/v1/lookahead", instances=[instance_id] * count)
    end = time.monotonic() + _PARK_S
    while (there := await in_pool(server)) < count:
        if time.monotonic() > end:
            raise Refused(f"{there} of {count} containers are parked after {_PARK_S:g} s")
        await asyncio.sleep(0.1)


async def in_pool(server: Served) -> int:
    """How many containers are parked."""
    return len((await server.client.get("/v1/pool"))["parked"])


async def cold(bench: Bench) -> None:
    """No pool: a container made for the request, against plain Docker and SWE-ReX's deployment, in turn."""
    one = sample()
    ours, plain, swerex, first = [], [], [], []
    peer = Peer("swerex", "swerex")
    async with served([one.row], **WITHOUT_POOL) as server, AsyncExitStack() as stack:
        stack.push_async_callback(peer.close)
        try:
            image = await swerex_image.with_swerex(one.image)
            has_swerex = True
        except DockerFailed as error:
            bench.miss("start: swerex", error)
            has_swerex = False
        # The first start of an image on an engine prepares it; every later one finds it prepared.
        await server.client.end(await server.client.start(one.instance_id))
        for _ in range(bench.of(20, 7)):
            with Clock() as clock:
                sid = await server.client.start(one.instance_id)
            ours.append(clock.ms)
            await server.client.act(sid, bash("true"))
            await server.client.end(sid)
            with Clock() as clock:
                container = await containers.run(one.image)
                await containers.execute(container, "true")
            plain.append(clock.ms)
            await containers.remove(container)
            if has_swerex and len(swerex) < bench.of(20, 3):
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


async def warm(bench: Bench) -> None:
    """A parked container is taken."""
    one = sample()
    ours, plain = [], []
    async with served([one.row]) as server:
        for _ in range(bench.of(20, 6)):
            await parked(server, one.instance_id, 1)
            await asyncio.sleep(0.2)  # what parking left to do is not the start's
            with Clock() as clock:
                sid = await server.client.start(one.instance_id)
            ours.append(clock.ms)
            await server.client.act(sid, bash("true"))
            await server.client.end(sid)
            with Clock() as clock:
                container = await containers.run(one.image)
                await containers.execute(container, "true")
            plain.append(clock.ms)
            await containers.remove(container)
    name = "docker run -d + docker exec"
    bench.add(
        Figure("start_warm_ms", "ms", Side.median(ours), Side.median(plain), name),
        Figure("start_warm_p99_ms", "ms", Side.p99(ours), Side.p99(plain), name),
    )


async def groups(bench: Bench) -> None:
    """Sixteen starts of one instance at once, as veRL sends them, against plain Docker at its best concurrency."""
    one = sample()
    tried = (1, 2, 4, 8, 16) if not bench.quick else (2, 4, 8)
    plain: dict[int, list[float]] = {concurrency: [] for concurrency in tried}
    ours: dict[str, list[float]] = {"": [], "_cold": [], "_call": []}
    failed = 0
    async with served([one.row]) as pooled, served([one.row], **WITHOUT_POOL) as bare:
        await bare.client.end(await bare.client.start(one.instance_id))
        for _ in range(bench.of(5, 2)):
            for kind, server in (("", pooled), ("_cold", bare)):
                with Clock() as clock:
                    starts = (server.client.start(one.instance_id) for _ in range(_GROUP))
                    sids = await asyncio.gather(*starts, return_exceptions=True)
                ours[kind].append(clock.s)
                failed += sum(isinstance(sid, BaseException) for sid in sids)
                await server.client.end(*(sid for sid in sids if isinstance(sid, str)))
            await _group_call(bench, pooled, one.instance_id, ours["_call"])
            for concurrency, took in plain.items():
                took.append(await _plain(one.image, concurrency))
    best = min(plain, key=lambda concurrency: percentile(plain[concurrency], 50))
    searched = ", ".join(f"{concurrency}: {percentile(took, 50):.2f} s" for concurrency, took in plain.items())
    note = f"by concurrency of docker run: {searched}"
    name = f"{_GROUP} docker run -d, {best} at a time"
    for suffix, took in ours.items():
        figure_name = f"start_group16{suffix}_s"
        side = Side.median(took) if took else None
        bench.add(Figure(figure_name, "s", side, Side.median(plain[best]), name, note))
    bench.add(Figure("start_group16_failed", "", Side(failed, 2 * _GROUP * len(ours[""]))))


async def _group_call(bench: Bench, server: Served, instance_id: str, took: list[float]) -> None:
    """The sixteen by one request."""
    try:
        with Clock() as clock:
            group = await server.client.post("/v1/groups", instance=instance_id, n=_GROUP)
    except Refused as error:
        bench.miss("start: groups", error)
        return
    took.append(clock.s)
    await server.client.end(*group["sids"])


async def _plain(image: str, concurrency: int) -> float:
    """Seconds for sixteen `docker run -d`, so many at a time."""
    turns = asyncio.Semaphore(concurrency)

    async def one() -> str:
        async with turns:
            return await containers.run(image)

    with Clock() as clock:
        made = await asyncio.gather(*(one() for _ in range(_GROUP)))
    await containers.remove(*made)
    return clock.s
