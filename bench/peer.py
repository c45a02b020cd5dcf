"""A peer in its own environment and process, driven by JSON lines; it measures its times itself."""

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
    """The peer is not installed, died, did not answer in time, or reported a failure."""


class Peer:
    """The process of a driver, `bench/peers/drive_<driver>.py`."""

    def __init__(self, driver: str, environment: str | None = None) -> None:
        """`environment`: a folder of bench/.peers; None: this interpreter's environment."""
        self.name = driver
        self._python = Path(sys.executable) if environment is None else _ENVIRONMENTS / environment / "bin" / "python"
        self._process: Process | None = None
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - open for as long as the process may write to it

    async def ask(self, op: str, *, timeout_s: float = 120.0, **fields: object) -> dict[str, Any]:
        """Send a request and return the response.

        Raises:
            PeerFailed: also if it did not answer in time; the process is then killed.

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
        """Close its input, so that it cleans up and ends; after `wait_s` kill its whole process group."""
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
                os.killpg(process.pid, signal.SIGKILL)  # including processes that it started
            await process.wait()

    async def _start(self) -> Process:
        if not self._python.exists():
            raise PeerFailed(f"{self.name}: its environment is not installed (make bench installs it)")
        # own session: an interrupt at the terminal reaches only this run, which then ends its peers in order
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
