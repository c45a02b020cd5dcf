"""A sandbox provider of NeMo Gym over boxes: `env.sandbox.provider: {sandbox_service: {}}`.

NeMo Gym finds it by the package's entry point `nemo_gym.sandbox_providers`. Tried with its release 0.7.0.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any

from nemo_gym.sandbox.providers.base import (
    SandboxCreateError,
    SandboxExecResult,
    SandboxHandle,
    SandboxSpec,
    SandboxStatus,
)

from sandbox_client.boxes import Box
from sandbox_client.errors import CommandTimedOut, SandboxError, SandboxLost, UnknownSession
from sandbox_client.rollouts import service_url

_NOT_RUN = 125
"""NeMo Gym's return code for a command without an exit code; `error_type` then says why."""
_STATUS = {
    "sandbox_paused": SandboxStatus.PAUSED,
    "session_ended": SandboxStatus.STOPPED,
    "unknown_session": SandboxStatus.STOPPED,
    "sandbox_lost": SandboxStatus.STOPPED,
}
"""Code of the service's error -> what it says of the box."""
_CREATE_S = 600.0
_PROBE_S = 10.0


class SandboxServiceProvider:
    """Creates boxes of any image. If the service fails, `error_type` is set; its faults never look like exit codes."""

    name = "sandbox_service"

    def __init__(self, url: str | None = None, run: str | None = None, size: str | None = None) -> None:
        """`url` None: SANDBOX_URL, `run` None: SANDBOX_RUN; `size` is a name that the service knows."""
        self._urls = [one.strip() for one in service_url(url).split(",") if one.strip()]
        self._run, self._size = run, size

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        """Create a box and write the spec's files. Raises SandboxCreateError.

        `spec.resources` is ignored; `size` chooses the limits.
        """
        if not spec.image:
            raise SandboxCreateError("the sandbox service needs an image")
        box = Box(
            spec.image,
            size=spec.provider_options.get("size", self._size),
            network=spec.provider_options.get("network"),
            lifetime_s=spec.ttl_s,
            env=spec.env,
            metadata=spec.metadata,
            base_url=self._urls,
            run=self._run,
        )
        try:
            await asyncio.wait_for(_made(box, spec), spec.ready_timeout_s or _CREATE_S)
        except BaseException as error:
            await _closed(box)
            if isinstance(error, (SandboxError, TimeoutError, asyncio.TimeoutError)):
                raise SandboxCreateError(f"no box of {spec.image}: {error or 'it took too long'}") from error
            raise
        return SandboxHandle(sandbox_id=box.sid, provider_name=self.name, raw=(box, spec.workdir))

    async def exec(
        self,
        handle: SandboxHandle,
        command: str,
        *,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_s: float | None = None,
        user: str | int | None = None,
    ) -> SandboxExecResult:
        """Run a command in a bash."""
        box, workdir = _raw(handle)
        if not box.sid:
            return SandboxExecResult(None, "the sandbox was closed", _NOT_RUN, error_type="sandbox")
        try:
            done = await box.run(
                ["bash", "-c", command],
                cwd=cwd or workdir,
                env=env,
                timeout_s=timeout_s,
                user=None if user is None else str(user),
            )
        except CommandTimedOut as error:
            return SandboxExecResult(error.stdout, error.stderr, _NOT_RUN, error_type="timeout")
        except SandboxError as error:
            kind = "sandbox" if isinstance(error, (SandboxLost, UnknownSession)) else error.code
            return SandboxExecResult(None, str(error), _NOT_RUN, error_type=kind)
        return SandboxExecResult(done.stdout, done.stderr, done.exit_code)

    async def upload_file(self, handle: SandboxHandle, source_path: Path, target_path: str) -> None:
        """Copy a local file into the box. Raises SandboxError."""
        await _raw(handle)[0].write(target_path, Path(source_path))

    async def download_file(self, handle: SandboxHandle, source_path: str, target_path: Path) -> None:
        """Copy a file of the box to the local one. Raises UnknownFile, SandboxError."""
        content = await _raw(handle)[0].read(source_path)
        Path(target_path).parent.mkdir(parents=True, exist_ok=True)
        await asyncio.to_thread(Path(target_path).write_bytes, content)

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """RUNNING if the box runs a command, PAUSED, STOPPED if it has ended or is lost; else UNKNOWN."""
        box, _ = _raw(handle)
        if not box.sid:
            return SandboxStatus.STOPPED
        try:
            await box.run(["true"], timeout_s=_PROBE_S)
        except SandboxError as error:
            return _STATUS.get(error.code, SandboxStatus.UNKNOWN)
        return SandboxStatus.RUNNING

    async def pause(self, handle: SandboxHandle) -> None:
        """Store the box's files and end its programs; until `resume` it takes no slot. Raises SandboxError."""
        await _raw(handle)[0].pause()

    async def resume(self, handle: SandboxHandle) -> None:
        """Give a paused box a container again. Raises SandboxError."""
        await _raw(handle)[0].resume()

    async def close(self, handle: SandboxHandle) -> None:
        """End the box."""
        await _closed(_raw(handle)[0])

    async def aclose(self) -> None:
        """Does nothing: boxes share nothing that could be closed."""

    async def serialize_handle(self, handle: SandboxHandle, *, scope: str | None = None) -> dict[str, Any]:
        """Data from which `connect` makes a handle of the same box, in any process that reaches the service."""
        return {"sandbox_id": handle.sandbox_id, "workdir": _raw(handle)[1]}

    async def connect(self, descriptor: Mapping[str, Any]) -> SandboxHandle:
        """A handle of an existing box, from the data of `serialize_handle`."""
        box = Box("", base_url=self._urls, run=self._run)
        box.sid = str(descriptor["sandbox_id"])
        return SandboxHandle(sandbox_id=box.sid, provider_name=self.name, raw=(box, descriptor.get("workdir")))


async def _made(box: Box, spec: SandboxSpec) -> None:
    await box.create()
    if spec.workdir:
        await box.run(f"mkdir -p {quote(spec.workdir)}")
    for path, content in spec.files.items():
        await box.write(path, content.encode())


async def _closed(box: Box) -> None:
    try:
        if box.sid:
            await box.kill()
    finally:
        box.sid = ""
        await box.aclose()


def _raw(handle: SandboxHandle) -> tuple[Box, str | None]:
    box, workdir = handle.raw
    return box, workdir
