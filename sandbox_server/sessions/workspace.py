"""Images ready to start from: the task image with its workspace path, without any history after HEAD.

Prepared once per image and kept on the engine under a name that is a hash of all that went into it, so that a
start costs nothing but a container.
"""

import asyncio
import hashlib
import json
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from importlib import resources

from sandbox_server import clock, telemetry
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.errors import ImageUnavailable, ServiceError
from sandbox_server.sandbox.base import ContainerSpec, ImageInfo, Limits, Role, Runtime, Sandbox

log = telemetry.logger(__name__)

REPOSITORY = "sandbox-prepared"
TASK_IMAGE_LABEL = "sandbox.task_image"
"""Names the task image that a prepared image was made of."""
_BASE_LABEL = "sandbox.base_commit"
_SCRIPT = resources.files(__package__).joinpath("prepare.bash").read_text()


@dataclass(frozen=True, slots=True)
class Prepared:
    """An image that sessions of an instance start from."""

    image: str
    source: ImageInfo
    """The task image it was made of; gradings start from that one."""
    base_commit: str
    """The task image's own HEAD."""


class Workspaces:
    """Prepares images, each once however many starts ask for it."""

    def __init__(self, runtime: Runtime, *, limits: Limits, timeout_s: float) -> None:
        """`timeout_s` bounds one preparation (setup commands and repacking of the history included)."""
        self._runtime = runtime
        self._limits = limits
        self._timeout_s = timeout_s
        self._running: dict[str, asyncio.Task[Prepared]] = {}

    async def prepared(self, instance: TaskInstance) -> Prepared:
        """The image to start a session of `instance` from, made now if need be.

        Raises:
            ImageUnavailable: the task image is not there, or cannot be prepared; EngineUnavailable.
        """
        source = await self._runtime.resolve_image(instance.sandbox.images)
        name = _name(instance, source)
        if found := await self._runtime.find_image(name):
            return Prepared(name, source, found.labels.get(_BASE_LABEL, ""))
        task = self._running.get(name)
        if task is None:
            task = self._running[name] = asyncio.create_task(self._make(instance, source, name))
            task.add_done_callback(lambda _: self._running.pop(name, None))
        # one caller's end must not end the preparation for the others
        return await asyncio.shield(task)

    async def spec(self, instance: TaskInstance) -> ContainerSpec:
        """What a session of `instance` needs of its container, its image prepared; sid and deadline are left open.

        Raises:
            As `prepared`.
        """
        own = instance.sandbox
        named = {name: getattr(own, name) for name in ("memory_mb", "cpus", "pids", "disk_mb")}
        return ContainerSpec(
            image=(await self.prepared(instance)).image,
            role=Role.SESSION,
            sid="",
            deadline=datetime.max.replace(tzinfo=UTC),
            workdir=instance.workspace,
            env=own.env,
            activate=own.activate,
            network=own.network,
            limits=replace(self._limits, **{name: value for name, value in named.items() if value is not None}),
        )

    async def _make(self, instance: TaskInstance, source: ImageInfo, name: str) -> Prepared:
        began = time.monotonic()
        spec = ContainerSpec(
            image=source.name,
            role=Role.PREPARE,
            sid="",
            deadline=clock.today() + timedelta(seconds=self._timeout_s + 60),
            env=instance.sandbox.env,
            network=instance.sandbox.network,
            limits=self._limits,
            with_shell=False,
        )
        sandbox = await self._runtime.create(spec)
        try:
            base = await self._run(sandbox, instance)
            await self._runtime.commit(sandbox.container_id, name, {_BASE_LABEL: base, TASK_IMAGE_LABEL: source.name})
        finally:
            await asyncio.shield(self._remove(sandbox.container_id))
        log.info("image prepared", image=source.name, prepared=name, seconds=round(time.monotonic() - began, 2))
        return Prepared(name, source, base)

    async def _run(self, sandbox: Sandbox, instance: TaskInstance) -> str:
        """Set the instance up and scrub its history; returns the image's HEAD."""
        workdir = instance.sandbox.workdir
        commands = [["bash", "-c", command] for command in instance.sandbox.setup_commands]
        scrub = ["bash", "-c", _SCRIPT, "prepare", workdir, instance.workspace, *instance.sandbox.hidden_paths]
        done = None
        for argv, cwd in [*((argv, workdir) for argv in commands), (scrub, "/")]:
            done = await sandbox.exec(argv, timeout_s=self._timeout_s, cwd=cwd, user="root")
            if done.exit_code != 0:
                said = (done.stderr.text() or done.stdout.text()).strip()[-500:]
                how = "did not end" if done.timed_out else f"failed with {done.exit_code}"
                raise ImageUnavailable(
                    f"preparing the image of {instance.instance_id} {how}: {said or 'no output'};"
                    " correct the image or the instance's setup_commands"
                )
        assert done is not None  # the scrub always runs
        return done.stdout.text().strip()

    async def _remove(self, container_id: str) -> None:
        try:
            await self._runtime.remove(container_id)
        except ServiceError:
            log.warning("prepare container left to the reaper", container_id=container_id, exc_info=True)


def _name(instance: TaskInstance, source: ImageInfo) -> str:
    facts = json.dumps(
        [
            source.digest,
            instance.workspace,
            instance.sandbox.workdir,
            instance.sandbox.setup_commands,
            instance.sandbox.hidden_paths,
            _SCRIPT,
        ]
    )
    return f"{REPOSITORY}:{hashlib.sha256(facts.encode()).hexdigest()[:24]}"
