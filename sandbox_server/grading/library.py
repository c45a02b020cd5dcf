"""Client of the swebench library, which runs in a worker process and is never imported here."""

import asyncio
import contextlib
import json
import os
import socket
import sys
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from signal import SIGALRM, SIGKILL, SIGXCPU, Signals
from subprocess import DEVNULL
from typing import Any

from sandbox_server.catalogue.instance import SwebenchGrader, TaskInstance
from sandbox_server.errors import GraderBroken
from sandbox_server.grading.base import Judging
from sandbox_server.spawned import Spawned
from sandbox_server.telemetry import logger

_WORKER = Path(__file__).with_name("worker.py")
_REPLY_BYTES = 1 << 27  # the longest lists of tests are a few MB
_SCRIPTS = 256  # cached scripts, some 10 KB each
_AT_A_TIME = 64  # a backstop: gradings are bounded by slots, and each asks one thing at a time
_WORKED = 0.2
"""A wall-clock timeout is blamed on the log only if its judge has used this share of the CPU bound. An honest log of
8 MB takes less than a second."""
_GRACE_S = 10.0
_ATTEMPTS = 3
_LONG_LOG = 1 << 18  # characters; encoding a longer log blocks the event loop for milliseconds

log = logger(__name__)


@dataclass(frozen=True, slots=True)
class LibraryReport:
    """The library's result for one log."""

    usable: bool
    """Whether it found results that it trusts; if not, there are no counts."""
    resolved: bool
    f2p_count: int
    p2p_count: int
    """Number of the row's tests that count as passed."""
    f2p_failed: tuple[str, ...]
    p2p_failed: tuple[str, ...]
    reason: str
    """The library's guess at why no results were usable (`classify_logs`); advice only."""
    started: bool
    ended: bool
    """Whether the start and end markers of the tests' output are in the log."""
    exit_code: int | None
    """Exit code of the test command, as the script recorded it."""


class UnjudgeableLog(Exception):
    """The library cannot judge this log within its bounds, or at all. The text completes a sentence about the log."""


