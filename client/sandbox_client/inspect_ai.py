"""inspect_ai's sandboxes on this service: `sandbox=("sandbox_service", IMAGE)`, or graded instances; extra `inspect`.

inspect_ai finds the provider by the package's entry point. A sample with `metadata={"instance_id": ...}` and no image
gets a session of that instance, which the scorer `graded` grades.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping
from pathlib import PurePosixPath
from typing import Any, TypeVar

from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import TaskState
from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxEnvironment,
    SandboxEnvironmentLimits,
    sandbox,
    sandboxenv,
)
from inspect_ai.util._sandbox.environment import SandboxUnavailableError  # it has no public name
from pydantic import BaseModel

from sandbox_client.boxes import Box
from sandbox_client.client import Session
from sandbox_client.errors import (
    CommandTimedOut,
    RequestRejected,
    SandboxError,
    SandboxLost,
    SettingsError,
    UnknownFile,
    UnknownSession,
)
from sandbox_client.inside import Inside
from sandbox_client.rollouts import Rollout, service_url, shared_client

_T = TypeVar("_T")
_STDIN_CHARACTERS = 1 << 16
"""Longer input, and input in bytes, is passed through a file."""
_FROM_FILE = 'exec 3<"$0" && /bin/rm -f "$0" && exec "$@" <&3 3<&-'
_CANNOT_EXECUTE = 126
_MAY_READ = 'test ! -e "$0" || test -r "$0"'
_MAY_WRITE = 'p=$0; while [ ! -e "${p:-/}" ]; do p=${p%/*}; done; test -w "${p:-/}"'


class SandboxServiceConfig(BaseModel, frozen=True):  # inspect_ai hashes it
    """The sandbox of a sample. A plain str instead of this names the image."""

    image: str | None = None
    """None: a session of the instance that the sample's metadata name (`instance_id`)."""
    size: str | None = None
    """The box's size, a name that the service knows."""
    network: str | None = None
    """The box's network, as for `POST /v1/boxes`."""
    user: str | None = None
    """User of commands and files if inspect_ai names none; None: the box's own user, root in most images."""
    workdir: str | None = None
    """Working directory, which must exist; None: the task's repository, or in a box the user's home."""
    lifetime_s: float = 3600.0
    """Seconds after which the service ends the box."""
    url: str | None = None
    """Base URL, or several, comma-separated; None: SANDBOX_URL. Logs contain it: give a key by SANDBOX_URL."""


