"""Uni-Agent sandboxes on this service: a session, and a box. `sandbox_client.uni_agent` registers them."""

from __future__ import annotations

import base64
import logging
import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from shlex import join, quote
from typing import Any

from uni_agent.sandbox import ExecResult, Sandbox, SandboxConfig

from sandbox_client import environment, runs
from sandbox_client.answers import CommandResult, Reward
from sandbox_client.boxes import Box
from sandbox_client.client import SandboxClient
from sandbox_client.errors import CommandTimedOut, RequestRejected, SandboxError, SettingsError, UnknownFile

_LOGGER = logging.getLogger(__name__)

_READ_BYTES = 21_000
"""Bytes of a file read by one command; as base64 below the service's limit on a command's output."""
_READS = 32
"""Read commands in one batch; together below the service's limit on a batch's output."""
_WRITE_BYTES = 60_000
"""Bytes of a file written by one command; as base64 below Linux's limit on one argument."""

_SHELL = """\
state=$1
trap 'code=$?; { pwd >"$state.cwd"; { declare -p; declare -f; alias -p; shopt -p; set +o; } >"$state.part" &&
    mv "$state.part" "$state"; } 2>/dev/null; exit $code' EXIT
shopt -s expand_aliases
[ ! -e "$state.cwd" ] || cd "$(cat "$state.cwd")"
[ ! -e "$state" ] || . "$state" >/dev/null 2>&1
eval "$2"
"""
"""Persists a shell's state between commands: folder, variables (exported or not), functions, aliases, options."""


class _Shell:
    """A shell that passes its state from one command to the next in a file in the sandbox."""

    def __init__(self, sandbox: _Native, cwd: str | None, env: Mapping[str, str]) -> None:
        self._sandbox, self._cwd, self._env = sandbox, cwd, dict(env)
        self._state = f"/tmp/.shell-{uuid.uuid4().hex}"

    async def run(self, command: str, *, timeout: float | None = None) -> ExecResult:
        """Run a command. Raises TimeoutError with the output so far: it was killed, the shell's state is unchanged."""
        argv = ["bash", "-c", _SHELL, "bash", self._state, command]
        return await self._sandbox.told(argv, timeout=timeout, workdir=self._cwd, env=self._env)

    async def close(self) -> None:
        """Do nothing: no process runs between commands."""


class _Native(Sandbox):  # type: ignore[misc]  # Uni-Agent has no types
    """Common base: a shell that needs nothing installed, and the service's first fault."""

    supports_shell = True

    def __init__(self) -> None:
        self.fault = ""
        """The service's first fault, after which the episode says nothing about the policy; "": none so far."""

    async def open_shell(self, *, cwd: str | None = None, env: Mapping[str, str] | None = None) -> _Shell:
        """Open a shell with its own folder and variables."""
        return _Shell(self, cwd, env or {})

    async def is_alive(self) -> bool:
        """False once the service has failed, so that Uni-Agent does not take the fault for a failed command."""
        return not self.fault

    async def _exec(
        self,
        argv: list[str],
        *,
        timeout: float | None = None,
        workdir: str | None = None,
        env: dict[str, str] | None = None,
    ) -> ExecResult:
        return await self.told(argv, timeout=timeout, workdir=workdir, env=env or {})

    async def told(
        self, argv: Sequence[str], *, timeout: float | None, workdir: str | None, env: Mapping[str, str]
    ) -> ExecResult:
        """Run a command; return its result. Raises TimeoutError, SandboxError."""
        raise NotImplementedError

    def failed(self, error: SandboxError) -> SandboxError:
        """Record the error as `fault` if it is the first; return it."""
        self.fault = self.fault or str(error) or type(error).__name__
        return error


