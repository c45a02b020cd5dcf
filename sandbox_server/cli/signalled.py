"""Runs a verb's work so that SIGHUP and SIGTERM end it as Ctrl-C does: it first removes its containers."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

SIGNALLED = 128
"""The exit code of a program that a signal ended is this plus the signal's number, as in a shell."""


def run(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`. SIGHUP, SIGINT and SIGTERM cancel it; then the process exits with the signal's code."""
    return asyncio.run(_until_signalled(work))


async def _until_signalled(work: Coroutine[Any, Any, T]) -> T:
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
    came: list[int] = []

    def stop(number: int) -> None:
        came.append(number)
        task.cancel()

    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    try:
        return await task
    except asyncio.CancelledError:
        if not came:
            raise
        raise SystemExit(SIGNALLED + came[0]) from None
