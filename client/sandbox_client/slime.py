"""slime's sandbox on this service: replaces `slime.agent.sandbox.E2BSandbox`, using the service's own API.

Improvements: commands are waited for instead of polled, files that every sandbox gets (Node, the agent's CLI) are
sent once per host, no command runs twice, and errors have types. SANDBOX_URL names the service; slime's own variables
for lifetime, retries, size and image key apply.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from types import TracebackType

from sandbox_client.boxes import Box, CommandResult
from sandbox_client.errors import CommandFailed, CommandLost, SandboxError, SettingsError, UnknownFile

_LOGGER = logging.getLogger(__name__)

EXIT_TIME_BUDGET_EXCEEDED = -1
"""Exit code that `exec_and_wait` returns for a command that is still running after its time budget."""

_POLL_S = 5.0
_TAIL_BYTES = 512
_RETRY_S = 10.0  # retry time for each of slime's retries
_NO_LIMIT = (0, None)  # timeouts that mean no limit to E2B


class DockerServiceSandbox:
    """A `slime.agent.sandbox.Sandbox` that `slime_generate` puts in place of E2BSandbox in slime's examples."""

    default_lifetime_sec = 3600
    default_rpc_retries = 6
    default_size = "md"
    task_image: str | None = None
    """As in `Box`; None: the service's default."""

    def __init__(
        self,
        image: str,
        *,
        timeout: int | None = None,
        image_metadata_key: str | None = None,
        rpc_retries: int | None = None,
        size: str | None = None,
        **unknown: object,
    ) -> None:
        """`timeout`: lifetime in seconds. `unknown`: further arguments from forks of slime, which are ignored.

        Nothing is sent before `async with`.
        """
        self.image = image
        self.timeout = timeout if timeout is not None else _number("LIFETIME_SEC", self.default_lifetime_sec)
        self.image_metadata_key = image_metadata_key or _variable("IMAGE_METADATA_KEY") or None
        self.rpc_retries = rpc_retries if rpc_retries is not None else _number("RPC_RETRIES", self.default_rpc_retries)
        self.size = size if size is not None else _variable("SIZE") or self.default_size
        self.sandbox_id = ""
        self._box: Box | None = None
        if unknown:
            _LOGGER.debug("left aside: %s", ", ".join(unknown))

    async def __aenter__(self) -> DockerServiceSandbox:
        box = Box(
            self.image,
            size=self.size or None,
            lifetime_s=self.timeout,
            metadata={self.image_metadata_key: self.image} if self.image_metadata_key else {},
            task_image=self.task_image,
            retry_s=_RETRY_S * self.rpc_retries,
        )
        self._box = await box.__aenter__()
        self.sandbox_id = box.sid
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        box, self._box = self._box, None
        if box is None:
            return
        try:
            await box.__aexit__(exc_type, exc, tb)
        except SandboxError as error:  # it ends with its lifetime
            _LOGGER.warning("sandbox %s could not be killed: %s", self.sandbox_id, error)

    async def exec(
        self,
        cmd: str,
        *,
        user: str = "root",
        env: dict[str, str] | None = None,
        timeout: int = 120,
        check: bool = False,
        idempotent: bool = True,
    ) -> tuple[int, str, str]:
        """Run a shell command; return (exit code, stdout, stderr). It runs once, whatever `idempotent` says.

        Raises:
            CommandTimedOut: it exceeded `timeout` seconds, whatever `check` says.
            CommandFailed (a RuntimeError): `check` is set and its exit code is not 0.
            SandboxError: the call failed.
        """
        limit_s = None if timeout in _NO_LIMIT else timeout
        done = await self._there().run(cmd, user=user, env=env, timeout_s=limit_s)
        if check and done.exit_code != 0:
            said = f"exec failed (exit={done.exit_code}): {cmd[:120]}\n{done.stderr[:400]}"
            raise CommandFailed(said, exit_code=done.exit_code)
        return done.exit_code, done.stdout, done.stderr

    async def write_file(self, sandbox_path: str, content: str | bytes | Path, *, user: str = "root") -> None:
        """Write a string, bytes, or a local file, creating missing folders. Raises SandboxError."""
        data = bytes(content, "utf-8", "surrogatepass") if isinstance(content, str) else content
        await self._there().write(sandbox_path, data, user=user)

    async def read_file(self, sandbox_path: str, *, user: str = "root") -> str:
        """Read a text file; "" if it cannot be read, for any reason."""
        try:
            return (await self._there().read(sandbox_path, user=user)).decode("utf-8", "replace")
        except SandboxError as error:
            _LOGGER.debug("%s of sandbox %s reads as empty: %s", sandbox_path, self.sandbox_id, error)
            return ""

    async def exec_and_wait(
        self,
        *,
        cmd: str,
        time_budget_sec: int,
        tag: str,
        user: str = "root",
        env: dict[str, str] | None = None,
        workdir: str | None = None,
        out_file: str | None = None,
        want_output: bool = False,
    ) -> tuple[int, str]:
        """As slime's function of this name, without polling: see `exec_and_wait`."""
        out_file, done_file, launcher = out_file or f"/tmp/.{tag}.out", f"/tmp/.{tag}.done", f"/tmp/.{tag}.sh"
        place = f"cd {workdir}\nexport HOME=/home/{user}\n" if workdir else ""
        # in a subshell, so that the exit code is written even if the command calls exit
        body = f"#!/bin/bash\n{place}(\n{cmd}\n)\ncode=$?\necho $code > {quote(done_file)}\nexit $code\n"
        await self.write_file(launcher, body, user=user)
        begin = (
            f"rm -f {quote(out_file)} {quote(done_file)}; chmod +x {quote(launcher)}; "
            f"exec setsid -w bash {quote(launcher)} < /dev/null > {quote(out_file)} 2>&1"
        )
        exit_code = await self._until_ended(begin, time_budget_sec, done_file, user, env or {})
        if exit_code == 0 and not want_output:
            return exit_code, ""
        if want_output:
            return exit_code, await self.read_file(out_file, user=user)
        _, tail, _ = await self.exec(f"tail -c {_TAIL_BYTES} {quote(out_file)} 2>/dev/null", user=user, timeout=15)
        return exit_code, tail

    async def _until_ended(self, begin: str, budget_s: float, done_file: str, user: str, env: Mapping[str, str]) -> int:
        """The command's exit code; read from `done_file` if a restart of the service lost the command."""
        until = time.monotonic() + budget_s
        ended: CommandResult | None
        try:
            ended = await self._there().run_within(begin, budget_s, user=user, env=env)
        except CommandLost:
            return await self._until_marked(until, done_file, user)
        return EXIT_TIME_BUDGET_EXCEEDED if ended is None else ended.exit_code

    async def _until_marked(self, until: float, done_file: str, user: str) -> int:
        """Poll `done_file` for the exit code. Raises SandboxError if the sandbox is gone, which is not a timeout."""
        while time.monotonic() < until:
            try:
                mark = (await self._there().read(done_file, user=user)).strip()
            except UnknownFile:
                mark = b""
            if mark.isdigit():  # else it is still being written
                return int(mark)
            await asyncio.sleep(min(_POLL_S, max(0.0, until - time.monotonic())))
        return EXIT_TIME_BUDGET_EXCEEDED

    def _there(self) -> Box:
        if self._box is None:
            raise SettingsError("the sandbox is used outside of `async with`")
        return self._box


