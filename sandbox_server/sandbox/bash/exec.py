"""Collects a command's bounded output and its end, for `Sandbox.exec`."""

import asyncio
import time

from sandbox_server.sandbox.base import ExecResult
from sandbox_server.sandbox.collector import Collector
from sandbox_server.sandbox.process import Process, Stream

_SIGNALLED = 128  # + signal number: a shell's exit status for a process ended by a signal


async def collected(process: Process, stdin: bytes, keep_bytes: int, started: float) -> ExecResult:
    """Write `stdin` to `process` and read its output to the end; if the caller is cancelled, kill the process.

    `started`: `time.monotonic()` at its start.
    """
    kept = {stream: Collector(keep_bytes) for stream in (Stream.STDOUT, Stream.STDERR)}
    feeding = asyncio.create_task(_feed(process, stdin)) if stdin else None
    try:
        async for stream, data in process.output():
            kept[stream].add(data)
        end = await process.wait()
    except asyncio.CancelledError:
        await asyncio.shield(process.kill_tree())
        process.detach()
        raise
    finally:
        if feeding is not None:
            feeding.cancel()
    code = end.exit_code if end.signal is None else _SIGNALLED + end.signal
    return ExecResult(
        None if end.timed_out else code,
        kept[Stream.STDOUT].take(),
        kept[Stream.STDERR].take(),
        end.timed_out,
        time.monotonic() - started,
    )


async def _feed(process: Process, stdin: bytes) -> None:
    await process.write(stdin)
    await process.close_stdin()