@sandboxenv(name="sandbox_service")
class ServiceSandbox(SandboxEnvironment):  # type: ignore[misc]  # inspect_ai is not installed where types are checked
    """A box, or a session with its task. Relative paths are below its working directory."""

    def __init__(self, inside: Inside, wanted: SandboxServiceConfig, home: str) -> None:
        """`inside` is running; commands of its user begin in `home`."""
        super().__init__()
        self.inside = inside
        self._wanted = wanted
        self._home = PurePosixPath(wanted.workdir or home)

    @classmethod
    async def sample_init(
        cls, task_name: str, config: BaseModel | str | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        """Create it. Raises SandboxError."""
        if isinstance(config, SandboxServiceConfig):
            wanted = config
        else:
            wanted = SandboxServiceConfig(image=str(config) if config else None)
        url = service_url(wanted.url)
        inside: Inside
        if wanted.image is None:
            instance = metadata.get("instance_id")
            if not instance:
                raise SettingsError("the sandbox needs an image, or an instance_id in the sample's metadata")
            client = shared_client(url)
            inside = Session(client, await client.start(instance))
        else:
            urls = [one.strip() for one in url.split(",") if one.strip()]
            inside = Box(
                wanted.image,
                size=wanted.size,
                network=wanted.network,
                lifetime_s=wanted.lifetime_s,
                metadata={"task": task_name},
                base_url=urls,
            )
            await inside.create()
        try:
            home = (await inside.run(["pwd"], user=wanted.user)).stdout.strip()
        except BaseException:
            await _end(inside)
            raise
        return {"default": cls(inside, wanted, home or "/")}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: BaseModel | str | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        """End it."""
        for environment in environments.values():
            await _end(environment.as_type(ServiceSandbox).inside)

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        """The configuration from a log."""
        return SandboxServiceConfig(**config)

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """As inspect_ai's. It runs once, so `timeout_retry` has no effect.

        Output beyond the service's SANDBOX_BOX_OUTPUT_MB lacks its middle.
        """
        user = user or self._wanted.user
        place = self._path(cwd) if cwd else self._wanted.workdir  # None: another user's home is not this one's
        how: dict[str, Any] = {"env": env, "user": user, "timeout_s": timeout, "cwd": place}
        if isinstance(input, str) and len(input) <= _STDIN_CHARACTERS:
            how["stdin"] = input
        elif input is not None:
            path = f"/tmp/.stdin-{uuid.uuid4().hex}"
            content = input if isinstance(input, bytes) else input.encode()
            await self._told(lambda: self.inside.write(path, content, user=user))
            cmd = ["/bin/sh", "-c", _FROM_FILE, path, *cmd]
        try:
            done = await self._told(lambda: self.inside.run(cmd, **how))
        except CommandTimedOut as error:
            raise TimeoutError(str(error)) from None
        except RequestRejected as error:
            if error.code == "unknown_user":
                return ExecResult(success=False, returncode=1, stdout="", stderr=f"no user {user}: {error.detail}")
            raise
        if done.exit_code == _CANNOT_EXECUTE and "permission denied" in done.stderr.lower():
            raise PermissionError(done.stderr)
        return ExecResult(done.exit_code == 0, done.exit_code, done.stdout, done.stderr)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """As inspect_ai's."""
        path, content = self._path(file), contents if isinstance(contents, bytes) else contents.encode()
        await self._check(path, _MAY_WRITE)
        try:
            await self._told(lambda: self.inside.write(path, content, user=self._wanted.user))
        except RequestRejected as error:
            raise await self._unusable(path, error) from None

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        """As inspect_ai's."""
        path = self._path(file)
        try:
            found = await self._told(lambda: self.inside.stat(path, user=self._wanted.user))
            if found.size > SandboxEnvironmentLimits.MAX_READ_FILE_SIZE and found.kind == "file":
                raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
            await self._check(path, _MAY_READ)
            content = await self._told(lambda: self.inside.read(path, user=self._wanted.user))
        except UnknownFile:
            raise FileNotFoundError(f"no such file: {file}") from None
        except RequestRejected as error:
            raise await self._unusable(path, error) from None
        return content.decode() if text else content

    def _path(self, file: str) -> str:
        return str(self._home / file)

    async def _check(self, path: str, test: str) -> None:
        """Raises PermissionError: the configured user may not do this. The service itself serves files as root does."""
        if self._wanted.user is not None and not (await self.exec(["/bin/sh", "-c", test, path])).success:
            raise PermissionError(f"{self._wanted.user} has no right to {path}")

    async def _unusable(self, path: str, error: RequestRejected) -> Exception:
        """The error for a refused path: it is a folder, or the user has no right to it."""
        if error.code != "file_unusable":
            return error
        try:
            if (await self._told(lambda: self.inside.stat(path, user=self._wanted.user))).kind == "dir":
                return IsADirectoryError(f"is a directory: {path}")
        except UnknownFile:
            pass
        return PermissionError(f"{path}: {error.detail}")

    @staticmethod
    async def _told(call: Callable[[], Awaitable[_T]]) -> _T:
        """Raises SandboxUnavailableError if the sandbox is gone, which must not look like a command's output."""
        try:
            return await call()
        except (SandboxLost, UnknownSession) as error:
            raise SandboxUnavailableError(str(error)) from error


@scorer(metrics=[mean(), stderr()])  # type: ignore[untyped-decorator]
def graded() -> Scorer:
    """The service's reward for the sample's session, which ends here.

    A masked reward raises RolloutMasked: inspect_ai then counts the sample as an error and not as 0.
    """

    async def score(state: TaskState, target: Target) -> Score:
        inside = sandbox().as_type(ServiceSandbox).inside
        if not isinstance(inside, Session):
            raise SettingsError("`graded` needs a sample with an instance_id in its metadata, and no image")
        reward = await Rollout(inside._client, inside.sid).grade()
        return Score(value=reward.reward, explanation=reward.cause, metadata=_noted(reward.to_wire()))

    return score


def _noted(reward: Mapping[str, Any]) -> dict[str, Any]:
    names = ("verdict", "receipt", "resolved", "f2p_count", "f2p_total", "p2p_count", "p2p_total", "items")
    return {name: reward[name] for name in names}


async def _end(inside: Inside) -> None:
    """End it; the service does so too, by its lifetime or when it is idle."""
    try:
        if isinstance(inside, Session):
            await inside.finish()
        elif isinstance(inside, Box):
            await inside.kill()
    except SandboxError:
        pass
    finally:
        if isinstance(inside, Box):
            await inside.aclose()
