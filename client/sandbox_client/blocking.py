"""The typed client for code without an event loop, such as environments that a trainer steps in threads.

All blocking clients of a process share the background event loop and its connections; a call only blocks its thread.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from sandbox_client.answers import CommandResult as BatchResult
from sandbox_client.answers import NextStep, Observation, Reward
from sandbox_client.background import background
from sandbox_client.client import SandboxClient, Session
from sandbox_client.inside import CommandResult, FileInfo

_T = TypeVar("_T")


class BlockingClient:
    """As `SandboxClient`, but each call blocks its thread; never call it on an event loop's own thread."""

    def __init__(self, url: str, *, api_key: str | None = None, run: str | None = None) -> None:
        """`url` is one base URL, or several, comma-separated; `run` as in `SandboxClient`."""
        self._of = (url, api_key, run)

    def start(self, instance: str | int, *, after: str = "") -> str:
        """As `SandboxClient.start`."""
        return self._call(lambda client: client.start(instance, after=after))

    def act(self, sid: str, content: str) -> Observation:
        """As `SandboxClient.act`."""
        return self._call(lambda client: client.act(sid, content))

    def fork(self, sid: str, n: int = 1, *, at: int | None = None) -> Sequence[str]:
        """As `SandboxClient.fork`."""
        return self._call(lambda client: client.fork(sid, n, at=at))

    def rollback(self, sid: str, to: int) -> str:
        """As `SandboxClient.rollback`."""
        return self._call(lambda client: client.rollback(sid, to))

    def token(self, sid: str) -> str:
        """As `SandboxClient.token`."""
        return self._call(lambda client: client.token(sid))

    def finish(self, sid: str) -> NextStep | None:
        """As `SandboxClient.finish`."""
        return self._call(lambda client: client.finish(sid))

    def reward(self, sid: str) -> Reward:
        """As `SandboxClient.reward`."""
        return self._call(lambda client: client.reward(sid))

    def grade(self, items: Sequence[Mapping[str, Any]], **others: Any) -> list[dict[str, Any]]:
        """As `SandboxClient.grade`."""
        return self._call(lambda client: client.grade(items, **others))

    def exec(
        self, sid: str, commands: Sequence[str | Mapping[str, Any]], *, timeout_s: float | None = None
    ) -> list[BatchResult]:
        """As `SandboxClient.exec`."""
        return self._call(lambda client: client.exec(sid, commands, timeout_s=timeout_s))

    def run(self, sid: str, cmd: str | Sequence[str], **how: Any) -> CommandResult:
        """As `Session.run`: `user`, `env`, `cwd`, `timeout_s`, `stdin`."""
        return self._call(lambda client: Session(client, sid).run(cmd, **how))

    def write(self, sid: str, path: str, content: bytes | Path, *, user: str | None = None) -> None:
        """As `Session.write`."""
        return self._call(lambda client: Session(client, sid).write(path, content, user=user))

    def read(self, sid: str, path: str, *, user: str | None = None) -> bytes:
        """As `Session.read`."""
        return self._call(lambda client: Session(client, sid).read(path, user=user))

    def list(self, sid: str, path: str, *, user: str | None = None, depth: int = 1) -> Sequence[FileInfo]:
        """As `Session.list`."""
        return self._call(lambda client: Session(client, sid).list(path, user=user, depth=depth))

    def stat(self, sid: str, path: str, *, user: str | None = None) -> FileInfo:
        """As `Session.stat`."""
        return self._call(lambda client: Session(client, sid).stat(path, user=user))

    def end_run(self, run: str | None = None) -> int:
        """As `SandboxClient.end_run`."""
        return self._call(lambda client: client.end_run(run))

    def _call(self, request: Callable[[SandboxClient], Awaitable[_T]]) -> _T:
        home = background()

        async def called() -> _T:
            return await request(home.client(*self._of))

        # no timeout needed: each of the client's calls ends within its own
        return home.submit(called()).result()
