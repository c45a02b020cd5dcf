"""Actions: one session alone, 64 with one action a second each, 16 as fast as they can."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from statistics import median

from bench import containers, swerex_image
from bench.containers import DockerFailed
from bench.peer import Peer, PeerFailed
from bench.results import Figure, Side
from bench.samples import Sample, sample
from bench.stub import stub
from bench.subject import Bench, Served, served
from bench.trainer import Clock, Refused, bash, trainer

TRUE = bash("true")
PACED = 64
"""Live sessions when `crowd` is called."""
LOOPED = 16
_FIRST = 40
"""Uncounted actions before each block."""
_CROWD_SETTLES_S = 3.0
"""Wait for the execs of many callers to end, and for the after-effects of new sessions."""

Act = Callable[[], Awaitable[object]]
"""One action of a session or container."""


async def alone(bench: Bench) -> None:
    """`true` in one session, ours and each peer's alternating."""
    one = sample()
    async with served(bench, [one.row]) as server:
        await _alone(bench, server, one)


async def crowd(bench: Bench, server: Served, sids: Sequence[str]) -> None:
    """64 live sessions: one action a second each, then 16 of them as fast as they can."""
    one = sample()
    ours = [partial(server.client.act, sid, TRUE) for sid in sids[:PACED]]
    # The peer's cost does not depend on the number of containers, so four callers share one.
    plain = await _containers(one.image, LOOPED)
    try:
        peer = [partial(containers.execute, plain[number % LOOPED], "true") for number in range(PACED)]
        await asyncio.gather(*(act() for act in ours))
        await asyncio.sleep(_CROWD_SETTLES_S)
        await _paced(bench, ours, peer)
        await _looped(bench, ours[:LOOPED], peer[:LOOPED])
    finally:
        await containers.remove(*plain)


async def _alone(bench: Bench, server: Served, one: Sample) -> None:
    rounds, ours_each, peer_each = bench.of(10, 3), 200, bench.of(10, 3)
    sid = await server.client.start(one.instance_id)
    plain = await containers.run(one.image)
    peers = {
        "swerex": Peer("swerex", "swerex"),
        "mini": Peer("mini", "mini"),
    }
    took: dict[str, list[float]] = {"ours": [], "exec": [], "client": [], "swerex": [], "mini": []}
    async with AsyncExitStack() as stack:
        stack.push_async_callback(containers.remove, plain)
        for name, peer in list(peers.items()):
            stack.push_async_callback(peer.close)
            try:
                of = await swerex_image.with_swerex(one.image) if name == "swerex" else one.image
                await peer.ask("start", image=of, label=containers.LABEL)
            except (PeerFailed, DockerFailed) as error:
                bench.miss(f"action: {name}", error)
                del peers[name]
        echo = await stack.enter_async_context(trainer(await stack.enter_async_context(stub())))
        await server.client.act(sid, TRUE)
        for _ in range(rounds):
            # the first calls of a block meet the end of an exec, which continues after its answer, or an idle machine
            await _timed(lambda: server.client.act(sid, TRUE), _FIRST)
            took["ours"] += await _timed(lambda: server.client.act(sid, TRUE), ours_each)
            took["client"] += await _timed(lambda: echo.act(sid, TRUE), ours_each)
            for name, peer in peers.items():
                took[name] += (await peer.ask("run", command="true", times=peer_each))["ms"]
            took["exec"] += await _timed(lambda: containers.docker("exec", plain, "true"), peer_each)
    await server.client.end(sid)
    ours = took["ours"]
    named = {
        "swerex": ("", "SWE-ReX run_in_session"),
        "mini": ("_mini", "mini-swe-agent DockerEnvironment.execute"),
        "exec": ("_exec", "docker exec"),
    }
    for name, (suffix, peer_name) in named.items():
        median_, p99 = (Side.median(took[name]), Side.p99(took[name])) if took[name] else (None, None)
        bench.add(
            Figure(f"action_true{suffix}_ms", "ms", Side.median(ours), median_, peer_name),
            Figure(f"action_true{suffix}_p99_ms", "ms", Side.p99(ours), p99, peer_name),
        )
    client = "the client's own cost: the same calls to a stub that answers at once; in every figure of ours"
    bench.add(Figure("client_ms", "ms", Side.median(took["client"]), note=client))


