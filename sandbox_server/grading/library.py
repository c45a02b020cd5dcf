"""The swebench library as the rest of the service sees it: asked through its worker process, never imported."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import OrderedDict
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sandbox_server.catalogue.instance import SwebenchGrader, TaskInstance
from sandbox_server.errors import GraderBroken
from sandbox_server.telemetry import logger

_WORKER = Path(__file__).with_name("worker.py")
_REPLY_BYTES = 1 << 27  # the longest lists of tests are a few MB
_SCRIPTS = 256  # kept; some 10 KB each
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


class SwebenchLibrary:
    """One worker process: started at the first request, again after it died; one request at a time."""

    version: str = version("swebench")

    def __init__(self, *, request_timeout_s: float = 60.0, start_timeout_s: float = 60.0) -> None:
        """`request_timeout_s` bounds one request, `start_timeout_s` is added while the library is not yet imported."""
        self._request_timeout_s = request_timeout_s
        self._start_timeout_s = start_timeout_s
        self._turn = asyncio.Lock()
        self._process: Process | None = None
        self._scripts: OrderedDict[str, tuple[dict[str, Any], str]] = OrderedDict()
        """instance_id -> (row, script); the least used first."""

    async def script(self, instance: TaskInstance) -> str:
        """The script to run for `instance`; on return the worker runs too.

        Raises:
            GraderBroken: the row is unusable, or the worker failed.

        """
        row = _row(instance)
        if self._process is not None and self._process.returncode is None:
            known, script = self._scripts.get(instance.instance_id, (None, ""))
            if known == row:
                self._scripts.move_to_end(instance.instance_id)
                return script
        script = str((await self._ask("script", instance))["script"])
        self._scripts[instance.instance_id] = (row, script)
        if len(self._scripts) > _SCRIPTS:
            self._scripts.popitem(last=False)
        return script

    async def report(self, instance: TaskInstance, test_log: str) -> LibraryReport:
        """Judge a log.

        Raises:
            GraderBroken: the library or its worker failed on it.

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
        """End the worker; the next request would start another."""
        async with self._turn:
            await self._end()

    async def _ask(self, op: str, instance: TaskInstance, **more: str) -> dict[str, Any]:
        async with self._turn:
            # An idle worker may have died unseen (out of memory): its replacement is asked once more.
            reply = await self._exchange(op, instance, more) or await self._exchange(op, instance, more)
        if reply is None:
            raise GraderBroken(f"the swebench worker died twice on {instance.instance_id}")
        if "error" in reply:
            raise GraderBroken(f"swebench {self.version} failed on {instance.instance_id}: {reply['error']}")
        ok: dict[str, Any] = reply["ok"]
        return ok

    async def _exchange(self, op: str, instance: TaskInstance, more: dict[str, str]) -> dict[str, Any] | None:
        """One request and its reply; None when the worker died of it."""
        bound_s = self._request_timeout_s
        if self._process is None or self._process.returncode is not None:
            await self._end()
            self._process = await self._start()
            bound_s += self._start_timeout_s
        process = self._process
        assert process.stdin is not None and process.stdout is not None  # both are pipes
        request = {"op": op, "row": _row(instance), "bound_s": bound_s, **more}
        if sum(map(len, more.values())) > _LONG_LOG:
            line = await asyncio.to_thread(_line, request)
        else:
            line = _line(request)
        reply = b""
        try:
            async with asyncio.timeout(bound_s):
                process.stdin.write(line)
                await process.stdin.drain()
                reply = await process.stdout.readline()
        except ConnectionError:
            pass  # it died before it read everything
        except TimeoutError:
            raise GraderBroken(f"swebench did not judge {instance.instance_id} within {bound_s:.0f} s") from None
        finally:
            # Also when cancelled: a reply that comes late would be taken for the next request's.
            if not reply.endswith(b"\n"):
                await asyncio.shield(self._end())
        if not reply.endswith(b"\n"):
            log.warning("swebench worker died", op=op, instance_id=instance.instance_id)
            return None
        answer: dict[str, Any] = json.loads(reply)
        return answer

    async def _start(self) -> Process:
        # Isolated, in an empty environment: swebench reads a .env, modal and datasets read the home folder.
        env = {"PATH": os.defpath, "HOME": "/nonexistent", "PYTHON_DOTENV_DISABLED": "1", "HF_HUB_OFFLINE": "1"}
        arguments = ("-I", "-X", "utf8", str(_WORKER))
        return await asyncio.create_subprocess_exec(
            sys.executable, *arguments, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, cwd="/", env=env, limit=_REPLY_BYTES
        )

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            process.kill()
        await process.communicate()


def _line(request: dict[str, Any]) -> bytes:
    return json.dumps(request).encode() + b"\n"


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
