"""Images ready to start from: the task image with its workspace path, without any history after HEAD.

Prepared once per image and kept on the engine under a name that is a hash of all that went into it, so that a
start costs nothing but a container.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from importlib import resources

from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.errors import ImageUnavailable
from sandbox_server.sandbox.base import ContainerSpec, ImageInfo, Limits, Role, Runtime, Sandbox
from sandbox_server.sessions.preparing import REPOSITORY, Preparing
from sandbox_server.sessions.repository_images import LEFT_OUT_LABEL, RepositoryImages

TASK_IMAGE_LABEL = "sandbox.task_image"
"""Names the task image that a prepared image was made of, as nodes tell of it."""
_BASE_LABEL = "sandbox.base_commit"
_SCRIPT = resources.files(__package__).joinpath("prepare.bash").read_text()


@dataclass(frozen=True, slots=True)
class Prepared:
    """An image that sessions of an instance start from."""

    image: str
    base_commit: str
    """The task image's own HEAD."""
    left_out: str
    """What of the instance's repository it does not have; "" for nothing."""


class Workspaces:
    """Prepares images, each once however many starts ask for it."""

    def __init__(
        self,
        runtime: Runtime,
        preparing: Preparing,
        repositories: RepositoryImages,
        *,
        limits: Limits,
        search_image: str,
    ) -> None:
        """`search_image` is the base of instances that have a `source` and name no image."""
        self._runtime = runtime
        self._preparing = preparing
        self._repositories = repositories
        self._limits = limits
        self._search_image = search_image

    async def prepared(self, instance: TaskInstance) -> Prepared:
        """The image to start a session of `instance` from, made now if need be.

        Raises:
            ImageUnavailable: the task image is not there, or cannot be prepared; RepositoryUnavailable: its repository
                is not to be had; EngineUnavailable.

        """
        base = await self._base(instance)
        name = _name(instance, base)
        made = await self._preparing.once(name, partial(self._make, instance, base, name))
        return Prepared(name, made.labels.get(_BASE_LABEL, ""), made.labels.get(LEFT_OUT_LABEL, ""))

    async def fetch(self, instances: Sequence[TaskInstance]) -> None:
        """Bring the repositories of those that are not prepared, each by one fetch; what fails, `prepared` tells.

        Raises:
            ImageUnavailable: a base image is not there; EngineUnavailable.

        """
        wanted = []
        for instance in instances:
            if instance.sandbox.source and not await self._runtime.find_image(
                _name(instance, await self._base(instance))
            ):
                wanted.append(instance.sandbox.source)
        await self._repositories.fetch(wanted)

    async def task_image(self, instance: TaskInstance) -> ImageInfo:
        """The image that gradings of `instance` start from: before setup commands, nothing hidden.

        Raises:
            As `prepared`.

        """
        return await self._task_image(instance, await self._base(instance))

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

    async def _base(self, instance: TaskInstance) -> ImageInfo:
        own = instance.sandbox
        if own.images or own.source is None:
            return await self._runtime.resolve_image(own.images)
        try:
            return await self._runtime.resolve_image((self._search_image,))
        except ImageUnavailable as e:
            what = f"{self._search_image} (SANDBOX_SEARCH_IMAGE), which {instance.instance_id} starts from"
            raise ImageUnavailable(
                f"{what}: make it on this host: `make search-image`. {e.detail}", absent=e.absent
            ) from e

    async def _task_image(self, instance: TaskInstance, base: ImageInfo) -> ImageInfo:
        own = instance.sandbox
        return base if own.source is None else await self._repositories.image(own.source, base, own.workdir)

    async def _make(self, instance: TaskInstance, base: ImageInfo, name: str) -> ImageInfo:
        image = await self._task_image(instance, base)
        own = instance.sandbox
        known_as = own.source.name if own.source else image.name
        change = partial(self._change, instance, known_as)
        made = await self._preparing.freeze(name, image.name, change, env=own.env, network=own.network)
        return replace(made, labels={**image.labels, **made.labels})

    async def _change(self, instance: TaskInstance, known_as: str, sandbox: Sandbox) -> Mapping[str, str]:
        """Set the instance up and scrub its history; the labels."""
        workdir = instance.sandbox.workdir
        what = f"{instance.instance_id} (mend the image or the instance's setup_commands)"
        for command in instance.sandbox.setup_commands:
            await self._preparing.run(sandbox, ["bash", "-c", command], cwd=workdir, what=what)
        if instance.sandbox.source is not None:
            # the files have other inodes than where they were checked out; else the first `git status` reads them all
            refresh = ["git", "-c", "safe.directory=*", "update-index", "-q", "--refresh"]
            await self._preparing.run(sandbox, refresh, cwd=workdir, what=what)
        scrub = ["bash", "-c", _SCRIPT, "prepare", workdir, instance.workspace, *instance.sandbox.hidden_paths]
        base_commit = await self._preparing.run(sandbox, scrub, cwd="/", what=what)
        return {_BASE_LABEL: base_commit, TASK_IMAGE_LABEL: known_as}


def _name(instance: TaskInstance, base: ImageInfo) -> str:
    own = instance.sandbox
    said = [base.digest, instance.workspace, own.workdir, own.setup_commands, own.hidden_paths, _SCRIPT]
    facts = json.dumps([*said, *(RepositoryImages.facts(own.source) if own.source else ())])
    return f"{REPOSITORY}:{hashlib.sha256(facts.encode()).hexdigest()[:24]}"
