"""Chooses the image that a box starts from; for a task image, the image that its sessions see (`workspaces`).

A task image contains what a policy must not read: hidden files, and the history after HEAD with the fix. An image that
the catalogue names, by any of its names or by its id, is therefore replaced, unless the operator or the request asks
for the raw image.
"""

import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from fnmatch import fnmatchcase

from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.catalogue.services import is_built
from sandbox_server.catalogue.swepro import setup_commands
from sandbox_server.errors import MalformedRequest, UnknownImage, UnknownInstance
from sandbox_server.images.template_images import OWNER_LABEL
from sandbox_server.images.workspaces import Workspaces, for_gradings_only
from sandbox_server.sandbox.base import ImageInfo, Runtime
from sandbox_server.sandbox.image_names import tagged

VIEW_KEY = "task_image"
"""The metadata key for the view of a task image: SEALED or RAW; other values are ignored."""
SEALED, RAW = "sealed", "raw"
INSTANCE_KEY = "instance_id"
"""The metadata key that names the task, for an image with several tasks that set it up differently."""

_HARMLESS = re.compile(
    r"set -[a-z]+(?: pipefail)?|git (?:reset --hard(?: HEAD)?|clean [-a-z ]+|config [^;&|`$()<>]+)", re.ASCII
)
"""A line of setup commands that neither moves HEAD nor hides anything."""


class BoxImages:
    """Chooses the images of boxes, and makes them if necessary."""

    def __init__(
        self,
        runtime: Runtime,
        workspaces: Workspaces,
        tasks: Callable[[Collection[str]], Awaitable[Sequence[TaskInstance]]],
        task: Callable[[str], Awaitable[TaskInstance]],
        *,
        raw: Sequence[str],
    ) -> None:
        """`tasks(names)`: the instances of an image with these names, one per setup; `task(id)`: the instance.

        `raw`: patterns of the task images that boxes get unchanged.
        """
        self._runtime = runtime
        self._workspaces = workspaces
        self._tasks = tasks
        self._task = task
        self._raw = raw

    async def of(self, image: str, metadata: Mapping[str, str]) -> ImageInfo:
        """The image that a box of `image` starts from; makes it if necessary.

        Raises:
            UnknownImage: the image is for gradings only. MalformedRequest: its tasks set it up differently, and the
                request names none of them. ImageUnavailable: it is missing or cannot be sealed. EngineUnavailable,
                CatalogueUnavailable.

        """
        if is_built(image) and await self._runtime.images.find(image) is None:
            for task in await self._tasks([image]):
                return await self._workspaces.boxed(task)  # builds it
        found = await self._runtime.images.resolve([image])
        if OWNER_LABEL in found.labels:
            raise UnknownImage(f"image {image!r} does not exist for boxes: it is a template's; name the template")
        if self._is_raw(image, metadata):
            return found
        if for_gradings_only(found):
            raise UnknownImage(
                f"image {image!r} does not exist for boxes: gradings start from it, it holds hidden tests"
            )
        named = {tagged(name) for name in (image, found.digest, *found.names)}
        instances = await self._tasks([spelling for name in named for spelling in _spellings(name)])
        if not instances:
            return found
        task = await self._chosen(image, instances, metadata.get(INSTANCE_KEY, ""), named)
        # the requested image, under a name from the catalogue
        known = next((name for name in task.sandbox.images if tagged(name) in named), image)
        own = task.sandbox.model_copy(update={"images": (known,)})
        return await self._workspaces.boxed(task.model_copy(update={"sandbox": own}))

    def _is_raw(self, image: str, metadata: Mapping[str, str]) -> bool:
        asked = metadata.get(VIEW_KEY)
        if asked in (SEALED, RAW):
            return asked == RAW
        return any(fnmatchcase(name, pattern) for name in (image, tagged(image)) for pattern in self._raw)

    async def _chosen(
        self, image: str, instances: Sequence[TaskInstance], instance_id: str, named: Collection[str]
    ) -> TaskInstance:
        """The task whose view of the image the box gets: the named one, else one that hides all their hidden paths.

        Raises MalformedRequest.
        """
        if instance_id and (task := await self._of_image(instance_id, named)):
            return task
        first = instances[0]
        if len(instances) == 1:
            return first
        setups = {(one.sandbox.workdir, setup_commands(one)) for one in instances}
        folders = {workdir for workdir, _ in setups}
        if len(folders) > 1 or (len(setups) > 1 and not all(_moves_nothing(commands) for _, commands in setups)):
            ids = ", ".join(instance.instance_id for instance in instances[:3])
            raise MalformedRequest(
                f"image {image!r} is set up in {len(instances)} ways, for {ids} and such: name the task by"
                f" {INSTANCE_KEY} in the metadata, or ask for the image as it is, with its history ({VIEW_KEY}: {RAW})"
            )
        hidden = sorted({path for one in instances for path in one.sandbox.hidden_paths})
        commands = setup_commands(first) if len(setups) == 1 else ()
        own = first.sandbox.model_copy(update={"hidden_paths": tuple(hidden), "setup_commands": commands})
        return first.model_copy(update={"sandbox": own, "grader": None})

    async def _of_image(self, instance_id: str, named: Collection[str]) -> TaskInstance | None:
        """The task if it uses the image of these names, else None: clients may use this metadata key otherwise."""
        try:
            task = await self._task(instance_id)
        except UnknownInstance:
            return None
        lives = task.sandbox.source is None and any(tagged(name) in named for name in task.sandbox.images)
        return task if lives else None


def _moves_nothing(commands: Sequence[str]) -> bool:
    lines = [line.strip() for command in commands for line in command.splitlines() if line.strip()]
    return all(_HARMLESS.fullmatch(line) for line in lines)


def _spellings(name: str) -> list[str]:
    """All ways in which a catalogue may spell this image; `name` is the form that `tagged` gives."""
    bare = [name, name.removesuffix(":latest")]
    if "@" in name:
        repository, _, digest = name.partition("@")
        bare.append(f"{repository.rpartition(':')[0] or repository}@{digest}")
    return [
        prefix + one for one in dict.fromkeys(bare) for prefix in ("", "docker.io/", "library/", "docker.io/library/")
    ]