class SessionSandbox(_Native):
    """A session of a catalogue instance, which `sandbox_kwargs: {instance: ...}` names."""

    def __init__(self, instance: str, *, command_timeout_s: float = 100.0) -> None:
        """`command_timeout_s`: at most the service's SANDBOX_COMMAND_TIMEOUT_S, which limits any command's timeout."""
        super().__init__()
        self.sid = ""
        self._instance, self._most_s = instance, command_timeout_s
        self._client: SandboxClient | None = None
        self._is_over = False

    @classmethod
    def from_config(cls, config: SandboxConfig) -> SessionSandbox:
        """Create from `sandbox_kwargs`. Raises SettingsError: they name no instance."""
        if not config.sandbox_kwargs.get("instance"):
            raise SettingsError("sandbox_session needs sandbox_kwargs: {instance: ...}; the task `sandbox` gives it")
        return cls(**config.sandbox_kwargs)

    async def start(self) -> None:
        """Start the session. Raises SandboxError; SettingsError: `command_timeout_s` is above the service's limit."""
        runs.keep_alive()
        self._client = SandboxClient(environment.base_urls())
        self.sid, self._is_over, self.fault = await self._client.start(self._instance), False, ""
        try:  # with a timeout above the service's limit every command is refused, as if the policy had erred
            await self._client.exec(self.sid, [{"command": "true", "timeout_s": self._most_s}])
        except RequestRejected as error:
            raise SettingsError(
                f"the service runs no command for {self._most_s:g} s; set sandbox_kwargs.command_timeout_s to its"
                f" SANDBOX_COMMAND_TIMEOUT_S: {error}"
            ) from None

    async def stop(self) -> None:
        """End the session. Errors are only logged, because the reward is known or lost by then."""
        client, self._client = self._client, None
        if client is None:
            return
        try:
            if self.sid and not self._is_over:
                await client.finish(self.sid)
        except SandboxError as error:  # the service's idle timeout ends the session
            _LOGGER.error("session %s could not be finished: %s", self.sid, error)
        finally:
            await client.aclose()

    async def reward(self) -> Reward:
        """Get the reward, which ends the session. Raises SandboxError."""
        reward = await self._there().reward(self.sid)
        self._is_over = True
        return reward

    async def told(
        self, argv: Sequence[str], *, timeout: float | None, workdir: str | None, env: Mapping[str, str]
    ) -> ExecResult:
        """As `_Native.told`."""
        asked: dict[str, Any] = {"command": join(argv), "env": dict(env)} | ({"cwd": workdir} if workdir else {})
        asked["timeout_s"] = self._most_s if timeout is None else min(timeout, self._most_s)
        try:
            (result,) = await self._batch([asked])
        except RequestRejected as error:  # invalid command, or the session has ended: its reward counts
            return ExecResult(127, "", str(error))
        if result.timed_out:
            raise TimeoutError(f"after {asked['timeout_s']:g} s; so far: {result.stdout}{result.stderr}")
        return ExecResult(-1 if result.exit_code is None else result.exit_code, result.stdout, result.stderr)

    async def read_file(self, path: str) -> bytes:
        """Read a file of any size. Raises RuntimeError: it cannot be read."""
        size = await self.exec(["stat", "-L", "-c", "%s %F", path])
        words = size.stdout.split(maxsplit=1)
        if size.exit_code != 0 or len(words) < 2 or "regular" not in words[1]:
            raise RuntimeError(f"read_file {path!r} failed: {size.stderr.strip() or 'not a file'}")
        read = f"set -o pipefail; dd if={quote(path)} bs={_READ_BYTES} count=1 status=none"
        parts = [{"command": f"{read} skip={n} | base64 -w 0"} for n in range(-(-int(words[0]) // _READ_BYTES))]
        content = b""
        for first in range(0, len(parts), _READS):
            for result in await self._batch(parts[first : first + _READS]):
                if result.exit_code != 0 or result.truncated:
                    raise RuntimeError(f"read_file {path!r} failed: {result.stderr.strip()}")
                content += base64.b64decode(result.stdout)
        return content

    async def write_file(self, path: str, content: bytes | str) -> None:
        """Write a file of any size, creating missing folders. Raises RuntimeError: it cannot be written."""
        data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
        made = f'mkdir -p "$(dirname {quote(path)})" && '
        for at in range(0, max(len(data), 1), _WRITE_BYTES):
            part = base64.b64encode(data[at : at + _WRITE_BYTES]).decode("ascii")
            done = await self.exec_shell(f"{made}printf %s {part} | base64 -d {'>>' if at else '>'} {quote(path)}")
            if done.exit_code != 0:
                raise RuntimeError(f"write_file {path!r} failed: {done.stderr.strip()}")
            made = ""

    async def _batch(self, commands: Sequence[Mapping[str, Any]]) -> list[CommandResult]:
        try:
            results = await self._there().exec(self.sid, commands)
            broken = next((result.error for result in results if result.error), "")
            if broken and broken != "command_broken":  # which the policy caused itself
                raise SandboxError(broken)
        except RequestRejected:
            raise
        except SandboxError as error:
            raise self.failed(error) from None
        return results

    def _there(self) -> SandboxClient:
        if self._client is None:
            raise SettingsError("the sandbox is used before its start, or after its stop")
        return self._client


class BoxSandbox(_Native):
    """A box of `image`, which the service must allow for boxes; it ends `runtime_timeout` after its start."""

    def __init__(self, image: str, *, lifetime_s: float | None = None, **others: Any) -> None:
        """`others` go to `sandbox_client.boxes.Box`: size, network, env, metadata."""
        super().__init__()
        self._make = partial(Box, image, lifetime_s=lifetime_s, **others)
        self._box: Box | None = None

    @classmethod
    def from_config(cls, config: SandboxConfig) -> BoxSandbox:
        """Create from the configuration; `sandbox_kwargs` go to the box."""
        return cls(config.image, lifetime_s=config.runtime_timeout, **config.sandbox_kwargs)

    async def start(self) -> None:
        """Create the box. Raises SandboxError."""
        runs.keep_alive()
        self.fault = ""
        self._box = self._make()
        await self._box.create()

    async def stop(self) -> None:
        """Kill the box. Errors are only logged, because it ends with its lifetime."""
        box, self._box = self._box, None
        if box is None:
            return
        try:
            if box.sid:
                await box.kill()
        except SandboxError as error:
            _LOGGER.error("box %s could not be killed: %s", box.sid, error)
        finally:
            await box.aclose()

    async def told(
        self, argv: Sequence[str], *, timeout: float | None, workdir: str | None, env: Mapping[str, str]
    ) -> ExecResult:
        """As `_Native.told`."""
        try:
            done = await self._there().run(argv, env=env, cwd=workdir, timeout_s=timeout)
        except CommandTimedOut as error:
            raise TimeoutError(f"{error}; so far: {error.stdout}{error.stderr}") from None
        except RequestRejected as error:
            return ExecResult(127, "", str(error))
        except SandboxError as error:
            raise self.failed(error) from None
        return ExecResult(done.exit_code, done.stdout, done.stderr)

    async def read_file(self, path: str) -> bytes:
        """Read a file. Raises RuntimeError: there is no such file. SandboxError."""
        try:
            return await self._there().read(path)
        except UnknownFile as error:
            raise RuntimeError(f"read_file {path!r} failed: {error}") from None
        except SandboxError as error:
            raise self.failed(error) from None

    async def write_file(self, path: str, content: bytes | str) -> None:
        """Write a file, creating missing folders. Raises SandboxError."""
        data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
        try:
            await self._there().write(path, data)
        except SandboxError as error:
            raise self.failed(error) from None

    async def upload_file(self, local_file: Path | str, remote_file: str) -> None:
        """Write a local file; a large one is sent once per host, then copied for later boxes. Raises SandboxError."""
        try:
            await self._there().write(remote_file, Path(local_file))
        except SandboxError as error:
            raise self.failed(error) from None

    def _there(self) -> Box:
        if self._box is None:
            raise SettingsError("the sandbox is used before its start, or after its stop")
        return self._box
