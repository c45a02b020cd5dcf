"""Runs one git command off the event loop, bounded, together with its children, and without any credentials.

GitPython would not do: its timeout ends git but not the programs that git started to talk to a server, and it reads
git's progress in unbounded threads.
"""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO

from sandbox_server.spawned import Spawned, reading

_LOOK_S = 0.25
_SAID = 8192  # bytes kept of the end of stderr
_ANSWER = 1 << 26  # bytes of an answer; lists of files and commits are far smaller
_PASSED_ON = ("PATH", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO", "CURL_CA_BUNDLE")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")

_CONFIG = """\
[safe]
\tdirectory = *
[core]
\thooksPath = /dev/null
\taskPass = false
\tattributesFile = /dev/null
\texcludesFile = /dev/null
[credential]
\thelper =
[gc]
\tauto = 0
[maintenance]
\tauto = false
[fetch]
\tunpackLimit = 1
\twriteCommitGraph = false
\trecurseSubmodules = false
[pack]
\tthreads = 2
[index]
\tthreads = 1
[advice]
\tdetachedHead = false
"""


class GitFailed(Exception):
    """A git command failed; `said` is the end of its stderr, or why it was stopped."""

    def __init__(self, said: str, *, ended_by_us: bool = False) -> None:
        super().__init__(said)
        self.said = said
        self.ended_by_us = ended_by_us


def environment(home: Path, protocols: Sequence[str]) -> dict[str, str]:
    """Environment for git without the host's configuration, credentials, hooks, templates and terminal; creates `home`.

    Git may use only `protocols`. The host's proxies and certificates are passed on.
    """
    home.mkdir(parents=True, exist_ok=True)
    config = home / "gitconfig"
    if not config.exists() or config.read_text() != _CONFIG:
        fresh = home / f"gitconfig.{os.getpid()}"
        fresh.write_text(_CONFIG)
        fresh.replace(config)
    names = (*_PASSED_ON, *_PROXIES, *(name.upper() for name in _PROXIES))
    return {name: os.environ[name] for name in names if name in os.environ} | {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home),
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": str(config),
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TEMPLATE_DIR": "",
        "GIT_DEFAULT_REF_FORMAT": "files",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "false",
        "SSH_ASKPASS": "false",
        "GIT_SSH_COMMAND": "false",
        "GIT_ALLOW_PROTOCOL": ":".join(protocols),
        "GIT_PROTOCOL_FROM_USER": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_FLUSH": "1",
    }


async def run_git(
    words: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout_s: float,
    silence_s: float | None = None,
    stdin: bytes | IO[bytes] = b"",
    stdout: IO[bytes] | None = None,
    held: tuple[int, ...] = (),
    objection: Callable[[], str] = lambda: "",
) -> bytes:
    """Run git and return its stdout (at most 64 MiB; empty if `stdout` is given, which then receives it).

    Git and everything it started are gone when this returns or raises, also if the caller is cancelled. It is killed
    after `timeout_s` seconds, after `silence_s` seconds without output on stderr (for commands that report progress),
    or once `objection()`, called every quarter of a second, returns a text. `held` are open files (locks) that git
    keeps as long as it lives, which may be longer than this process.

    Raises:
        GitFailed.

    """
    async with _given(stdin) as given:
        process = Spawned(
            ["git", *words],
            cwd=cwd,
            env=dict(env),
            stdin=given,
            stdout=subprocess.PIPE if stdout is None else stdout,
            stderr=subprocess.PIPE,
            start_new_session=True,
            pass_fds=held,
        )
    run = _Run(process)
    tasks = [asyncio.create_task(run.listen()), asyncio.create_task(run.collect())]
    try:
        await run.until_ended(timeout_s, silence_s, objection)
        # Its children may still hold the pipes, but not for long: none of its commands leaves any behind.
        await asyncio.wait(tasks, timeout=5.0)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.shield(process.wait())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if process.returncode != 0:
        raise GitFailed(run.said.decode("utf-8", "replace").strip() or f"exit code {process.returncode}")
    return bytes(run.answer)


@asynccontextmanager
async def _given(stdin: bytes | IO[bytes]) -> AsyncIterator[int | IO[bytes]]:
    """`stdin` in a form that `subprocess.Popen` takes; bytes are put into a file in memory."""
    if not isinstance(stdin, bytes):
        yield stdin
    elif not stdin:
        yield subprocess.DEVNULL
    else:
        with os.fdopen(os.memfd_create("stdin"), "w+b") as file:
            await asyncio.to_thread(file.write, stdin)
            file.seek(0)
            yield file


class _Run:
    def __init__(self, process: Spawned) -> None:
        self._process = process
        self._heard = asyncio.get_running_loop().time()
        self.said = b""
        self.answer = bytearray()

    async def listen(self) -> None:
        assert self._process.stderr is not None
        with reading(self._process.stderr) as stderr:
            while chunk := await stderr.read(4096):
                self._heard = asyncio.get_running_loop().time()
                self.said = (self.said + chunk)[-_SAID:]

    async def collect(self) -> None:
        if self._process.stdout is None:
            return
        with reading(self._process.stdout) as stdout:
            while chunk := await stdout.read(1 << 16):
                self.answer += chunk
                if len(self.answer) > _ANSWER:
                    self._process.kill()
                    self.said += b"\nfatal: the answer is longer than 64 MiB"
                    return

    async def until_ended(self, timeout_s: float, silence_s: float | None, objection: Callable[[], str]) -> None:
        loop = asyncio.get_running_loop()
        ended = asyncio.create_task(self._process.wait())
        began = loop.time()
        try:
            while not ended.done():
                await asyncio.wait({ended}, timeout=_LOOK_S)
                now = loop.time()
                if ended.done():
                    return
                if now - began > timeout_s:
                    raise GitFailed(f"it did not end within {timeout_s:g} s{self._so_far()}", ended_by_us=True)
                if silence_s is not None and now - self._heard > silence_s:
                    raise GitFailed(f"nothing came for {silence_s:g} s{self._so_far()}", ended_by_us=True)
                if why := objection():
                    raise GitFailed(why, ended_by_us=True)
        finally:
            ended.cancel()

    def _so_far(self) -> str:
        last = self.said.replace(b"\r", b"\n").strip().rpartition(b"\n")[2].decode("utf-8", "replace")
        return f" (last words: {last})" if last else ""
