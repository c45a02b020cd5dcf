"""A deployment of SWE-ReX in a session, which the service grades, or in a box; extra `swerex`; for SWE-agent.

    deployment = SandboxDeployment(instance="samples__ledger-12")
    repository = PreExistingRepoConfig(repo_name="testbed", reset=False)
    SWEEnv(deployment=deployment, repo=repository, post_startup_commands=[])
    ...                                        # at last:
    asyncio.run(deployment.reward())

Nothing is installed in the sandbox. A shell is a state and not a process (`swerex_shell`): a command past its timeout
is killed with all its children, and interactive programs (`is_interactive_command`, `expect`) are refused. All calls
run on the background loop, so each of them may come from a loop of its own, as SWE-agent's do.
"""

from __future__ import annotations

import asyncio
import io
import logging
import re
import uuid
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from swerex.deployment.abstract import AbstractDeployment
from swerex.deployment.hooks.abstract import CombinedDeploymentHook, DeploymentHook
from swerex.exceptions import (
    BashIncorrectSyntaxError,
    CommandTimeoutError,
    DeploymentNotStartedError,
    NonZeroExitCodeError,
    SessionDoesNotExistError,
    SessionExistsError,
    SwerexException,
)
from swerex.runtime.abstract import (
    AbstractRuntime,
    BashAction,
    BashInterruptAction,
    BashObservation,
    CloseBashSessionRequest,
    CloseBashSessionResponse,
    CloseResponse,
    Command,
    CommandResponse,
    CreateBashSessionRequest,
    CreateBashSessionResponse,
    IsAliveResponse,
    ReadFileRequest,
    ReadFileResponse,
    UploadRequest,
    UploadResponse,
    WriteFileRequest,
    WriteFileResponse,
)
from swerex.utils.log import get_logger

from sandbox_client.answers import Reward
from sandbox_client.background import background
from sandbox_client.either import Wanted, ended, graded, started
from sandbox_client.errors import CommandTimedOut, SandboxError, UnknownFile
from sandbox_client.inside import CommandResult, Inside
from sandbox_client.swerex_shell import running, starting, syntax_error

_T = TypeVar("_T")
_PROBE_S = 10.0
_SHELL_S = 30.0
"""Minimum of a shell's start timeout. SWE-ReX's default of 1 s is meant for a local process."""
_ESCAPES = re.compile(r"\x1B[@-_][0-?]*[ -/]*[@-~]")


class SandboxRuntime(AbstractRuntime):  # type: ignore[misc]  # SWE-ReX is not installed where types are checked
    """Commands and files of one sandbox. A fault of the service raises SandboxError: it is no observation."""

    def __init__(self, inside: Inside, logger: logging.Logger | None = None) -> None:
        """`inside` is running, and belongs to the background loop."""
        self.logger = logger or get_logger("rex-runtime")
        self._inside = inside
        self._shells: dict[str, str] = {}

    async def is_alive(self, *, timeout: float | None = None) -> IsAliveResponse:
        """Whether a command runs in it; never raises."""
        try:
            done = await _home(self._inside.run(["true"], timeout_s=timeout or _PROBE_S))
        except SandboxError as error:
            return IsAliveResponse(is_alive=False, message=str(error))
        return IsAliveResponse(is_alive=done.exit_code == 0, message=done.stderr)

    async def create_session(self, request: CreateBashSessionRequest) -> CreateBashSessionResponse:
        """Start a shell. Raises SessionExistsError, CommandTimeoutError."""
        if request.session in self._shells:
            raise SessionExistsError(f"session {request.session} already exists")
        state = f"/tmp/.swerex-{uuid.uuid4().hex}"
        limit_s = max(request.startup_timeout, _SHELL_S)
        done = await _timed(self._inside.run(starting(state, request.startup_source), timeout_s=limit_s))
        self._shells[request.session] = state
        return CreateBashSessionResponse(output=_plain(done.stdout))

    async def run_in_session(self, action: BashAction | BashInterruptAction) -> BashObservation:
        """Run a command in a shell. An interrupt has no effect, because a command that exceeds its timeout is killed.

        Raises:
            SessionDoesNotExistError, BashIncorrectSyntaxError, CommandTimeoutError, NonZeroExitCodeError.
            SwerexException: the command needs a terminal.
        """
        state = self._state(action.session)
        if isinstance(action, BashInterruptAction):
            return BashObservation(exit_code=0)
        if action.is_interactive_command or action.is_interactive_quit or action.expect:
            raise SwerexException("this deployment has no terminal: interactive commands and `expect` are not served")
        work = self._inside.run(running(state), stdin=action.command, timeout_s=action.timeout)
        done = await _timed(work, action.command)
        if (said := syntax_error(done.stderr)) is not None:
            told = f"Error while checking bash command \n{action.command!r}\n{said}"
            raise BashIncorrectSyntaxError(told, extra_info={"bash_stdout": "", "bash_stderr": said})
        output = _plain(done.stdout)
        if action.check == "raise" and done.exit_code != 0:
            told = f"Command {action.command!r} failed with exit code {done.exit_code}. Here is the output:\n{output!r}"
            raise NonZeroExitCodeError(f"{action.error_msg}: {told}" if action.error_msg else told)
        return BashObservation(output=output, exit_code=None if action.check == "ignore" else done.exit_code)

    async def close_session(self, request: CloseBashSessionRequest) -> CloseBashSessionResponse:
        """Forget a shell; processes that it started keep running. Raises SessionDoesNotExistError."""
        self._state(request.session)
        del self._shells[request.session]
        return CloseBashSessionResponse()

    async def execute(self, command: Command) -> CommandResponse:
        """Run a command without a shell's state; `env` is added to the sandbox's own.

        Raises CommandTimeoutError, NonZeroExitCodeError.
        """
        words = [command.command] if isinstance(command.command, str) else list(command.command)
        argv = ["/bin/sh", "-c", *words] if command.shell else words
        if command.merge_output_streams:
            argv = ["/bin/sh", "-c", 'exec "$@" 2>&1', "sh", *argv]
        work = self._inside.run(argv, env=command.env, cwd=command.cwd, timeout_s=command.timeout)
        done = await _timed(work, command.command)
        if command.check and done.exit_code != 0:
            told = (
                f"Command {command.command!r} failed with exit code {done.exit_code}. "
                f"Stdout:\n{done.stdout!r}\nStderr:\n{done.stderr!r}"
            )
            raise NonZeroExitCodeError(f"{command.error_msg}: {told}" if command.error_msg else told)
        return CommandResponse(stdout=done.stdout, stderr=done.stderr, exit_code=done.exit_code)

    async def read_file(self, request: ReadFileRequest) -> ReadFileResponse:
        """A file's text. Raises FileNotFoundError, UnicodeDecodeError."""
        try:
            content = await _home(self._inside.read(request.path))
        except UnknownFile:
            raise FileNotFoundError(f"no such file: {request.path}") from None
        with io.TextIOWrapper(io.BytesIO(content), request.encoding or "utf-8", request.errors) as text:
            return ReadFileResponse(content=text.read())

    async def write_file(self, request: WriteFileRequest) -> WriteFileResponse:
        """Write a text, creating missing folders."""
        await _home(self._inside.write(request.path, request.content.encode()))
        return WriteFileResponse()

    async def upload(self, request: UploadRequest) -> UploadResponse:
        """Copy a local file or folder into the sandbox, as `target_path`."""
        await _home(self._copied(Path(request.source_path), request.target_path))
        return UploadResponse()

    async def close(self) -> CloseResponse:
        """Forget all shells; the deployment ends the sandbox."""
        self._shells.clear()
        return CloseResponse()

    async def _copied(self, source: Path, target: str) -> None:
        is_folder = await asyncio.to_thread(source.is_dir)
        await (self._inside.write_tree(target, source) if is_folder else self._inside.write(target, source))

    def _state(self, session: str) -> str:
        if session not in self._shells:
            raise SessionDoesNotExistError(f"session {session!r} does not exist")
        return self._shells[session]


