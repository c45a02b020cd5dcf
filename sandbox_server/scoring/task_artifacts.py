"""What a task's commands and services show of a session beside the agent's own files (Harbor's collect and artifacts).

The agent's container is asked while it runs; the services are asked once it has been stopped, so nothing of the agent
interferes. Nobody but the services writes what is taken there.
"""

import asyncio
import gzip
import io
import posixpath
import tarfile
from dataclasses import dataclass

from sandbox_server import telemetry
from sandbox_server.catalogue.instance import Collect, HarborGrader, TaskInstance
from sandbox_server.errors import EngineUnavailable, SandboxLost, ServiceError
from sandbox_server.sandbox.base import Runtime, Services

log = telemetry.logger(__name__)

_EMPTY = b"sandbox-files 0 0\n"
"""Head of the files of a session in which the agent changed none (carry.bash)."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits on the services' part."""

    timeout_s: float
    """Of each command."""
    max_bytes: int
    """Of all artifacts, not compressed."""


@dataclass(frozen=True, slots=True)
class Artifacts:
    """What was taken from the services."""

    archive: bytes
    """Gzipped tar archives, one after the other, whose names begin with `./`; b"" if there is nothing."""
    left_out: tuple[str, ...]
    """Why something is not in it."""


async def collect(runtime: Runtime, container_id: str, instance: TaskInstance, *, timeout_s: float) -> None:
    """Run the task's commands in the agent's container, each at most `timeout_s`; whatever comes of them."""
    found = instance.grader.collect if isinstance(instance.grader, HarborGrader) else ()
    commands = [one for one in found if not one.service]
    if not commands:
        return
    for one in commands:
        try:
            sandbox = await runtime.attach(container_id)
            await sandbox.exec(
                ["bash", "-c", one.command],
                timeout_s=min(one.timeout_s, timeout_s),
                cwd=instance.sandbox.workdir,
                user=one.user or "root",
            )
        except (ServiceError, OSError) as error:
            log.warning("a task's collect command failed", container_id=container_id, error=str(error))


async def of_services(services: Services, container_id: str, grader: HarborGrader, bounds: Bounds) -> Artifacts:
    """Run the task's commands in its services, then take its artifacts of them.

    Raises:
        EngineUnavailable: a command could not be run, or an artifact not be read.
    """
    for one in grader.collect:
        if one.service:
            await _run(services, container_id, one, min(one.timeout_s, bounds.timeout_s))
    archives: list[bytes] = []
    left, left_out = bounds.max_bytes, []
    for artifact in grader.artifacts:
        what = f"{artifact.path} of the service {artifact.service}"
        try:
            found = await services.archive(container_id, artifact.service, artifact.path, max_bytes=left)
        except SandboxLost as error:
            left_out.append(f"{what} is left out: {error.detail}")
        except OverflowError:
            left_out.append(f"{what} is left out: with it, artifacts take more than SANDBOX_MAX_PATCH_MB")
        else:
            if found is None:
                left_out.append(f"{what} does not exist")
            else:
                left -= len(found)
                try:
                    archives.append(await asyncio.to_thread(_placed_at, artifact.path, found))
                except (tarfile.TarError, EOFError) as error:
                    left_out.append(f"{what} is left out: it changed while it was read ({error})")
    return Artifacts(b"".join(archives), tuple(left_out))


async def _run(services: Services, container_id: str, command: Collect, timeout_s: float) -> None:
    try:
        argv = ["/bin/sh", "-c", command.command]
        await services.run(container_id, command.service, argv, user=command.user, timeout_s=timeout_s)
    except EngineUnavailable:  # else work that was not collected would be graded as not done
        raise
    except ServiceError as error:
        log.warning("a task's collect command failed", container_id=container_id, error=error.detail)


def added(files: bytes, archive: bytes) -> bytes:
    """The agent's files, as carry.bash prints them, and another archive for carrying.bash."""
    return (files or _EMPTY) + archive if archive else files


def _placed_at(path: str, archive: bytes) -> bytes:
    """The files, folders and links of a service's archive under their path in it, without the bits that give rights.

    Raises:
        tarfile.TarError, EOFError: it is cut off.
    """
    folder, whole = posixpath.dirname(path), io.BytesIO()
    with (
        tarfile.open(fileobj=whole, mode="w", format=tarfile.PAX_FORMAT) as placed,
        tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as found,
    ):
        for entry in found:
            if not (entry.isfile() or entry.isdir() or entry.issym() or entry.islnk()):
                continue
            content = found.extractfile(entry) if entry.isfile() else None
            entry.name = _beneath(folder, entry.name)
            if entry.islnk():
                entry.linkname = _beneath(folder, entry.linkname)
            entry.mode &= 0o777
            placed.addfile(entry, content)
    return gzip.compress(whole.getvalue(), mtime=0)


def _beneath(folder: str, name: str) -> str:
    return f".{posixpath.join(folder, name.lstrip('/'))}"
