"""What is graded besides the agent's files: output of a task's commands, files of its services (Harbor's collect and
artifacts).

Commands in the agent's container run before it is stopped; commands in services run after that, so that the agent
cannot interfere. What is taken from a service is written by the services alone.
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
    """Limits on commands and artifacts of services."""

    timeout_s: float
    """Seconds for each command."""
    max_bytes: int
    """Bytes of all artifacts together, uncompressed."""


@dataclass(frozen=True, slots=True)
class Artifacts:
    """What was taken from the services."""

    archive: bytes
    """Gzipped tar archives, one after the other, whose names begin with `./`; b"" if there is nothing."""
    left_out: tuple[str, ...]
    """Why things are missing in the archive, one sentence for each."""


async def collect(runtime: Runtime, container_id: str, instance: TaskInstance, *, timeout_s: float) -> None:
    """Run the task's commands in the agent's container, each for at most `timeout_s`; failures are only logged."""
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
    """Run the task's commands in its services, then take the task's artifacts from the services.

    Raises:
        EngineUnavailable: a command could not be run, or an artifact could not be read.
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
    except EngineUnavailable:  # if ignored, work that could not be collected would be graded as not done
        raise
    except ServiceError as error:
        log.warning("a task's collect command failed", container_id=container_id, error=error.detail)


def added(files: bytes, archive: bytes) -> bytes:
    """The agent's files, as carry.bash prints them, with `archive` appended in the form that carrying.bash reads."""
    return (files or _EMPTY) + archive if archive else files


def _placed_at(path: str, archive: bytes) -> bytes:
    """The files, folders and links of a service's archive, named by their full path; setuid and setgid are removed.

    Raises:
        tarfile.TarError, EOFError: the archive is cut off.
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
