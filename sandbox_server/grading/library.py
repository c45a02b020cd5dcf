"""The swebench library as the rest of the service sees it: asked through its worker process, never imported."""

import asyncio
import contextlib
import json
import os
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections import OrderedDict
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from signal import SIGALRM, SIGKILL, SIGXCPU, Signals
from typing import Any

from sandbox_server.catalogue.instance import SwebenchGrader, TaskInstance
from sandbox_server.errors import GraderBroken
from sandbox_server.grading.base import Judging
from sandbox_server.telemetry import logger

_WORKER = Path(__file__).with_name("worker.py")
_REPLY_BYTES = 1 << 27  # the longest lists of tests are a few MB
_SCRIPTS = 256  # kept; some 10 KB each
_AT_A_TIME = 64  # a backstop: gradings have slots, and each asks for one thing at a time
_WORKED = 0.2  # of the CPU bound: an honest log of 8 MB takes less than a second
_GRACE_S = 10.0
_ATTEMPTS = 3
_LONG_LOG = 1 << 18  # characters; a longer one takes the event loop milliseconds to encode

log = logger(__name__)


@dataclass(frozen=True, slots=True)
class LibraryReport:
    """What the library made of one log."""

    usable: bool
    """It found results that it trusts; without them there are no counts."""
    resolved: bool
    f2p_count: int
    p2p_count: int
    """How many of the row's tests count as passed."""
    f2p_failed: tuple[str, ...]
    p2p_failed: tuple[str, ...]
    reason: str
    """The library's own guess at why nothing was usable (`classify_logs`); advice only."""
    started: bool
    ended: bool
    """Whether the markers around the tests' output are in the log."""
    exit_code: int | None
    """Of the test command, as the script recorded it."""


class UnjudgeableLog(Exception):
    """The library cannot judge this log within its bounds, or at all; the text says why, as the end of a sentence."""


