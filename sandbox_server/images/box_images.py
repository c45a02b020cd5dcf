"""The image that a box starts from; a box of a task's image gets the sealed one (`workspaces`).

A task image holds what its policy must not read: the history after HEAD, with the fix in it, and hidden files. An image
that the catalogue names, by any of its names or by its id, is therefore replaced by its sealed image, unless the
operator or the request asks for the raw one.
"""

import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from fnmatch import fnmatchcase

from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.catalogue.swepro import setup_commands
from sandbox_server.errors import MalformedRequest, UnknownImage, UnknownInstance
from sandbox_server.images.workspaces import Workspaces, for_gradings_only
from sandbox_server.sandbox.base import ImageInfo, Runtime
from sandbox_server.sandbox.image_names import tagged

VIEW_KEY = "task_image"
"""The metadata key by which a request says how it wants a task image: SEALED or RAW; other words say nothing."""
SEALED, RAW = "sealed", "raw"
INSTANCE_KEY = "instance_id"
"""The metadata key that names the task, for an image that several tasks set up in different ways."""

_HARMLESS = re.compile(
    r"set -[a-z]+(?: pipefail)?|git (?:reset --hard(?: HEAD)?|clean [-a-z ]+|config [^;&|`$()<>]+)", re.ASCII
)
"""A line of a set-up that moves no HEAD and hides nothing."""


class BoxImages:
    """Chooses and makes the images of boxes."""

    def __init__(
        self,
        runtime: Runtime,
        workspaces: Workspaces,
        tasks: Callable[[Collection[str]], Awaitable[Sequence[TaskInstance]]],
        task: Callable[[str], Awaitable[TaskInstance]],
        *,
        raw: Sequence[str],
    ) -> None:
        """`tasks(names)`: the instances of an image of these names, one of each set-up; `task(id)`: one of them.

        `raw`: patterns of the task images that are given as they are.
        """
        self._runtime = runtime
        self._workspaces = workspaces
        self._tasks = tasks
        self._task = task
        self._raw = raw

    async def of(self, image: str, metadata: Mapping[str, str]) -> ImageInfo:
        """What a box of `image` starts from, made now if need be.

        Raises:
            UnknownImage: it is for gradings only. MalformedRequest: its tasks see different things in it, and the
                request names none of them. ImageUnavailable: it is not there, or cannot be sealed. EngineUnavailable,
                CatalogueUnavailable.

        """
        found = await self._runtime.resolve_image([image])
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
        # the image that was asked for, under a name that the catalogue knows
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
        """The task whose view of the image is given: the one that is named, else one that hides what any of them does.

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
        """The task, if it lives in the image of these names; clients have metadata of their own by the same key."""
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
    """The ways in which a catalogue may write what `tagged` writes so."""
    bare = [name, name.removesuffix(":latest")]
    if "@" in name:
        repository, _, digest = name.partition("@")
        bare.append(f"{repository.rpartition(':')[0] or repository}@{digest}")
    return [
        prefix + one for one in dict.fromkeys(bare) for prefix in ("", "docker.io/", "library/", "docker.io/library/")
    ]