class EvaluationSandbox(DockerServiceSandbox):
    """For slime's evaluator: the unmodified image. Rows may check out tests from a commit that agents must not see."""

    task_image = "raw"


async def exec_and_wait(
    sb: DockerServiceSandbox,
    *,
    cmd: str,
    time_budget_sec: int,
    tag: str,
    user: str = "root",
    env: dict[str, str] | None = None,
    workdir: str | None = None,
    out_file: str | None = None,
    want_output: bool = False,
) -> tuple[int, str]:
    """Run `cmd` detached with its output in a file; return (exit code, output).

    The output is "" after success, else its last 512 bytes; with `want_output` all of it. The exit code is -1 if the
    time budget is used up; the command then keeps running.
    """
    return await sb.exec_and_wait(
        cmd=cmd,
        time_budget_sec=time_budget_sec,
        tag=tag,
        user=user,
        env=env,
        workdir=workdir,
        out_file=out_file,
        want_output=want_output,
    )


_VARIABLES: Mapping[str, tuple[str, ...]] = {
    "IMAGE_METADATA_KEY": ("SLIME_AGENT_SANDBOX_IMAGE_METADATA_KEY", "SWE_SANDBOX_IMAGE_METADATA_KEY"),
    "LIFETIME_SEC": ("SLIME_AGENT_SANDBOX_LIFETIME_SEC", "SWE_SANDBOX_LIFETIME_SEC"),
    "RPC_RETRIES": ("SLIME_AGENT_SANDBOX_RPC_RETRIES", "SWE_RPC_RETRIES"),
    "SIZE": ("SLIME_AGENT_E2B_SANDBOX_SIZE", "SWE_E2B_SANDBOX_SIZE"),
}
"""slime's own variables, newer names first."""


def _variable(name: str) -> str:
    values = (os.environ.get(spelled, "").strip() for spelled in _VARIABLES[name])
    return next((value for value in values if value), "")


def _number(name: str, default: int) -> int:
    text = _variable(name)
    try:
        return int(text) if text else default
    except ValueError:
        raise SettingsError(f"{' or '.join(_VARIABLES[name])} is not a whole number: {text!r}") from None