class SwebenchLibrary:
    """One worker process, started at the first request and again after it died; each request has a judge of its own."""

    version: str = version("swebench")

    def __init__(self, judging: Judging | None = None, *, start_timeout_s: float = 60.0) -> None:
        """`judging` bounds one request, `start_timeout_s` the library's import."""
        self._judging = judging or Judging()
        self._start_timeout_s = start_timeout_s
        self._room = asyncio.Semaphore(_AT_A_TIME)
        self._worker: _Worker | None = None
        self._starting: asyncio.Task[_Worker] | None = None
        self._scripts: OrderedDict[str, tuple[dict[str, Any], str]] = OrderedDict()
        """instance_id -> (row, script); the least used first."""

    async def script(self, instance: TaskInstance) -> str:
        """The script to run for `instance`; on return the worker runs too.

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
        except UnjudgeableLog as error:  # there is no log: its row does it
            raise GraderBroken(f"swebench {self.version} failed on {instance.instance_id}: {error}") from None
        self._scripts[instance.instance_id] = (row, script)
        if len(self._scripts) > _SCRIPTS:
            self._scripts.popitem(last=False)
        return script

    async def report(self, instance: TaskInstance, test_log: str) -> LibraryReport:
        """Judge a log.

        Raises:
            UnjudgeableLog: it takes more time or memory than any honest log, or the library fails on it.
            GraderBroken: the library or its worker failed whatever the log is.

        """
        answer = await self._ask("report", instance, log=test_log)
        report = answer["report"]
        tests = report.get("tests_status", {})

        def names(group: str, outcome: str) -> tuple[str, ...]:
            return tuple(tests.get(group, {}).get(outcome, ()))

        return LibraryReport(
            usable=report["patch_successfully_applied"],  # the library's name for "a usable log was found"
            resolved=report["resolved"],
            f2p_count=len(names("FAIL_TO_PASS", "success")),
            p2p_count=len(names("PASS_TO_PASS", "success")),
            f2p_failed=names("FAIL_TO_PASS", "failure"),
            p2p_failed=names("PASS_TO_PASS", "failure"),
            reason=report.get("infra_failure_reason", ""),
            started=answer["started"],
            ended=answer["ended"],
            exit_code=answer["exit_code"],
        )

    async def close(self) -> None:
        """End the worker and its judges; the next request would start another."""
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
            # the host's memory may have ended the judge, or the worker, which one attempt may only find out
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
        raise GraderBroken(f"{_ATTEMPTS} swebench judges of {instance.instance_id} died, or had no CPU to work with")

    def _why(self, said: str) -> str:
        if said == "memory":
            return f"judging it takes more than {self._judging.memory_mb} MB (SANDBOX_JUDGE_MEMORY_MB)"
        return f"swebench {self.version} fails on it: {said}"

    def _past_bounds(self, reply: dict[str, Any]) -> str:
        """Why the judge that left `reply` was ended for its log; "" where the log is not known to have a part in it."""
        judging = self._judging
        number, cpu_s = reply.get("signal"), reply.get("cpu_s", 0.0)
        if number == SIGXCPU or (number == SIGKILL and cpu_s >= judging.cpu_s):
            return f"judging it takes more than {judging.cpu_s:g} s of CPU (SANDBOX_JUDGE_TIMEOUT_S)"
        # one that the host let have no CPU shows nothing of its log
        if number == SIGALRM and cpu_s >= _WORKED * judging.cpu_s:
            return f"judging it takes more than {judging.wall_s:g} s, {cpu_s:.1f} s of CPU (SANDBOX_JUDGE_TIMEOUT_S)"
        return ""

    async def _exchange(self, message: bytes) -> dict[str, Any]:
        """One request and its reply; {} where the worker or the judge died without a word."""
        worker = await self._running()
        ours, theirs = socket.socketpair()
        line = b""
        try:
            with theirs:
                if not worker.pass_on(theirs):
                    await self._discard(worker)
                    return {}
            # the judge has ended itself long before
            async with asyncio.timeout(self._judging.wall_s + _GRACE_S):
                reader, writer = await asyncio.open_connection(sock=ours, limit=_REPLY_BYTES)
                try:
                    writer.write(message)
                    await writer.drain()
                    line = await reader.readline()
                finally:
                    # at once, also what is not yet written: a closed pair ends a judge that still works
                    writer.transport.abort()
        except ConnectionError:
            pass  # it died before it read everything
        except TimeoutError:
            await self._discard(worker)  # it forks no judges any more
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
        return await asyncio.shield(self._starting)  # who leaves takes nothing from the others

    def _started(self, starting: "asyncio.Task[_Worker]") -> None:
        if self._starting is starting:
            self._starting = None
            if not starting.cancelled() and starting.exception() is None:
                self._worker = starting.result()

    async def _start(self) -> "_Worker":
        before, self._worker = self._worker, None
        if before is not None:
            await before.end()
        # Isolated, in an empty environment: swebench reads a .env, modal and datasets read the home folder.
        env = {"PATH": os.defpath, "HOME": "/nonexistent", "PYTHON_DOTENV_DISABLED": "1", "HF_HUB_OFFLINE": "1"}
        judging = self._judging
        control, theirs = socket.socketpair()
        control.setblocking(False)
        with theirs:
            bounds = (str(judging.cpu_s), str(judging.wall_s), str(judging.memory_mb << 20))
            arguments = ("-I", "-X", "utf8", str(_WORKER), str(theirs.fileno()), *bounds)
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *arguments,
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
    """The process that has the library and forks the judges."""

    process: Process
    control: socket.socket

    def pass_on(self, pair: socket.socket) -> bool:
        """Have a judge at this end; False: the worker is dead, or so far behind that it takes nothing more."""
        try:
            socket.send_fds(self.control, [b"j"], [pair.fileno()])
        except OSError:
            return False
        return True

    async def end(self) -> None:
        """Its judges end with their askers."""
        self.control.close()
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


def _message(request: dict[str, Any]) -> bytes:
    body = json.dumps(request).encode()
    return len(body).to_bytes(8, "big") + body


def _row(instance: TaskInstance) -> dict[str, Any]:
    """`instance` in the shape that swebench 5 takes."""
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
