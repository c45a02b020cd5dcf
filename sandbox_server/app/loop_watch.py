"""Detects stalls of the event loop, in production as in tests, and logs the stack.

A timer on the loop that fires late was delayed: the loop's thread was busy in a callback (or many in one round), was
blocked (in a system call, or waiting for another thread to release the GIL), or did not get a CPU. The last is not our
fault and is subtracted, by the kernel's accounting (schedstat). A second thread wakes regularly and captures the stack
of an overdue loop.
"""

import asyncio
import faulthandler
import os
import tempfile
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO

from sandbox_server.telemetry import LOOP_STALL_SECONDS, logger

log = logger(__name__)

_PERIOD_S = 0.02  # 50 timers and 20 looks a second cost 1 % of a core
_IDLE_PERIOD_S = 0.16  # longest period of an idle loop; the first stall after idling may seem shorter by this
# Between two beats, an idle loop uses less CPU time than _IDLE_CPU_S plus _IDLE_SHARE of the period. Background loops
# stay below that; a single request exceeds it.
_IDLE_CPU_S = 0.0005
_IDLE_SHARE = 0.01
_LOOK_S = 0.05
_BUSY_S = 0.05  # warning threshold; CPU time of the loop's thread, so it does not depend on the machine's load
_BLOCKED_S = 0.25  # likewise, but larger, because the thread that holds the GIL may itself be waiting for a CPU
_FRAMES = 12  # innermost frames to log; those of the server's start do not help
_BUSY, _BLOCKED = LOOP_STALL_SECONDS.labels("busy"), LOOP_STALL_SECONDS.labels("blocked")


@asynccontextmanager
async def watched_loop() -> AsyncIterator[None]:
    """Watch the running loop for the duration of the block."""
    watch = _Watch()
    watch.start()
    try:
        yield
    finally:
        watch.stop()


class _Watch:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        # kept open: the path is this thread's, and each reading is one system call
        self._schedstat = _opened(Path(f"/proc/self/task/{threading.get_native_id()}/schedstat"))
        self._period_s = _PERIOD_S
        self._due = time.monotonic() + _PERIOD_S
        self._cpu_s = time.thread_time()
        self._queued_s = self._queued()
        self._stack = ""
        # kept open: an error when it is opened later, e.g. for lack of file descriptors, would end the thread
        self._dump = tempfile.TemporaryFile()  # noqa: SIM115
        self._over = threading.Event()
        self._onlooker = threading.Thread(target=self._look, name="loop-watch", daemon=True)
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._onlooker.start()
        self._timer = self._loop.call_later(_PERIOD_S, self._beat)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._over.set()
        self._onlooker.join()
        self._dump.close()
        if self._schedstat is not None:
            os.close(self._schedstat)

    def _beat(self) -> None:
        now, cpu_s, queued_s = time.monotonic(), time.thread_time(), self._queued()
        # subtract all of this thread's wait for a CPU since the last beat: too much is better than a false stall
        stall_s = max(0.0, now - self._due - (queued_s - self._queued_s))
        busy_s = min(stall_s, cpu_s - self._cpu_s)
        _BUSY.observe(busy_s)
        _BLOCKED.observe(stall_s - busy_s)
        if busy_s > _BUSY_S or stall_s - busy_s > _BLOCKED_S:
            seconds = {"busy_s": round(busy_s, 3), "blocked_s": round(stall_s - busy_s, 3)}
            stack = self._stack or "not seen: it held the GIL, or came after a rest"
            log.warning("event loop stood still", **seconds, stack=stack)
        self._stack = ""
        rests = cpu_s - self._cpu_s < _IDLE_CPU_S + _IDLE_SHARE * self._period_s and stall_s <= _PERIOD_S
        self._period_s = min(2 * self._period_s, _IDLE_PERIOD_S) if rests else _PERIOD_S
        self._cpu_s, self._queued_s = cpu_s, queued_s
        self._due = time.monotonic() + self._period_s
        self._timer = self._loop.call_later(self._period_s, self._beat)

    def _queued(self) -> float:
        """Seconds that this thread has waited for a CPU since its start; 0.0 if the kernel does not count them."""
        return int(os.pread(self._schedstat, 64, 0).split()[1]) / 1e9 if self._schedstat is not None else 0.0

    def _look(self) -> None:
        while not self._over.wait(max(_LOOK_S, self._period_s)):
            if not self._stack and time.monotonic() > self._due + _LOOK_S / 2:
                self._stack = _stack_of(self._thread_id, self._dump)


def _opened(path: Path) -> int | None:
    with suppress(OSError):  # a kernel without it, or not Linux
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return None


def _stack_of(thread_id: int, file: IO[bytes]) -> str:
    """The innermost frames of a thread, most recent call first; `file` is overwritten.

    Uses faulthandler, which holds the GIL for the whole dump. If Python code walks another thread's frames, that thread
    runs meanwhile, and its frames have been seen to become other objects during the walk.
    """
    file.seek(0)
    file.truncate()
    faulthandler.dump_traceback(file, all_threads=True)
    file.seek(0)
    threads = file.read().decode(errors="replace").split("\n\n")
    mine = next((lines for lines in threads if f"0x{thread_id:016x}" in lines.partition("\n")[0]), "")
    return "\n".join(mine.splitlines()[1 : _FRAMES + 1])
