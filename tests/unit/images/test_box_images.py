"""Which view of a task image a box gets, where several tasks live in it."""

from collections.abc import Collection, Sequence

import pytest

from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.errors import MalformedRequest, UnknownInstance
from sandbox_server.images.box_images import BoxImages
from sandbox_server.sandbox.image import ImageInfo

IMAGE = "team/task:1"


class Engine:
    """Has every image, under two names."""

    @property
    def images(self) -> "Engine":
        return self

    async def resolve(self, candidates: Sequence[str]) -> ImageInfo:
        return ImageInfo(candidates[0], "sha256:" + "0" * 64, {}, {}, (IMAGE, "team/task@sha256:" + "1" * 64))


class Workspaces:
    """Remembers what was asked for."""

    task: TaskInstance | None = None

    async def boxed(self, instance: TaskInstance) -> ImageInfo:
        self.task = instance
        return ImageInfo("sealed", "sha256:" + "2" * 64)


def task(name: str, image: str = IMAGE, **sandbox: object) -> TaskInstance:
    return TaskInstance.model_validate({"instance_id": name, "repo": "o/r", "sandbox": {"images": [image], **sandbox}})


async def chosen(tasks: Sequence[TaskInstance], image: str = IMAGE, **metadata: str) -> TaskInstance | None:
    workspaces = Workspaces()

    async def of(names: Collection[str]) -> list[TaskInstance]:
        return [one for one in tasks if set(names) & set(one.sandbox.images)]

    async def by_id(instance_id: str) -> TaskInstance:
        found = next((one for one in tasks if one.instance_id == instance_id), None)
        if found is None:
            raise UnknownInstance(instance_id)
        return found

    images = BoxImages(Engine(), workspaces, of, by_id, raw=["raw/*"])  # type: ignore[arg-type]  # what it uses of them
    await images.of(image, metadata)
    return workspaces.task


@pytest.mark.parametrize("written", [IMAGE, "docker.io/team/task:1", "team/task@sha256:" + "1" * 64])
async def test_the_catalogue_may_write_it_otherwise(written: str) -> None:
    """An image is no task image because its row names a registry, or a digest."""
    assert await chosen([task("a", written)], "docker.io/team/task:1")
    assert await chosen([task("a", written)], "sha256:" + "0" * 64)


async def test_only_who_asks_for_it_raw_gets_it_raw() -> None:
    """A setting for one image opens all; or a word of the client's own metadata does."""
    tasks = [task("a"), task("b", "raw/task")]
    assert await chosen(tasks, task_image="raw") is None and await chosen(tasks, "raw/task") is None
    assert await chosen(tasks, task_image="Raw") and await chosen(tasks, "raw/task", task_image="sealed")
    assert await chosen([task("a", "other")]) is None


async def test_tasks_of_one_set_up_hide_what_any_of_them_hides() -> None:
    """The hidden tests of one task lie open in a box that was made for another."""
    plain = task("a", setup_commands=["set -e\ngit reset --hard HEAD\ngit clean -fd", "git config user.name x"])
    merged = await chosen([plain, task("b", hidden_paths=["/secret"])])
    assert merged and merged.sandbox.hidden_paths == ("/secret",) and merged.sandbox.setup_commands == ()


@pytest.mark.parametrize("command", ["git checkout v1", "git reset --hard HEAD~3", "git config a b; git checkout v1"])
async def test_tasks_at_different_commits_are_told_apart(command: str) -> None:
    """One task's base holds another's fix, and only the request says which task is meant."""
    tasks = [task("a", setup_commands=[command]), task("b", setup_commands=["git checkout v2"])]
    with pytest.raises(MalformedRequest, match="instance_id"):
        await chosen(tasks, instance_id="of-somebody-else")
    assert await chosen(tasks, instance_id="b") == tasks[1]
