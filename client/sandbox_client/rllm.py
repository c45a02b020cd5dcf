"""A sandbox backend of rLLM over boxes; nothing of rLLM is imported.

    rllm.sandbox.sandboxed_flow.create_sandbox = sandbox_client.rllm.create_sandbox    # before a flow starts
    flow.sandbox_backend = "sandbox_service"    # with `docker` rLLM builds the task's image itself

Or use `SandboxServiceSandbox(name, image)` wherever rLLM takes a `Sandbox`. The interface is that of rLLM's
`rllm/sandbox/protocol.py` of August 2026.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sandbox_client.boxes import Box
from sandbox_client.either import waited
from sandbox_client.errors import CommandFailed, CommandTimedOut, SandboxError
from sandbox_client.rollouts import service_url

_TAIL = 600
_KILLED = -1
_PROBE_S = 10.0


class SandboxServiceSandbox:
    """A box with the interface of rLLM's `Sandbox`; each call blocks its thread."""

    def __init__(self, name: str, image: str, *, url: str | None = None, size: str | None = None, **_: Any) -> None:
        """Create the box; `url` None: SANDBOX_URL. Raises SandboxError."""
        self.name, self.image = name, image
        urls = [one.strip() for one in service_url(url).split(",") if one.strip()]
        self._box = waited(_created(image, urls, size, name))

    def exec(self, command: str, timeout: float | None = None, user: str | None = None) -> str:
        """Run a command in bash and return its stdout. `timeout`: seconds.

        Raises:
            CommandFailed (a RuntimeError, as rLLM expects): its exit code is not 0, or it ran past `timeout`.
            SandboxError: the service failed. It is not a RuntimeError, which rLLM would take for the command's failure.
        """
        try:
            done = waited(self._box.run(["bash", "-c", command], timeout_s=timeout, user=user))
        except CommandTimedOut as error:
            raise CommandFailed(f"{error.detail}: {command}\n{error.stderr[-_TAIL:]}", exit_code=_KILLED) from None
        if done.exit_code != 0:
            told = f"exit {done.exit_code} in {self.name}: {command}\n{done.stderr[-_TAIL:]}"
            raise CommandFailed(told, exit_code=done.exit_code)
        return done.stdout

    def upload_file(self, local_path: str, remote_path: str) -> None:
        """Copy a file into the box. Raises SandboxError."""
        waited(self._box.write(remote_path, Path(local_path)))

    def upload_dir(self, local_path: str, remote_path: str) -> None:
        """Copy a folder into the box, as `remote_path`. Raises SandboxError, also CommandFailed."""
        waited(self._box.write_tree(remote_path, Path(local_path)))

    def is_alive(self) -> bool:
        """Whether the box can run a command; never raises."""
        if not self._box.sid:
            return False
        try:
            return bool(waited(self._box.run(["true"], timeout_s=_PROBE_S)).exit_code == 0)
        except SandboxError:
            return False

    def close(self) -> None:
        """End the box; a second call does nothing."""
        if self._box.sid:
            waited(self._box.__aexit__(None, None, None))
            self._box.sid = ""


def create_sandbox(backend: str, name: str, image: str, **kwargs: Any) -> SandboxServiceSandbox:
    """Replaces rLLM's factory; `backend` is ignored."""
    return SandboxServiceSandbox(name, image, **kwargs)


async def _created(image: str, urls: list[str], size: str | None, name: str) -> Box:
    box = Box(image, base_url=urls, size=size, metadata={"rllm": name})
    return await box.__aenter__()
