"""A box that is used while its container is being taken away; the image that stored files belong to."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from sandbox_server import clock
from sandbox_server.boxes.base_images import BaseImages
from sandbox_server.boxes.sleeping import BoxSleep
from sandbox_server.boxes.view import BoxView
from sandbox_server.errors import UnknownImage
from sandbox_server.records import BoxRecord, SessionRecord
from sandbox_server.sandbox.base import ImageInfo

from .test_box_view import BOX


class Part:
    """Redis, the log, the slots and the engine."""

    def __init__(self) -> None:
        now = clock.now()
        self.record = SessionRecord("7", "live", "", "n1", "c0ffee", now, now, now + 100)
        self.done: list[str] = []

    async def change(self, box: BoxRecord, deadline: float, **more: str) -> bool:
        self.record = replace(self.record, **more)  # type: ignore[arg-type]
        return True

    def add(self, record: SessionRecord, box: BoxRecord) -> None:
        self.done.append(f"log {record.container_id}")

    async def drain(self) -> None: ...

    async def commands(self, sid: str) -> dict[int, str]:
        return {}

    async def release(self, sid: str) -> None:
        self.done.append("slot free")

    async def remove(self, container_id: str) -> None:
        self.done.append(f"removed {container_id}")


@pytest.mark.parametrize(
    ("unused", "left", "done"),
    [(True, "", ["log ", "slot free", "removed c0ffee"]), (False, "c0ffee", ["log ", "log c0ffee"])],
)
async def test_a_box_that_is_used_meanwhile_keeps_its_container(unused: bool, left: str, done: list[str]) -> None:
    """A request that came at the same moment has its command killed, or is told that the box is lost."""
    part = Part()
    sleep = BoxSleep(part, part, part, part, part, part, part, part)  # type: ignore[arg-type]  # what it uses of them
    view = await sleep.let_go(BoxView(part.record, BOX), unused=lambda: unused)
    assert view.record.container_id == part.record.container_id == left and part.done == done


class Engine:
    """An engine with these images, name or id -> id."""

    def __init__(self, **images: str) -> None:
        self._images = images

    @property
    def images(self) -> "Engine":
        return self

    async def find(self, name: str) -> ImageInfo | None:
        return ImageInfo(name, self._images[name]) if name in self._images else None

    async def of(self, image: str, metadata: object) -> ImageInfo:
        return ImageInfo(image, "pulled")


@pytest.mark.parametrize(
    ("images", "image_id", "found"),
    [
        ({"base": "id1", "id1": "id1"}, "id1", "base"),
        ({"base": "id2", "id1": "id1"}, "id1", "id1"),
        ({}, "pulled", "image"),
        ({"base": "id2"}, "id1", None),
    ],
)
async def test_files_go_into_their_own_image_alone(images: dict[str, str], image_id: str, found: str | None) -> None:
    """Files of a box are put over another image, because its name has moved; or the right one is not found."""
    engine = Engine(**images)
    bases = BaseImages(engine, engine, SimpleNamespace())  # type: ignore[arg-type]  # what it uses of them
    box = replace(BOX, image="image", base="base")
    if found is None:
        with pytest.raises(UnknownImage, match="names another one now"):
            await bases.of(box, image_id)
    else:
        assert (await bases.of(box, image_id)).name == found
