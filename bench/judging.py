"""The judge of an innocent log, alone and beside logs that keep the library's regular expressions busy."""

import asyncio
import contextlib
import time

from bench.results import Figure, Side
from bench.subject import Bench
from sandbox_server.catalogue.instance import SandboxSpec, SwebenchGrader, TaskInstance
from sandbox_server.grading.library import SwebenchLibrary, UnjudgeableLog

_ATTACKERS = 8
_EACH = 60
"""Innocent logs per round, one after the other; rounds alone and beside attackers alternate, as the load changes. With
200 logs in all, the p99 was the second largest time, and its ratio 0.8 to 1.7 with the same code."""
_PAUSE_S = 0.02
_SETTLE_S = 4.0

_START, _END = "+ : '>>>>> Start Test Output'\n", "+ : '>>>>> End Test Output'\n"
_NAMES = tuple(f"tests/test_module_{number % 7}.py::test_case_{number}" for number in range(400))
_INNOCENT = (
    _START
    + "".join(f"tests/test_module.py line {number}: some output of a run\n" for number in range(2000))
    + "".join(f"PASSED {name}\n" for name in _NAMES)
    + f"{_END}>>>>> Test Exit Code: 0\n"
)
_QUADRATIC = f"{_START}{'9' * 3_000_000}\n{_END}>>>>> Test Exit Code: 5\n"
_ROW = TaskInstance(
    instance_id="bench__judging-1",
    repo="bench/judging",
    version="1.0",
    sandbox=SandboxSpec(images=("unused",)),
    grader=SwebenchGrader(
        eval_script=f"#!/bin/bash\n: '>>>>> Start Test Output'\npytest -rA\n{_END[2:]}", log_parser="parse_log_pytest"
    ),
    fail_to_pass=_NAMES[:5],
    pass_to_pass=_NAMES[5:],
)


async def measure(bench: Bench) -> None:
    """400 tests, 150 KB."""
    library = SwebenchLibrary()
    alone: list[float] = []
    beside: list[float] = []
    try:
        await _innocent(library, 3)  # the worker starts
        for _ in range(bench.of(6, 1)):
            alone += await _innocent(library, _EACH)
            attackers = [asyncio.create_task(_attack(library)) for _ in range(_ATTACKERS)]
            try:
                await asyncio.sleep(_SETTLE_S)
                beside += await _innocent(library, _EACH)
            finally:
                for attacker in attackers:
                    attacker.cancel()
                await asyncio.gather(*attackers, return_exceptions=True)
    finally:
        await library.close()
    name = "the same judge alone"
    note = f"a log of 400 tests, {_ATTACKERS} logs of 3 MB of digits being judged meanwhile"
    bench.add(
        Figure("judge_p99_ms", "ms", Side.p99(beside), Side.p99(alone), name, note),
        Figure("judge_ms", "ms", Side.median(beside), Side.median(alone), name, note),
    )


async def _innocent(library: SwebenchLibrary, count: int) -> list[float]:
    took = []
    for _ in range(count):
        began = time.perf_counter()
        report = await library.report(_ROW, _INNOCENT)
        took.append(1000 * (time.perf_counter() - began))
        if not report.resolved:
            raise ValueError("the innocent log is not resolved")
        await asyncio.sleep(_PAUSE_S)
    return took


async def _attack(library: SwebenchLibrary) -> None:
    while True:
        with contextlib.suppress(UnjudgeableLog):
            await library.report(_ROW, _QUADRATIC)
