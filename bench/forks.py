"""Copies of a session: its checkpoint, 16 of them into parked and into new containers, and a large one; and sleep."""

import asyncio
import time

from bench import containers
from bench.results import Figure, Side
from bench.samples import Sample, sample
from bench.starts import parked
from bench.subject import WITHOUT_POOL, Bench, Served, prepare, served
from bench.trainer import Clock, Refused, bash

TRUE = bash("true")
_COPIES = 16
_SLEEP_S = 60.0
_SMALL = "mkdir -p /w && cd /w && for i in {1..20}; do head -c 50000 /dev/urandom > $i; done"
"""20 changed files, 1 MB."""
_LARGE = "mkdir -p /w && cd /w && for i in {1..400}; do head -c 500000 /dev/urandom > $i; done"
"""200 MB, as a build leaves."""
_PEER = "docker commit + docker run -d + docker exec"


async def measure(bench: Bench) -> None:
    """Everything about copies."""
    one = sample()
    await prepare(bench)
    # a lookahead parks as many as a group had: 16, with the pool's default size
    many = {"SANDBOX_MAX_SESSIONS": "64", "SANDBOX_POOL_GROUP": str(_COPIES), "SANDBOX_POOL_GROUP_WINDOW_S": "1"}
    async with served(bench, [one.row], **many) as server:
        await _small(bench, server, one)
        await _large(bench, server, one)
    async with served(bench, [one.row], **WITHOUT_POOL, SANDBOX_MAX_SESSIONS="64") as server:
        await _cold(bench, server, one)
    async with served(bench, [one.row], SANDBOX_HIBERNATE_S="0.5", SANDBOX_REAPER_PERIOD_S="0.1") as server:
        await _wake(bench, server, one)


async def _stages(server: Served) -> dict[str, tuple[float, int]]:
    """Stage -> (sum of seconds, count) of sandbox_checkpoint_seconds."""
    found: dict[str, list[float]] = {"take": [0.0, 0], "restore": [0.0, 0]}
    for line in (await server.client.text("/metrics")).splitlines():
        name, _, value = line.rpartition(" ")
        for stage, values in found.items():
            for at, kind in enumerate(("sum", "count")):
                if name == f'sandbox_checkpoint_seconds_{kind}{{stage="{stage}"}}':
                    values[at] = float(value)
    return {stage: (values[0], int(values[1])) for stage, values in found.items()}


async def _fork(server: Served, sid: str, n: int) -> tuple[list[str], dict[str, float]]:
    """The copies, and milliseconds of each stage, on average over them."""
    before = await _stages(server)
    answer = await server.client.post(f"/v1/sessions/{sid}/fork", n=n)
    after = await _stages(server)
    took = {
        stage: (after[stage][0] - before[stage][0]) / max(1, after[stage][1] - before[stage][1]) * 1000
        for stage in before
    }
    return list(answer["sids"]), took


async def _answering(server: Served, sid: str, n: int) -> float:
    """Milliseconds until `n` copies have each answered an action; they are then ended."""
    with Clock() as clock:
        sids = (await server.client.post(f"/v1/sessions/{sid}/fork", n=n))["sids"]
        await asyncio.gather(*(server.client.act(one, TRUE) for one in sids))
    await server.client.end(*sids)
    return clock.ms


async def _small(bench: Bench, server: Served, one: Sample) -> None:
    sid = await server.client.start(one.instance_id)
    await server.client.act(sid, bash(_SMALL))
    plain = await containers.run(one.image)
    takes, restores, ours, theirs = [], [], [], []
    try:
        await containers.execute(plain, _SMALL)
        for _ in range(2):  # from then on a group of 16 is expected
            await _answering(server, sid, _COPIES)
        for _ in range(bench.of(5, 2)):
            await parked(server, one.instance_id, _COPIES)
            await asyncio.sleep(0.5)
            ours.append(await _answering(server, sid, _COPIES))
            theirs.append(await _plain(plain, _COPIES))
        for _ in range(bench.of(10, 3)):
            await parked(server, one.instance_id, 1)  # after the first single copy a group of one is expected
            await asyncio.sleep(0.3)  # for the removal of the copy before
            sids, took = await _fork(server, sid, 1)
            takes.append(took["take"])
            restores.append(took["restore"])
            await server.client.end(*sids)
    finally:
        await containers.remove(plain)
        await server.client.end(sid)
    bench.add(
        Figure("fork_checkpoint_ms", "ms", Side.median(takes), note="20 changed files, 1 MB"),
        Figure("fork_restore_ms", "ms", Side.median(restores), note="into a parked container"),
        Figure("fork16_parked_ms", "ms", Side.median(ours), Side.median(theirs), _PEER),
    )


