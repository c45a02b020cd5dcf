"""Images that are removed when the engine's disk fills up: which, in which order, and which never."""

import os
import secrets
import subprocess
import tarfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sandbox_server.app.engine import open_runtime
from sandbox_server.app.state import open_connection
from sandbox_server.images.engine_disk import DiskMarks, EngineDisk, ImageRules, used_pct
from sandbox_server.sandbox.base import StoredImage
from sandbox_server.sandbox.docker.runtime import DockerRuntime
from sandbox_server.sandbox.faults import Faults
from sandbox_server.settings import Settings
from sandbox_server.state.image_uses import ImageUses
from sandbox_server.state.keys import Keys

MB = 1 << 20


def docker(*words: str) -> str:
    return subprocess.run(["docker", *words], capture_output=True, text=True, timeout=60, check=True).stdout.strip()


@pytest.fixture
def disk(tmp_path: Path, missing) -> Iterator[Path]:
    """A file system of 20 MB."""
    if os.geteuid():
        missing("root, to mount a small file system")
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@dataclass
class Engine:
    """Small images of this test; each also takes 1 MB of the small disk, as if the engine stored it there."""

    disk: Path
    tar: Path
    name: str = field(default_factory=lambda: f"sandbox-disk-{secrets.token_hex(4)}")
    names: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)

    def make(self, name: str, text: str) -> str:
        """A separate image, made different by `text`."""
        file = self.tar.with_suffix(".txt")
        file.write_text(text + self.name)
        with tarfile.open(self.tar, "w") as archive:
            archive.add(file, "what.txt")
        docker("import", str(self.tar), name)
        self.names.append(name)
        self._share(name).write_bytes(bytes(MB))
        return name

    def removed_one(self, name: str) -> None:
        self.removed.append(name)
        self._share(name).unlink(missing_ok=True)

    def _share(self, name: str) -> Path:
        return self.disk / name.replace(":", "_")

    def fill(self, percent: int) -> None:
        """The part of the disk that no image uses."""
        there = sum(path.stat().st_size for path in self.disk.glob("sandbox-disk*"))
        (self.disk / "filler").write_bytes(bytes(max(0, 20 * MB * percent // 100 - there)))


@pytest.fixture
def images(disk: Path, tmp_path: Path, engine) -> Iterator[Engine]:
    made = Engine(disk, tmp_path / "one.tar")
    yield made
    for name in made.names:
        subprocess.run(["docker", "rmi", "-f", name], capture_output=True, timeout=60, check=False)


@asynccontextmanager
async def watch(
    settings: Settings, images: Engine, *, pinned: tuple[str, ...] = ()
) -> AsyncIterator[tuple[EngineDisk, ImageUses, Faults, DockerRuntime]]:
    """The real watch on the real engine; removing an image also frees its part of the small disk."""
    async with open_runtime(settings) as runtime, open_connection(settings) as connection:
        remove = runtime.images.remove

        async def and_its_part(name: str) -> bool:
            assert name in images.names, "somebody else's image"
            gone = await remove(name)
            if gone:
                images.removed_one(name)
            return gone

        runtime.images.remove = and_its_part  # type: ignore[method-assign]
        uses = ImageUses(connection, Keys(prefix=f"{images.name}:"), node=settings.node_id)
        faults = Faults()

        async def known() -> frozenset[str]:
            return frozenset()

        rules = ImageRules(f"{images.name}-prepared", pinned, pull=False)
        marks = DiskMarks(high=80, low=70, refuse=95)
        yield (
            EngineDisk(runtime, uses, known, faults, path=images.disk, marks=marks, rules=rules),
            uses,
            faults,
            runtime,
        )


async def test_the_least_recently_used_go_first(settings: Settings, images: Engine) -> None:
    """An image for the next step is removed while one that was unused for days stays."""
    old, new, older = (images.make(f"{images.name}-prepared:{tag}", tag) for tag in ("old", "new", "older"))
    busy = images.make(f"{images.name}-prepared:busy", "busy")
    pinned = images.make(f"{images.name}-prepared:pinned", "pinned")
    foreign = images.make(f"{images.name}-foreign:1", "foreign")
    container = docker("create", busy, "sh")
    try:
        async with watch(settings, images, pinned=("*-prepared:pin*",)) as (disk, uses, faults, _):
            await uses.note({busy: 1.0, pinned: 2.0, foreign: 3.0, older: 10.0, old: 20.0, new: 30.0})
            images.fill(79)
            await disk.look()
            assert images.removed == [], "below the high mark nothing goes"
            images.fill(82)
            await disk.look()
            assert images.removed == [older, old, new], "12 % are three images"
            assert used_pct(images.disk) < 70 and await uses.all() == {busy: 1.0, pinned: 2.0, foreign: 3.0}
            assert not faults.present
            images.fill(97)
            await disk.look()
            assert images.removed == [older, old, new], "nothing else may go"
            assert "SANDBOX_DISK_REFUSE_PCT=95" in faults.present["disk"]
            images.fill(60)
            await disk.look()
            assert not faults.present
    finally:
        docker("rm", "-f", container)
    assert docker("images", "-q", old) == "" and docker("images", "-q", pinned) != ""


def test_files_without_a_byte_fill_a_disk_too(tmp_path: Path, missing) -> None:
    """A policy makes empty files until no container on the host can create one; the disk counted as empty."""
    if os.geteuid():
        missing("root, to mount a small file system")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m,nr_inodes=100", "tmpfs", tmp_path], check=True)
    try:
        for number in range(96):
            (tmp_path / str(number)).touch()
        assert 96 <= used_pct(tmp_path) < 99
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)


async def test_an_image_under_a_prepared_one_stays(settings: Settings, images: Engine) -> None:
    """Removing it frees nothing while the prepared image is based on it, and then every pass tries again in vain."""
    below = images.make(f"{images.name}-task:1", "task")
    container = docker("create", below, "sh")
    above = f"{images.name}-prepared:above"
    docker("commit", container, above)
    images.names.append(above)
    async with open_runtime(settings) as runtime:
        found = {name: image for image in await runtime.images.stored() for name in image.names}
        assert found[below].used and not found[above].used
        docker("rm", "-f", container)
        found = {name: image for image in await runtime.images.stored() for name in image.names}
        assert found[below].used, "by the prepared one"
        assert await runtime.images.remove(above)
        found = {name: image for image in await runtime.images.stored() for name in image.names}
        assert not found[below].used and above not in found
        assert not found[below].pulled, "no registry knows it"


async def test_uses_are_told(settings: Settings, images: Engine) -> None:
    """Every image seems unused since the server's start."""
    name = images.make(f"{images.name}-task:latest", "task")
    async with watch(settings, images) as (disk, uses, _, runtime):
        await runtime.images.resolve([f"{images.name}-absent", f"docker.io/{images.name}-task"][1:])
        images.fill(10)
        await disk.look()
        assert list(await uses.all()) == [name]
        assert runtime.images.take_uses() == {}


@pytest.mark.parametrize(
    ("names", "pulled", "pull", "goes"),
    [
        (("task:1",), True, True, True),
        (("task:1",), True, False, False),  # SANDBOX_PULL=never
        (("task:1",), False, True, False),  # built here, it would be gone for good
        (("theirs:1",), True, True, False),
        (("task:1", "theirs:1"), True, True, False),
        (("prepared:1",), False, False, True),
        (("prepared:kept",), False, False, False),
    ],
)
def test_which_may_go(names: tuple[str, ...], pulled: bool, pull: bool, goes: bool) -> None:
    """An image is removed that cannot be made again or belongs to somebody else."""
    rules = ImageRules("prepared", ("*:kept",), pull)
    image = StoredImage(names, "sha256:1", 1, 1.0, pulled, used=False)
    assert rules.may_go(image, {"task:1"}) is goes
    assert not rules.may_go(StoredImage(names, "sha256:1", 1, 1.0, pulled, used=True), {"task:1"})
