"""Checkpoints of other nodes, in an object store: a real server that speaks S3, and a folder."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from sandbox_server.checkpoints.checkpoint import Checkpoint, Part
from sandbox_server.checkpoints.objects import Objects, ObjectsUnavailable
from sandbox_server.checkpoints.permanent import PermanentCheckpoints
from sandbox_server.checkpoints.shared import SharedCheckpoints
from sandbox_server.checkpoints.store import Checkpoints
from tests.s3 import Bucket, bucket

DATA = os.urandom(3_000_000)
OTHERS = json.dumps(Checkpoint("8", 4, "image", 1.5).to_json()).encode()
"""A whole checkpoint of another session."""


@pytest.fixture(scope="module")
def s3(missing: Callable[[str], None]) -> Iterator[Bucket]:
    with bucket(missing) as made:
        yield made


@pytest.fixture(params=["s3", "file"])
def objects(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Objects:
    """An empty store."""
    if request.param == "file":
        return Objects(f"file://{tmp_path}/objects", timeout_s=20)
    made: Bucket = request.getfixturevalue("s3")
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return Objects(f"{made.url}/{tmp_path.name}", timeout_s=20)


async def node(folder: Path, objects: Objects, most_bytes: int = 1 << 30) -> SimpleNamespace:
    """What one node has."""
    local = Checkpoints(folder, most_bytes=most_bytes)
    await local.open()
    return SimpleNamespace(local=local, shared=SharedCheckpoints(local, objects, timeout_s=20))


async def saved(on: SimpleNamespace, seq: int, data: bytes = DATA, left_out: tuple[str, ...] = ()) -> Checkpoint:
    """A checkpoint that a node took, and copied."""
    async with on.local.writer() as writer:
        await writer.add(Part.FILES, data)
        await writer.add(Part.UNDO, b"undo")
        made = await on.local.keep(writer, Checkpoint("7", seq, "image", 1.5, 2, left_out))
    on.shared.save(made)
    await on.shared._uploads.settle(20)
    return made


async def fetched(
    on: SimpleNamespace, seq: int, *, above: int = -1, image: str = "image", whole: bool = False
) -> Checkpoint | None:
    found: Checkpoint | None = await on.shared.fetch("7", seq, image, above=above, undone=[(20, 30)], whole=whole)
    return found


async def test_objects_are_what_was_written(objects: Objects) -> None:
    """A checkpoint that is there is not found, or one that is not there is an error."""
    await objects.put("a/b/1.json", b"one")
    await objects.put("a/b/1.json", b"two")
    await objects.put("a/bc/2.json", b"")
    assert (await objects.get("a/b/1.json", 10), await objects.get("a/bc/2.json", 10)) == (b"two", b"")
    assert await objects.keys("a/b") == ["a/b/1.json"] and await objects.keys("none") == []
    assert await objects.get("a/b/1.json", 2) is None
    await objects.remove("a/b/1.json")
    await objects.remove("a/b/1.json")
    assert await objects.get("a/b/1.json", 10) is None


async def test_another_node_has_what_one_took(tmp_path: Path, objects: Objects) -> None:
    """The other one runs all actions again, or gets a state that is not the session's."""
    a, b = await node(tmp_path / "a", objects), await node(tmp_path / "b", objects)
    for seq, left_out in ((3, ()), (5, ("running program x",)), (25, ()), (40, ())):
        await saved(a, seq, DATA + bytes([seq]), left_out)
    found = await fetched(b, 30)
    assert found == a.local.nearest("7", 5, "image") and found is not None
    assert b"".join([block async for block in b.local.read(found, Part.FILES)]) == DATA + b"\x05"
    assert [block async for block in b.local.read(found, Part.UNDO)] == [b"undo"]
    assert b.local.nearest("7", 9, "image") == found, "it is its own from now on"
    whole = await fetched(b, 30, whole=True)
    assert whole is not None and whole.seq == 3
    assert await fetched(b, 30, above=5) is await fetched(b, 2) is await fetched(b, 99, image="other") is None


async def test_blocks_are_written_once(tmp_path: Path, objects: Objects) -> None:
    """Each checkpoint of a session with a large build folder writes all of it again."""
    a = await node(tmp_path / "a", objects)
    await saved(a, 1)
    first = await objects.keys("blocks")
    written: list[str] = []
    put = objects.put

    async def counted(key: str, data: bytes) -> None:
        written.append(key)
        await put(key, data)

    objects.put = counted  # type: ignore[method-assign]
    await saved(a, 2)
    assert written == ["checkpoints/7/2.json"] and await objects.keys("blocks") == first