async def _cold(bench: Bench, server: Served, one: Sample) -> None:
    sid = await server.client.start(one.instance_id)
    await server.client.act(sid, bash(_SMALL))
    ours, starts = [], []
    for _ in range(bench.of(3, 1)):
        ours.append(await _answering(server, sid, _COPIES))
        with Clock() as clock:
            group = (await server.client.post("/v1/groups", instance=one.instance_id, n=_COPIES))["sids"]
            await asyncio.gather(*(server.client.act(each, TRUE) for each in group))
        await server.client.end(*group)
        starts.append(clock.ms)
    await server.client.end(sid)
    bench.add(Figure("fork16_cold_ms", "ms", Side.median(ours), Side.median(starts), "16 starts of ours, no copies"))


async def _asleep(server: Served, sid: str) -> None:
    """Wait until the session sleeps. Raises Refused: it does not within a minute."""
    end = time.monotonic() + _SLEEP_S
    while True:
        if (await server.client.get(f"/v1/sessions/{sid}"))["asleep"]:
            return
        if time.monotonic() > end:
            raise Refused(f"session {sid} does not sleep")
        await asyncio.sleep(0.05)


async def _wake(bench: Bench, server: Served, one: Sample) -> None:
    sid = await server.client.start(one.instance_id)
    await server.client.act(sid, bash(_SMALL))
    woken: list[float] = []
    awake: list[float] = []
    for _ in range(bench.of(10, 3)):
        await _asleep(server, sid)
        await parked(server, one.instance_id, 1)
        await asyncio.sleep(0.3)  # for the removal of its container
        for times in (woken, awake):
            with Clock() as clock:
                await server.client.act(sid, TRUE)
            times.append(clock.ms)
    await server.client.end(sid)
    beyond = [first - then for first, then in zip(woken, awake, strict=True)]
    bench.add(Figure("wake_ms", "ms", Side.median(beyond), note="20 changed files, 1 MB, into a parked container"))


async def _large(bench: Bench, server: Served, one: Sample) -> None:
    sid = await server.client.start(one.instance_id)
    await server.client.act(sid, bash(_LARGE))
    takes, forks = [], []
    for _ in range(bench.of(3, 1)):
        await parked(server, one.instance_id, 1)
        with Clock() as clock:
            sids, took = await _fork(server, sid, 1)
            await server.client.act(sids[0], TRUE)
        takes.append(took["take"] / 1000)
        forks.append(clock.ms / 1000 - took["take"] / 1000)
        await server.client.end(*sids)
    await server.client.end(sid)
    bench.add(
        Figure(
            "fork_checkpoint_200mb_s", "s", Side.median(takes), note="200 MB in 400 files that cannot be compressed"
        ),
        Figure("fork_200mb_s", "s", Side.median(forks), note="beyond the checkpoint, until the copy has answered"),
    )


async def _plain(source: str, n: int) -> float:
    """Milliseconds to commit a container and have n containers of the image answer."""
    with Clock() as clock:
        image = await containers.docker("commit", source)
        turns = asyncio.Semaphore(4)  # more at a time are slower

        async def one() -> str:
            async with turns:
                made = await containers.run(image)
                await containers.execute(made, "true")
                return made

        made = await asyncio.gather(*(one() for _ in range(n)))
    await containers.remove(*made)
    await containers.docker("rmi", "-f", image)
    return clock.ms