class SandboxDeployment(AbstractDeployment):  # type: ignore[misc]  # as above
    """A session of an instance, or a box of an image: `start` makes it, `stop` ends it, and it can be started again."""

    def __init__(
        self,
        *,
        instance: str | None = None,
        image: str | None = None,
        url: str | None = None,
        run: str | None = None,
        logger: logging.Logger | None = None,
    ) -> None:
        """One of `instance` and `image`; `url` None: SANDBOX_URL; `run` None: SANDBOX_RUN. Raises SettingsError."""
        self.logger = logger or get_logger("rex-deploy")
        self._wanted = Wanted(instance, image, url, run)
        self._hooks = CombinedDeploymentHook()
        self._runtime: SandboxRuntime | None = None
        self._inside: Inside | None = None

    def add_hook(self, hook: DeploymentHook) -> None:
        """Tell the hook of each step."""
        self._hooks.add_hook(hook)

    async def is_alive(self, *, timeout: float | None = None) -> IsAliveResponse:
        """Whether a command runs in it. Raises DeploymentNotStartedError."""
        return await self.runtime.is_alive(timeout=timeout)

    async def start(self, *args: Any, **kwargs: Any) -> None:
        """Start the sandbox, after ending a former one. Raises SandboxError."""
        await self.stop()
        self._hooks.on_custom_step("Starting a sandbox")
        self._inside = await _home(started(self._wanted))
        self._runtime = SandboxRuntime(self._inside, self.logger)

    async def stop(self, *args: Any, **kwargs: Any) -> None:
        """End the sandbox, if one runs; a session can be graded after it. Never raises."""
        runtime, self._runtime = self._runtime, None
        if runtime is not None and self._inside is not None:
            await runtime.close()
            await _home(ended(self._inside))

    @property
    def runtime(self) -> SandboxRuntime:
        """Raises DeploymentNotStartedError."""
        if self._runtime is None:
            raise DeploymentNotStartedError
        return self._runtime

    @property
    def sid(self) -> str:
        """Of the last sandbox; "" before the first."""
        return "" if self._inside is None else self._inside.sid

    async def reward(self) -> Reward:
        """The last session's reward, which ends it. Raises RolloutMasked: it says nothing about the policy."""
        if self._inside is None:
            raise DeploymentNotStartedError
        return await _home(graded(self._inside))


async def _home(work: Coroutine[Any, Any, _T]) -> _T:
    """Run it on the background loop."""
    return await asyncio.wrap_future(background().submit(work))


async def _timed(work: Coroutine[Any, Any, CommandResult], command: object = "the shell's start") -> CommandResult:
    try:
        return await _home(work)
    except CommandTimedOut as error:
        raise CommandTimeoutError(f"{error.detail}: {command!r}") from error


def _plain(output: str) -> str:
    return _ESCAPES.sub("", output).replace("\r\n", "\n")
