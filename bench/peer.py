"""A peer in an environment and a process of its own, asked by JSON lines; the times it tells are taken inside it."""

import asyncio
import json
import os
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from pathlib import Path
from typing import Any

_DRIVERS = Path(__file__).parent / "peers"
_ENVIRONMENTS = Path(__file__).parent / ".peers"
_LINE_BYTES = 1 << 26
_CLOSE_S = 20.0


class PeerFailed(RuntimeError):
    """The peer is not installed, died, did not answer in time, or says itself that it failed."""


class Peer:
    """The process of one driver, `bench/peers/drive_<driver>.py`."""

    def __init__(self, driver: str, environment: str | None = None) -> None:
        """`environment` is a folder of bench/.peers; None: this very interpreter's."""
        self.name = driver
        self._python = Path(sys.executable) if environment is None else _ENVIRONMENTS / environment / "bin" / "python"
        self._process: Process | None = None
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - open for as long as the process may write to it

    async def ask(self, op: str, *, timeout_s: float = 120.0, **fields: object) -> dict[str, Any]:
        """One request and its answer.

        Raises:
            PeerFailed: the process is killed when it did not answer in time.

        """
        process = self._process or await self._start()
        assert process.stdin is not None and process.stdout is not None  # both are pipes
        try:
            async with asyncio.timeout(timeout_s):
                process.stdin.write(json.dumps({"op": op, **fields}).encode() + b"\n")
                await process.stdin.drain()
                line = await process.stdout.readline()
        except TimeoutError:
            await self.close(wait_s=0)
            raise PeerFailed(f"{self.name}: no answer to {op} within {timeout_s:g} s") from None
        except ConnectionError:
            line = b""
        if not line:
            said = await self._last_words()
            raise PeerFailed(f"{self.name}: died at {op}: {said}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise PeerFailed(f"{self.name}: {answer['error']}")
        return answer

    async def close(self, *, wait_s: float = _CLOSE_S) -> None:
        """The end of its input asks it to clean up and go; past `wait_s` its whole process group is killed."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(wait_s):
                await process.wait()
        except TimeoutError:
            pass
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # also what it started itself
            await process.wait()

    async def _start(self) -> Process:
        if not self._python.exists():
            raise PeerFailed(f"{self.name}: its environment is not installed (make bench installs it)")
        # Own session: an interrupt at the terminal is for the run, which then ends its peers in order.
        self._process = await asyncio.create_subprocess_exec(
            self._python,
            _DRIVERS,
            f"drive_{self.name}",
            stdin=PIPE,
            stdout=PIPE,
            stderr=self._said,
            limit=_LINE_BYTES,
            start_new_session=True,
        )
        return self._process

    async def _last_words(self) -> str:
        await self.close()
        self._said.seek(0)
        return self._said.read().decode(errors="replace").strip()[-500:]