class SwebenchLibrary:
    """Runs one worker process, started by the first request and again if it died; each request gets its own judge."""

    version: str = version("swebench")

    def __init__(self, judging: Judging | None = None, *, start_timeout_s: float = 60.0) -> None:
        """`judging` bounds one request, `start_timeout_s` the import of the library."""
        self._judging = judging or Judging()
        self._start_timeout_s = start_timeout_s
        self._room = asyncio.Semaphore(_AT_A_TIME)
        self._worker: _Worker | None = None
        self._starting: asyncio.Task[_Worker] | None = None
        self._scripts: OrderedDict[str, tuple[dict[str, Any], str]] = OrderedDict()
        """instance_id -> (row, script), least recently used first."""

    async def script(self, instance: TaskInstance) -> str:
        """The script that runs the tests of `instance`. On return the worker is running.

        Raises:
            GraderBroken: the row is unusable, or the worker failed.

        """
        row = _row(instance)
        if self._worker is not None and self._worker.process.returncode is None:
            known, script = self._scripts.get(instance.instance_id, (None, ""))
            if known == row:
                self._scripts.move_to_end(instance.instance_id)
                return script
        try:
            script = str((await self._ask("script", instance))["script"])
        except UnjudgeableLog as error:  # there is no log, so the row is at fault
            raise GraderBroken(f"swebench {self.version} failed on {instance.instance_id}: {error}") from None
        self._scripts[instance.instance_id] = (row, script)
        if len(self._scripts) > _SCRIPTS:
            self._scripts.popitem(last=False)
        return script

    async def report(self, instance: TaskInstance, test_log: str) -> LibraryReport:
        """Judge a log.

        Raises:
            UnjudgeableLog: it takes more time or memory than any honest log, or the library fails on it.
            GraderBroken: the library or its worker failed, independently of the log.

        """
        answer = await self._ask("report", instance, log=test_log)
        report = answer["report"]
        usable = report["patch_successfully_applied"]  # the library's name for "a usable log was found"
        tests = report.get("tests_status", {})

        def passed(group: str) -> list[str]:
            names: list[str] = tests.get(group, {}).get("success", [])
            return names

        def failed(listed: Iterable[str], passed: Iterable[str]) -> tuple[str, ...]:
            good = frozenset(passed)
            return tuple(test for test in listed if test not in good) if usable else ()

        # A test whose status the library does not know (`FAILEDx name`) is in neither of its lists (success, failure),
        # and the library calls a log resolved if no test is in a failure list.
        f2p, p2p = passed("FAIL_TO_PASS"), passed("PASS_TO_PASS")
        f2p_failed, p2p_failed = failed(instance.fail_to_pass, f2p), failed(instance.pass_to_pass, p2p)
        return LibraryReport(
            usable=usable,
            resolved=report["resolved"] and not f2p_failed and not p2p_failed,
            f2p_count=len(f2p),
            p2p_count=len(p2p),
            f2p_failed=f2p_failed,
            p2p_failed=p2p_failed,
            reason=report.get("infra_failure_reason", ""),
            started=answer["started"],
            ended=answer["ended"],
            exit_code=answer["exit_code"],
        )

    async def close(self) -> None:
        """Stop the worker and its judges; the next request would start another."""
        starting, self._starting = self._starting, None
        if starting is not None:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.end()

    async def _ask(self, op: str, instance: TaskInstance, **more: str) -> dict[str, Any]:
        request = {"op": op, "row": _row(instance), **more}
        if sum(map(len, more.values())) > _LONG_LOG:
            message = await asyncio.to_thread(_message, request)
        else:
            message = _message(request)
        reply: dict[str, Any] = {}
        async with self._room:
            # The judge or the worker may have been killed because the host ran out of memory. An attempt may do no more
            # than find the worker dead.
            for _ in range(_ATTEMPTS):
                reply = await self._exchange(message)
                if "ok" in reply:
                    ok: dict[str, Any] = reply["ok"]
                    return ok
                if "error" in reply:
                    raise GraderBroken(f"swebench {self.version} failed on {instance.instance_id}: {reply['error']}")
                if "unjudgeable" in reply:
                    raise UnjudgeableLog(self._why(reply["unjudgeable"]))
                if why := self._past_bounds(reply):
                    raise UnjudgeableLog(why)
                log.warning("swebench judge died", op=op, instance_id=instance.instance_id, reply=reply)
        if reply.get("signal", SIGKILL) not in (SIGKILL, SIGALRM):
            raise UnjudgeableLog(f"its judge died of {Signals(reply['signal']).name}, {_ATTEMPTS} times")
        raise GraderBroken(f"{_ATTEMPTS} swebench judges of {instance.instance_id} died or were starved of CPU")

    def _why(self, said: str) -> str:
        if said == "memory":
            return f"judging it takes more than {self._judging.memory_mb} MB (SANDBOX_JUDGE_MEMORY_MB)"
        return f"swebench {self.version} fails on it: {said}"

    def _past_bounds(self, reply: dict[str, Any]) -> str:
        """Why the judge was ended because of its log; "" if the log is not known to be the reason."""
        judging = self._judging
        number, cpu_s = reply.get("signal"), reply.get("cpu_s", 0.0)
        if number == SIGXCPU or (number == SIGKILL and cpu_s >= judging.cpu_s):
            return f"judging it takes more than {judging.cpu_s:g} s of CPU (SANDBOX_JUDGE_TIMEOUT_S)"
        # A judge that got no CPU from the host says nothing about its log.
        if number == SIGALRM and cpu_s >= _WORKED * judging.cpu_s:
            return f"judging it takes more than {judging.wall_s:g} s, {cpu_s:.1f} s of CPU (SANDBOX_JUDGE_TIMEOUT_S)"
        return ""

    async def _exchange(self, message: bytes) -> dict[str, Any]:
        """Send one request and return the reply; {} if the worker or the judge died without one."""
        worker = await self._running()
        ours, theirs = socket.socketpair()
        line = b""
        try:
            with theirs:
                if not worker.pass_on(theirs):
                    await self._discard(worker)
                    return {}
            # The judge ends itself long before this deadline.
            async with asyncio.timeout(self._judging.wall_s + _GRACE_S):
                reader, writer = await asyncio.open_connection(sock=ours, limit=_REPLY_BYTES)
                try:
                    writer.write(message)
                    await writer.drain()
                    line = await reader.readline()
                finally:
                    # Drop unsent data too, so that the pair is closed at once: that ends a judge that is still working.
                    writer.transport.abort()
        except ConnectionError:
            pass  # the judge died before it read the whole request
        except TimeoutError:
            await self._discard(worker)  # the worker no longer forks judges
        finally:
            if not line:
                ours.close()
        reply: dict[str, Any] = json.loads(line) if line.endswith(b"\n") else {}
        return reply

    async def _discard(self, worker: "_Worker") -> None:
        if self._worker is worker:
            self._worker = None
        await worker.end()

    async def _running(self) -> "_Worker":
        if self._worker is not None and self._worker.process.returncode is None:
            return self._worker
        if self._starting is None:
            self._starting = asyncio.create_task(self._start(), name="swebench-worker")
            self._starting.add_done_callback(self._started)
        return await asyncio.shield(self._starting)  # a cancelled caller must not cancel the others' start

    def _started(self, starting: "asyncio.Task[_Worker]") -> None:
        if self._starting is starting:
            self._starting = None
            if not starting.cancelled() and starting.exception() is None:
                self._worker = starting.result()

    async def _start(self) -> "_Worker":
        before, self._worker = self._worker, None
        if before is not None:
            await before.end()
        # Isolated and with an empty environment: swebench reads a .env; modal and datasets read the home folder.
        env = {"PATH": os.defpath, "HOME": "/nonexistent", "PYTHON_DOTENV_DISABLED": "1", "HF_HUB_OFFLINE": "1"}
        judging = self._judging
        control, theirs = socket.socketpair()
        control.setblocking(False)
        with theirs:
            bounds = (str(judging.cpu_s), str(judging.wall_s), str(judging.memory_mb << 20))
            arguments = ("-I", "-X", "utf8", str(_WORKER), str(theirs.fileno()), *bounds)
            process = Spawned(
                [sys.executable, *arguments],
                stdin=DEVNULL,
                stdout=DEVNULL,
                stderr=DEVNULL,
                cwd="/",
                env=env,
                pass_fds=(theirs.fileno(),),
            )
        worker = _Worker(process, control)
        said = b""
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._start_timeout_s):
                    said = await asyncio.get_running_loop().sock_recv(control, 1)
        finally:
            if not said:
                await worker.end()
        if not said:
            raise GraderBroken(f"the swebench worker failed to start (bound: {self._start_timeout_s:g} s)")
        return worker


