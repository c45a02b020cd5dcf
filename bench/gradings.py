"""Gradings: from postprocess to verdict, compared with the benchmark harness on the same instance, image and patch."""

import asyncio
from collections import defaultdict

from bench.containers import RUN
from bench.peer import Peer, PeerFailed
from bench.results import Figure, Side
from bench.samples import Sample, distinct, sample
from bench.subject import Bench, Served, served
from bench.trainer import Clock, Refused, bash

_HARNESS = "swebench run_instance"
_OURS = 3
"""Our gradings per grading of the harness."""
_CACHED = 200
_TESTED_S = 5.0
"""By then the harness has tested and waits 15 s for its container to stop; a quick run measures ours meanwhile."""

_UNCONFIRMED = {"SANDBOX_CONFIRM": "off"}
"""As the harness grades."""
_CONFIRMED_TIMES = 2.2
"""A patch with its confirming runs may take this many times its tests' duration, plus a second."""

Took = dict[str, list[float]]


async def measure(bench: Bench) -> None:
    """Whole gradings alternating with the harness's, then rewards of graded sessions, then confirmed gradings."""
    one = sample()
    ours: Took = defaultdict(list)
    theirs: Took = defaultdict(list)
    harness = Peer("swebench")
    try:
        async with served(bench, [one.row], **_UNCONFIRMED) as server:
            await _grade(server, one, distinct(one.gold, 0))  # a first grading also starts the library's worker
            for turn in range(bench.of(3, 1)):
                graded_too = asyncio.create_task(_grade_by_harness(bench, harness, one, turn + 1, theirs))
                await asyncio.wait({graded_too}, timeout=_TESTED_S if bench.quick else None)
                for number in range(_OURS):
                    patch = distinct(one.gold, 100 + turn * _OURS + number)
                    for name, took in (await _grade(server, one, patch)).items():
                        ours[name].append(took)
                await graded_too
            for _ in range(bench.of(30, 3)):
                sid = await _patched(server, one, patch)
                await server.client.postprocess(sid)
                with Clock() as clock:
                    await server.client.reward(sid)
                ours["identical"].append(clock.s)
            for _ in range(_CACHED):
                with Clock() as clock:
                    await server.client.reward(sid)
                ours["cached"].append(clock.s)
        async with served(bench, [one.row]) as server:
            first = await _grade(server, one, distinct(one.gold, 900))
            ours["first"].append(first["total"])
            for number in range(bench.of(9, 3)):
                again = await _grade(server, one, distinct(one.gold, 901 + number))
                ours["confirmed"].append(again["total"])
                ours["confirmed_over"].append(again["total"] - _CONFIRMED_TIMES * again["tests"])
    finally:
        await harness.close()
    _add(bench, ours, theirs)


def _add(bench: Bench, ours: Took, theirs: Took) -> None:
    def figure(name: str, key: str, unit: str = "s", peer_name: str | None = _HARNESS, note: str = "") -> Figure:
        scale = 1000 if unit == "ms" else 1
        sides = [Side.median([scale * s for s in of[key]]) if of[key] else None for of in (ours, theirs)]
        return Figure(name, unit, sides[0], sides[1], peer_name, note)

    again = f"{_HARNESS} with its report.json there: a file read in the caller's process, no server"
    bench.add(
        figure("grade_total_s", "total"),
        figure("grade_overhead_s", "overhead", note="beyond the tests' own time, which each side measures itself"),
        figure("grade_tests_s", "tests"),
        figure(
            "grade_confirmed_s", "confirmed", peer_name=None, note="with its confirming runs (SANDBOX_CONFIRM=resolved)"
        ),
        figure("grade_confirmed_over_s", "confirmed_over", peer_name=None, note="beyond 2.2 times its tests"),
        figure("grade_first_s", "first", peer_name=None, note="the first one of an instance: its false tests are made"),
        figure("postprocess_s", "postprocess", peer_name=None, note="until the patch is kept; part of grade_total_s"),
        figure("reward_cached_ms", "cached", "ms", again),
        figure("reward_identical_ms", "identical", "ms", None, "first reward of another session with the same patch"),
    )


async def _grade(server: Served, one: Sample, patch: str) -> dict[str, float]:
    """Run a session that makes `patch`; times from postprocess to the verdict."""
    sid = await _patched(server, one, patch)
    with Clock() as total:
        with Clock() as postprocess:
            await server.client.postprocess(sid)
        reply = await server.client.reward(sid)
    if reply["verdict"] != "resolved":
        raise Refused(f"gold is {reply['verdict']}: {reply['cause']}")
    tests_s = float((await server.client.receipt(reply))["timings_s"]["tests"])
    return {"total": total.s, "overhead": total.s - tests_s, "tests": tests_s, "postprocess": postprocess.s}


async def _grade_by_harness(bench: Bench, harness: Peer, one: Sample, number: int, theirs: Took) -> None:
    patch = distinct(one.gold, number)
    try:
        run: dict[str, object] = {"row": one.harness_row(number), "patch": patch, "run_id": f"{RUN}-{number}"}
        done = await harness.ask("grade", timeout_s=300, **run)
        again = await harness.ask("grade", timeout_s=30, **run)
    except PeerFailed as error:
        bench.miss("grading: swebench", error)
        return
    if not done["resolved"]:
        raise PeerFailed("the harness does not resolve gold")
    theirs["total"].append(done["s"])
    theirs["tests"].append(done["tests_s"])
    theirs["overhead"].append(done["s"] - done["tests_s"])
    theirs["cached"].append(again["s"])


async def _patched(server: Served, one: Sample, patch: str) -> str:
    sid = await server.client.start(one.instance_id)
    await server.client.act(sid, bash(f"git apply - <<'END_OF_PATCH'\n{patch}END_OF_PATCH"))
    return sid