async def _paced(bench: Bench, ours: Sequence[Act], peer: Sequence[Act]) -> None:
    """One action per second and session, spread over the second; measured from the time each was due to its answer."""
    seconds = bench.of(40, 8)
    took, _, errors = await paced(ours, seconds)
    name = f"docker exec, {len(peer)} callers"
    theirs, theirs_late, theirs_errors = await paced(peer, bench.of(10, 4))
    kept = f"docker exec: {theirs_late} of {len(theirs)} actions had not started when the next was due"
    bench.add(
        Figure("action_paced64_p99_ms", "ms", Side.p99(took), Side.p99(theirs), name, note=kept),
        Figure("action_paced64_p50_ms", "ms", Side.median(took), Side.median(theirs), name),
        Figure("action_paced64_errors", "", Side(errors, len(took)), Side(theirs_errors, len(theirs)), name),
    )


async def paced(sessions: Sequence[Act], seconds: int) -> tuple[list[float], int, int]:
    """(ms from due to answered of each action, number that started over a second late, number that failed)."""
    took: list[float] = []
    late = errors = 0
    begin = time.perf_counter() + 0.5

    async def one(number: int, act: Act) -> None:
        nonlocal late, errors
        for second in range(seconds):
            due = begin + second + number / len(sessions)
            now = time.perf_counter()
            if now > begin + seconds:
                break  # a session that cannot keep the pace stops with the others
            await asyncio.sleep(max(0.0, due - now))
            late += time.perf_counter() - due > 1
            try:
                await act()
            except (Refused, DockerFailed):
                errors += 1
            took.append((time.perf_counter() - due) * 1000)

    await asyncio.gather(*(one(number, act) for number, act in enumerate(sessions)))
    return took, late, errors


async def _looped(bench: Bench, ours: Sequence[Act], peer: Sequence[Act]) -> None:
    """Closed loop: each session sends its next action when the last one is answered."""
    seconds = bench.of(5, 2)
    rates: dict[str, list[float]] = {"ours": [], "peer": []}
    count = 0
    for _ in range(bench.of(3, 2)):
        for name, sessions in (("ours", ours), ("peer", peer)):
            await asyncio.sleep(_CROWD_SETTLES_S)
            done, took_s = await _loop(sessions, seconds)
            rates[name].append(done / took_s)
            count += done if name == "ours" else 0
    name = f"docker exec, {len(peer)} callers"
    ours_side = Side(median(rates["ours"]), count, min(rates["ours"]), max(rates["ours"]))
    bench.add(Figure("actions_per_s", "1/s", ours_side, Side.median(rates["peer"]), name, better="more"))


async def _loop(sessions: Sequence[Act], seconds: float) -> tuple[int, float]:
    begin = time.perf_counter()

    async def one(act: Act) -> int:
        done = 0
        while time.perf_counter() < begin + seconds:
            await act()
            done += 1
        return done

    return sum(await asyncio.gather(*(one(act) for act in sessions))), time.perf_counter() - begin


async def _timed(act: Act, times: int) -> list[float]:
    took = []
    for _ in range(times):
        with Clock() as clock:
            await act()
        took.append(clock.ms)
    return took


async def _containers(image_name: str, count: int) -> list[str]:
    """Start plain containers, a few at a time."""
    turns = asyncio.Semaphore(4)

    async def one() -> str:
        async with turns:
            return await containers.run(image_name)

    return list(await asyncio.gather(*(one() for _ in range(count))))