@dataclass(frozen=True, slots=True)
class _Worker:
    """The process that holds the library and forks the judges."""

    process: Spawned
    control: socket.socket

    def pass_on(self, pair: socket.socket) -> bool:
        """Hand `pair` to a new judge. False: the worker is dead, or too far behind to take more."""
        try:
            socket.send_fds(self.control, [b"j"], [pair.fileno()])
        except OSError:
            return False
        return True

    async def end(self) -> None:
        """Kill the worker; its judges end when their callers close the pairs."""
        self.control.close()
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


def _message(request: dict[str, Any]) -> bytes:
    body = json.dumps(request).encode()
    return len(body).to_bytes(8, "big") + body


def _row(instance: TaskInstance) -> dict[str, Any]:
    """`instance` as a row for swebench 5."""
    grader = instance.grader
    assert isinstance(grader, SwebenchGrader)  # the registry chose by kind
    return {
        "instance_id": instance.instance_id,
        "image": next(iter(instance.sandbox.images), ""),
        "repo": instance.repo,
        "version": instance.version,
        "FAIL_TO_PASS": instance.fail_to_pass,
        "PASS_TO_PASS": instance.pass_to_pass,
        "log_parser": grader.log_parser,
        "eval_type": grader.eval_type,
        "eval_script": grader.eval_script,
    }