async def test_blocks_in_use_are_written_again_after_an_hour(
    tmp_path: Path, objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bucket's rule removes objects by age: of a long session, blocks that its newest checkpoint needs."""
    a = await node(tmp_path / "a", objects)
    await saved(a, 1)
    for name in await objects.keys("blocks"):
        await objects.remove(name)
    monkeypatch.setattr("sandbox_server.checkpoints.shared._AGAIN_S", 0.0)
    await saved(a, 2)
    assert await fetched(await node(tmp_path / "b", objects), 9) is not None


async def test_uploads_do_not_pile_up(tmp_path: Path, objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store slower than the sessions keeps the blocks of all their checkpoints from being removed."""
    a = await node(tmp_path / "a", objects)
    monkeypatch.setattr("sandbox_server.checkpoints.shared._MOST_WAITING", 0)
    await saved(a, 1)
    assert await objects.keys("checkpoints/7") == []


@pytest.mark.parametrize("harm", [b"\0\0\0\x05other", b"", bytes(10 << 20)], ids=["other", "empty", "large"])
async def test_a_damaged_one_is_replaced_by_an_older_one(tmp_path: Path, objects: Objects, harm: bytes) -> None:
    """A copy gets files that are not its original's; or the damaged one is tried again and again."""
    a, b = await node(tmp_path / "a", objects), await node(tmp_path / "b", objects)
    await saved(a, 1)
    kept = set(await objects.keys("blocks"))
    await saved(a, 2, os.urandom(1000))
    (harmed,) = set(await objects.keys("blocks")) - kept
    await objects.put(harmed, harm)
    found = await fetched(b, 9)
    assert found is not None and found.seq == 1
    assert await objects.keys("checkpoints/7") == ["checkpoints/7/1.json"]


@pytest.mark.parametrize("described", [b"", b"{}", b"[]", b"\xff", b'{"sid": "8", "seq": 4}', OTHERS])
async def test_what_is_no_checkpoint_is_none(tmp_path: Path, objects: Objects, described: bytes) -> None:
    """Something else in the bucket stops restores."""
    await objects.put("checkpoints/7/4.json", described)
    await objects.put("checkpoints/7/note.txt", b"x")
    assert await fetched(await node(tmp_path / "b", objects), 9) is None


async def test_one_that_has_no_room_is_left(tmp_path: Path, objects: Objects) -> None:
    """A node with a small folder cannot restore at all."""
    await saved(await node(tmp_path / "a", objects), 1)
    small = await node(tmp_path / "b", objects, most_bytes=100_000)
    assert await fetched(small, 9) is None and small.local.total_bytes == 0


async def test_a_store_that_is_away_costs_nothing_else(
    tmp_path: Path, missing: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the object store checkpoints fail, or each restore waits for it."""
    with bucket(missing) as made:
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
        objects = Objects(made.url, timeout_s=3)
        a = await node(tmp_path / "a", objects)
        made.stop()
        mine = await saved(a, 1)
        assert a.local.nearest("7", 1, "image") == mine
        assert await fetched(a, 9, above=1) is None

        async def never(folder: str) -> list[str]:
            raise AssertionError("asked again at once")

        objects.keys = never  # type: ignore[method-assign]
        assert await fetched(a, 9, above=1) is None
    with pytest.raises(ObjectsUnavailable):
        await objects.get("x", 1)


def test_a_url_that_cannot_be_used_is_told() -> None:
    """The server starts and stores nothing."""
    with pytest.raises(ValueError, match="SANDBOX_CHECKPOINTS_URL=ftp://x"):
        Objects("ftp://x", timeout_s=1)


async def test_what_stands_is_kept_whole_and_removed_whole(objects: Objects, tmp_path: Path) -> None:
    """A snapshot lacks a block elsewhere, a damaged one is used, or a deleted one leaves something."""
    a, b = await node(tmp_path / "a", objects), await node(tmp_path / "b", objects)
    here, there = (PermanentCheckpoints(one.local, objects, node="a", timeout_s=20) for one in (a, b))
    for name in ("one", "two"):
        async with a.local.writer() as writer:
            await writer.add(Part.FILES, DATA)
            await here.save(await a.local.keep(writer, Checkpoint(name, 0, "sha256:1", 1.5, stands=True)))
    found = await there.fetch("a", "one")
    assert found is not None and not found.stands
    assert b"".join([block async for block in b.local.read(found, Part.FILES)]) == DATA
    assert await there.fetch("a", "three") is None and await there.fetch("b", "one") is None
    block = next(key for key in await objects.keys("snapshots/a/two/blocks"))
    await objects.put(block, b"damaged")
    assert await there.fetch("a", "two") is None
    await there.remove("a", "one")
    assert await objects.keys("snapshots/a/one") == []
    await here.tidy({"three"})
    assert await objects.keys("snapshots") == []
