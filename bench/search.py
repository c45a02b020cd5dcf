"""Code search: batches of eight greps over 2,000 files, in one session and in 64 at once; event loop stalls."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from bench.results import Figure, Side
from bench.samples import rows
from bench.subject import Bench, Served, served
from bench.trainer import Clock

FILES = 2_000
BATCH = 8
_INSTANCE = "bench__search-1"
# real code under real names: Python's standard library, repeated
_TREE = f"""python3 - <<'END_OF_TREE'
import pathlib, shutil, sysconfig
library = pathlib.Path(sysconfig.get_path("stdlib"))
sources = sorted(library.rglob("*.py"))
for number in range({FILES}):
    source = sources[number % len(sources)]
    target = pathlib.Path("tree", str(number // len(sources)), source.relative_to(library))
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
END_OF_TREE"""
_WORDS = ("import", "class .*Error", "def __init__", "raise ValueError", "yield", "lambda", "TODO", "return None")
_GREPS = [f"grep -rnE {json.dumps(word)} tree | head -n 50" for word in _WORDS]
_STALL = {"busy": 0.05, "blocked": 0.25}
"""Delays in seconds that count as a stall, as in the tests."""


async def measure(bench: Bench) -> None:
    """One session's batches, then all sessions' at once."""
    sessions, rounds = bench.of(64, 16), 2
    async with served(bench, [_row()], SANDBOX_MAX_SESSIONS="80") as server:
        sids = [await server.client.start(_INSTANCE)]
        (found,) = await _batch(server, sids[0], ["find tree -name '*.py' | wc -l"])
        alone = [await _timed(server, sids[0]) for _ in range(bench.of(20, 5))]
        sleeps = [await _slept(server, sids[0]) for _ in range(bench.of(5, 2))]
        sids += await asyncio.gather(*(server.client.start(_INSTANCE) for _ in range(sessions - 1)))
        before = await stalls(server)
        with Clock() as whole:
            every = await asyncio.gather(*(_again(server, sid, rounds) for sid in sids))
        after = await stalls(server)
        await server.client.end(*sids)
    took = [ms for several in every for ms in several]
    tree = f"{found['stdout'].strip()} files, {BATCH} greps a batch"
    bench.add(
        Figure("search_batch_ms", "ms", Side.median(alone), note=f"one session, {tree}"),
        Figure("search_sleeps8_s", "s", Side.median(sleeps), note="8 parallel `sleep 1` in one session"),
        Figure(f"search_batch_{sessions}_ms", "ms", Side.median(took), note=f"{sessions} sessions at once, {tree}"),
        Figure(f"search_batch_{sessions}_p99_ms", "ms", Side.p99(took)),
        Figure(f"search_commands_{sessions}_per_s", "/s", Side(sessions * rounds * BATCH / whole.s, 1), better="more"),
        Figure(f"search_loop_stalls_{sessions}", "", Side(after - before, 1), note="busy > 50 ms or blocked > 250 ms"),
    )


def _row() -> dict[str, Any]:
    own = next(row for row in rows() if "sandbox" in row)
    return {**own, "instance_id": _INSTANCE, "sandbox": {**own["sandbox"], "setup_commands": [_TREE]}}


async def _batch(server: Served, sid: str, commands: Sequence[str]) -> list[dict[str, Any]]:
    answer = await server.client.post(f"/v1/sessions/{sid}/exec", commands=list(commands))
    results: list[dict[str, Any]] = answer["results"]
    if any(result["timed_out"] or result["error"] or result["stderr"] for result in results):
        raise RuntimeError(f"a command of the batch failed: {results}")
    return results


async def _timed(server: Served, sid: str) -> float:
    with Clock() as clock:
        await _batch(server, sid, _GREPS)
    return clock.ms


async def _again(server: Served, sid: str, rounds: int) -> list[float]:
    return [await _timed(server, sid) for _ in range(rounds)]


async def _slept(server: Served, sid: str) -> float:
    with Clock() as clock:
        await _batch(server, sid, ["sleep 1"] * BATCH)
    return clock.s


async def stalls(server: Served) -> float:
    """Number of late timers of the event loop so far."""
    text = await server.client.text("/metrics")
    late = 0.0
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            bound_s = _STALL.get(sample.labels.get("cause", ""))
            if bound_s is None or sample.name != "sandbox_loop_stall_seconds_bucket":
                continue
            if sample.labels["le"] == "+Inf":
                late += sample.value
            elif float(sample.labels["le"]) == bound_s:
                late -= sample.value
    return late
