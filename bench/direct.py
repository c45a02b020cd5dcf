"""An action through FIFOs, as by default where the engine is local, and through the engine's stream: time, CPU, output.

Both servers run at the same time and are measured in turns.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from statistics import median

from bench import containers, machine
from bench.results import Figure, Side
from bench.samples import Sample, sample
from bench.subject import WITHOUT_POOL, Bench, Served, served
from bench.trainer import Clock, bash

BY_ENGINE = {"SANDBOX_FIFO_DIR": "off"}
"""Settings with which the engine carries the bytes of shells and commands."""
ENGINE_WAY = "the same through the engine's stream (SANDBOX_FIFO_DIR=off)"
_BLOCK = 200
"""Actions between two looks at the CPU time, which the kernel tells in steps of 10 ms for each process."""
_FIRST = 40
"""Uncounted actions before each block."""
_SETTLES_S = 3.0
_OUTPUT_MB = 10
_PRINT = f"yes $(printf '%099d' 0) | head -n {_OUTPUT_MB * 10_000}"
"""10 MB in lines of 100 bytes; it costs some milliseconds of CPU."""


@dataclass(frozen=True, slots=True)
class _Way:
    """One session, with the processes that take part in its actions."""

    server: Served
    sid: str
    parts: Mapping[str, Sequence[int]]
    """Part of the service -> its processes."""
    true_ms: list[float] = field(default_factory=list)
    cpu_ms: list[dict[str, float]] = field(default_factory=list)
    """Of each block: part -> CPU time of one action."""
    output_s: list[float] = field(default_factory=list)
    command_s: list[float] = field(default_factory=list)

    async def block(self) -> None:
        """Time `true`, and the CPU time that all parts spend on it."""
        action = bash("true")
        for _ in range(_FIRST):
            await self.server.client.act(self.sid, action)
        before = self._spent()
        for _ in range(_BLOCK):
            with Clock() as clock:
                await self.server.client.act(self.sid, action)
            self.true_ms.append(clock.ms)
        after = self._spent()
        self.cpu_ms.append({part: (after[part] - before[part]) * 1000 / _BLOCK for part in before})

    async def output(self) -> None:
        """Time an action that prints 10 MB on its terminal, and a command without a terminal that does."""
        with Clock() as clock:
            await self.server.client.act(self.sid, bash(_PRINT))
        self.output_s.append(clock.s)
        with Clock() as clock:
            await self.server.client.post(f"/v1/sessions/{self.sid}/exec", command=_PRINT)
        self.command_s.append(clock.s)

    def cpu(self) -> Side:
        """CPU milliseconds of an action, all parts together."""
        return Side.median([sum(block.values()) for block in self.cpu_ms])

    def shares(self) -> str:
        """CPU milliseconds of an action by part."""
        return ", ".join(f"{part} {median(block[part] for block in self.cpu_ms):.2f}" for part in self.parts)

    def _spent(self) -> dict[str, float]:
        return {part: sum(map(machine.cpu_s, pids)) for part, pids in self.parts.items()}


async def measure(bench: Bench) -> None:
    """`true` and 10 MB of output through FIFOs, through the engine's stream and, for the output, by `docker exec`."""
    one = sample()
    plain_s: dict[str, list[float]] = {"exec": [], "exec -t": []}
    async with AsyncExitStack() as stack:
        fifos, stream = [
            await _way(await stack.enter_async_context(served(bench, [one.row], **WITHOUT_POOL, **settings)), one)
            for settings in ({}, BY_ENGINE)
        ]
        plain = await containers.run(one.image)
        stack.push_async_callback(containers.remove, plain)
        await asyncio.sleep(_SETTLES_S)
        for _ in range(bench.of(10, 3)):
            for way in (fifos, stream):
                await way.block()
        for _ in range(bench.of(10, 3)):
            for way in (fifos, stream):
                await way.output()
            for words, took in plain_s.items():
                with Clock() as clock:
                    await containers.docker(*words.split(), plain, "bash", "-c", _PRINT)
                took.append(clock.s)
        for way in (fifos, stream):
            await way.server.client.end(way.sid)
    note = f"all processes but the client's: {fifos.shares()}; through the engine's stream: {stream.shares()}"
    printed, ran = Side.median(fifos.output_s), Side.median(fifos.command_s)
    exec_, terminal = (Side.median(took) for took in plain_s.values())
    what = f"{_OUTPUT_MB} MB in one action; a terminal ends each line with two characters"
    bench.add(
        Figure("action_fifo_ms", "ms", Side.median(fifos.true_ms), Side.median(stream.true_ms), ENGINE_WAY),
        Figure("action_cpu_ms", "ms", fifos.cpu(), stream.cpu(), ENGINE_WAY, note),
        Figure("output_10mb_s", "s", printed, exec_, "docker exec, which has no terminal", what),
        Figure("output_10mb_terminal_s", "s", printed, terminal, "docker exec -t", what),
        Figure("output_10mb_stream_s", "s", printed, Side.median(stream.output_s), ENGINE_WAY),
        Figure("output_10mb_command_s", "s", ran, exec_, "docker exec", "by a command without a terminal"),
    )


async def _way(server: Served, one: Sample) -> _Way:
    sid = await server.client.start(one.instance_id)
    await server.client.act(sid, bash("true"))
    container = (await server.client.get(f"/v1/sessions/{sid}"))["container_id"]
    redis = machine.redis_pid(server.data_dir)
    parts = {
        "server": [server.process.pid],
        "Redis": [] if redis is None else [redis],
        "container": machine.pids_of([container]),
        "engine": machine.engine_pids(),
    }
    return _Way(server, sid, parts)
