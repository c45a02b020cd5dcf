"""The cost of importing the server into a fresh process."""

import asyncio
import json
import sys
from typing import Any

from bench.peer import PeerFailed
from bench.results import Figure, Side
from bench.subject import Bench

_HEAVY = ("datasets", "modal", "pandas", "pyarrow", "numpy", "torch", "swebench")
_PROBE = """
import json, resource, sys, time
began = time.perf_counter()
import {module}
took = time.perf_counter() - began
used = resource.getrusage(resource.RUSAGE_SELF)
heavy = [name for name in {heavy} if name in sys.modules]
cpu_s, rss_mb = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
print(json.dumps({{"s": took, "cpu_s": cpu_s, "rss_mb": rss_mb, "heavy": heavy}}))
"""
_TIMEOUT_S = 60.0


async def measure(bench: Bench) -> None:
    """`import sandbox_server.app` and the benchmark's own grading module, alternating, each in a fresh interpreter."""
    ours, peer = [], []
    for _ in range(bench.of(7, 2)):
        ours.append(await _imported("sandbox_server.app"))
        peer.append(await _imported("swebench.harness.grading"))
    name = "import swebench.harness.grading"
    for figure, unit, key in (
        ("import_s", "s", "s"),
        ("import_cpu_s", "s", "cpu_s"),
        ("import_rss_mb", "MB", "rss_mb"),
    ):
        mine, theirs = (Side.median([one[key] for one in of]) for of in (ours, peer))
        bench.add(Figure(figure, unit, mine, theirs, name))
    heavy = sorted({module for one in ours for module in one["heavy"]})
    bench.add(Figure("import_heavy", "", Side(len(heavy), len(ours)), note=", ".join(heavy)))


async def _imported(module: str) -> dict[str, Any]:
    pipe = asyncio.subprocess.PIPE
    arguments = ("-c", _PROBE.format(module=module, heavy=_HEAVY))
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=pipe, stderr=pipe)
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise PeerFailed(f"import {module}: {err.decode(errors='replace')[-500:]}")
    measured: dict[str, Any] = json.loads(out)
    return measured
