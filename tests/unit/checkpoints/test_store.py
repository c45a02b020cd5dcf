"""Blocks of checkpoints: shared, bounded, checked."""

import io
import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_server.checkpoints.async_cache import AsyncCache
from sandbox_server.checkpoints.blocks import Cutter
from sandbox_server.checkpoints.checkpoint import Checkpoint, Part, fits
from sandbox_server.checkpoints.packing import unpack
from sandbox_server.checkpoints.store import CheckpointDamaged, Checkpoints
from sandbox_server.errors import DataDiskFull, NotForkable


def cut(data: bytes, piece: int = 70_001) -> list[bytes]:
    """The blocks of a stream that arrives in pieces."""
    cutter, blocks = Cutter(), []
    for at in range(0, len(data), piece):
        blocks += cutter.feed(data[at : at + piece])
    return [*blocks, cutter.rest()]


def archive(files: dict[str, bytes]) -> bytes:
    """A tar archive, with a time in nanoseconds for each file as GNU tar writes it."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.pax_headers = len(content), {"mtime": "1.123456789"}
            tar.addfile(member, io.BytesIO(content))
    return stream.getvalue()


async def stored(store: Checkpoints, seq: int, data: bytes, sid: str = "1") -> Checkpoint:
    """A checkpoint whose files are `data`."""
    async with store.writer() as writer:
        await writer.add(Part.FILES, data)
        return await store.keep(writer, Checkpoint(sid, seq, "image", 1.5, 2, ("running program x",)))


def blocks(folder: Path) -> list[Path]:
    """The blocks on the disk."""
    return list(folder.glob("blocks/*/*"))


async def read(store: Checkpoints, checkpoint: Checkpoint) -> bytes:
    """Its files."""
    return b"".join([block async for block in store.read(checkpoint, Part.FILES)])


@given(st.binary(max_size=3000), st.integers(0, 400), st.integers(1, 5000))
def test_blocks_are_the_stream(seed: bytes, times: int, piece: int) -> None:
    """Bytes are lost or doubled, whatever a container sends."""
    data = (seed + b"ustar\x0000" + os.urandom(8)) * times * 8
    assert b"".join(cut(data, piece * 97)) == data


def test_unchanged_files_lie_in_the_same_blocks() -> None:
    """One more small file at the beginning makes every block another one."""
    files = {f"w/{number:04}": os.urandom(40_000) for number in range(200)}
    before, after = cut(archive(files)), cut(archive({"a": b"new", **files}))
    assert len(before) > 10 and len(set(before) & set(after)) > 0.8 * len(before)
    assert max(map(len, before)) <= 4 << 20


async def test_checkpoints_outlive_the_server(tmp_path: Path) -> None:
    """After a restart checkpoints are gone, or blocks that nobody needs stay."""
    store = Checkpoints(tmp_path, most_bytes=1 << 30)
    await store.open()
    data = archive({"f": os.urandom(3_000_000)})
    first, second = await stored(store, 1, data), await stored(store, 2, data + b"more")
    (tmp_path / "blocks" / "aa").mkdir(exist_ok=True)
    (tmp_path / "blocks" / "aa" / ("a" * 64)).write_bytes(b"of a killed server")
    (tmp_path / "x.json").write_text("{}")
    again = Checkpoints(tmp_path, most_bytes=1 << 30)
    await again.open()
    assert again.nearest("1", 1, "image") == first and again.nearest("1", 9, "image") == second
    assert again.nearest("1", 0, "image") is again.nearest("1", 9, "other") is again.nearest("2", 9, "image") is None
    assert await read(again, first) == data and await read(again, second) == data + b"more"
    again.drop(first)
    assert await read(again, second) == data + b"more"
    again.drop(second)
    assert not blocks(tmp_path) and not os.listdir(tmp_path)[1:] and again.total_bytes == 0


def test_what_was_still_to_be_told_is_kept() -> None:
    """It is lost with the server, such a state is taken for a whole one, or an older version's is used without it."""
    made = Checkpoint("1", 2, "image", 1.5, notice="[It lacks a program.]", untold=1)
    stored = json.loads(json.dumps(made.to_json()))
    assert Checkpoint.from_json(stored) == made
    assert [fits(made, 3, "image", undone=(), whole=whole) for whole in (False, True)] == [True, False]
    with pytest.raises(ValueError, match="older version"):
        Checkpoint.from_json({**stored, "differences": ["action 1: finished instead of timed_out"]})


async def test_what_copies_read_outlives_its_successor(tmp_path: Path) -> None:
    """Copies wait for containers while another request copies the same state: theirs is taken for damaged, or ends the
    other's.
    """
    store = Checkpoints(tmp_path, most_bytes=1 << 30)
    await store.open()
    first = await stored(store, 1, b"first")
    with store.held(first):
        second = await stored(store, 1, b"second")
        assert await read(store, first) == b"first"
    with pytest.raises(CheckpointDamaged):
        await read(store, first)
    store.drop(first)
    assert store.find("1", 1) == second and await read(store, second) == b"second"
    assert len(blocks(tmp_path)) == 1


async def test_the_oldest_go_first(tmp_path: Path) -> None:
    """The folder grows without bound, or the checkpoint in use goes."""
    store = Checkpoints(tmp_path, most_bytes=2_500_000)
    await store.open()
    for seq in (1, 2):
        await stored(store, seq, os.urandom(1_000_000))
    assert store.nearest("1", 1, "image") is not None  # used now
    await stored(store, 3, os.urandom(1_000_000))
    assert [seq for _, seq in store._known] == [1, 3] and store.total_bytes <= 2_500_000
    with pytest.raises(NotForkable, match="SANDBOX_CHECKPOINTS_MB"):
        await stored(store, 4, os.urandom(6_000_000))
    assert [seq for _, seq in store._known] == [1, 3], "what was too large left nothing, and took nothing away"
    assert len(blocks(tmp_path)) == 2


async def test_sleepers_that_fill_the_folder_cost_little(tmp_path: Path) -> None:
    """Each attempt of a further session sums all blocks once for each sleeper: 1,000 of them stall the server."""
    sums = []

    class Summed(Checkpoints):
        @property
        def total_bytes(self) -> int:
            sums.append(1)
            return super().total_bytes

    store = Summed(tmp_path, most_bytes=30_000)
    await store.open()
    for number in range(20):
        store.pinned.add(f"{number}")
        await stored(store, 1, os.urandom(1_400), f"{number}")
    sums.clear()
    with pytest.raises(NotForkable, match="SANDBOX_CHECKPOINTS_MB"):
        await stored(store, 1, os.urandom(9_000), "awake")
    assert len(sums) < 5 and len(store._known) == 20


async def test_what_stands_stays_until_it_is_released(tmp_path: Path) -> None:
    """A box's files go to make room for others, over a restart too; or they stay for ever."""
    store = Checkpoints(tmp_path, most_bytes=2_500_000)
    await store.open()
    async with store.writer() as writer:
        await writer.add(Part.FILES, os.urandom(1_000_000))
        kept = await store.keep(writer, Checkpoint("box-7", 0, "sha256:1", 1.5, stands=True))
    again = Checkpoints(tmp_path, most_bytes=2_500_000)
    await again.open()
    for seq in (1, 2, 3):
        await stored(again, seq, os.urandom(1_000_000))
    assert again.permanent() == [kept] and again.find("box-7", 0) == kept and again.stored_bytes(kept) > 1_000_000
    await again.release(kept)
    for seq in (4, 5):
        await stored(again, seq, os.urandom(1_000_000))
    assert again.find("box-7", 0) is None and again.permanent() == []


async def test_those_of_sleeping_sessions_stay(tmp_path: Path) -> None:
    """A sleeping session loses its state to others; or what has no room is stored for nothing."""
    store = Checkpoints(tmp_path, most_bytes=2_500_000)
    await store.open()
    store.pinned.add("7")
    await stored(store, 1, os.urandom(1_000_000), sid="7")
    for seq in (1, 2, 3):
        await stored(store, seq, os.urandom(1_000_000))
    assert list(store._known) == [("7", 1), ("1", 3)]
    store.pinned.add("1")
    for sid in ("2", "7"):
        with pytest.raises(NotForkable, match="snapshots leave no room"):
            await stored(store, 9, os.urandom(1_000_000), sid=sid)
    assert list(store._known) == [("7", 1), ("1", 3)] and len(blocks(tmp_path)) == 2


@pytest.mark.parametrize("harm", ["cut", "other", "gone"])
async def test_a_damaged_block_is_refused(tmp_path: Path, harm: str) -> None:
    """A copy gets files that are not its original's."""
    store = Checkpoints(tmp_path, most_bytes=1 << 30)
    await store.open()
    made = await stored(store, 1, os.urandom(100_000))
    (path,) = blocks(tmp_path)
    packed = path.read_bytes()
    {
        "cut": lambda: path.write_bytes(packed[:-100]),
        "other": lambda: path.write_bytes(b"\xff\xff\xff\xff" + packed[4:]),
        "gone": path.unlink,
    }[harm]()
    again = Checkpoints(tmp_path, most_bytes=1 << 30)
    await again.open()
    if harm != "gone":
        with pytest.raises(CheckpointDamaged):
            await read(again, made)
    assert again.nearest("1", 1, "image") is None


async def test_a_damaged_block_is_written_again(tmp_path: Path) -> None:
    """A new checkpoint relies on a damaged block that others share with it, so that no copy can ever be made."""
    before, data = Checkpoints(tmp_path, most_bytes=1 << 30), os.urandom(100_000)
    await before.open()
    for sid in ("1", "2", "3"):
        await stored(before, 1, data, sid)
    (path,) = blocks(tmp_path)
    path.write_bytes(path.read_bytes()[:-3] + b"bad")
    store = Checkpoints(tmp_path, most_bytes=1 << 30)
    await store.open()
    first = store.find("1", 1)
    assert first is not None
    with pytest.raises(CheckpointDamaged):
        await read(store, first)
    assert not store.find("2", 1) and not store.find("3", 1) and not blocks(tmp_path)
    assert await read(store, await stored(store, 2, data)) == data


async def test_what_stands_outlives_a_damaged_block(tmp_path: Path) -> None:
    """A box's checkpoint goes with another one's; or the next checkpoint relies on the block that is damaged."""
    before, data = Checkpoints(tmp_path, most_bytes=1 << 30), os.urandom(100_000)
    await before.open()
    async with before.writer() as writer:
        await writer.add(Part.FILES, data)
        await before.keep(writer, Checkpoint("box-7", 0, "sha256:1", 1.5, stands=True))
    first = await stored(before, 1, data)
    (path,) = blocks(tmp_path)
    path.write_bytes(path.read_bytes()[:-3] + b"bad")
    store = Checkpoints(tmp_path, most_bytes=1 << 30)
    await store.open()
    with pytest.raises(CheckpointDamaged):
        await read(store, first)
    kept = store.find("box-7", 0)
    assert kept is not None and not store.find("1", 1)
    await stored(store, 2, data)
    assert await read(store, kept) == data


async def test_a_block_that_cannot_be_read_now_is_kept(tmp_path: Path) -> None:
    """For want of descriptors, checkpoints of other sessions that are whole are removed."""
    before, data = Checkpoints(tmp_path, most_bytes=1 << 30), os.urandom(100_000)
    await before.open()
    first, second = await stored(before, 1, data), await stored(before, 2, data)
    (path,) = blocks(tmp_path)
    store = Checkpoints(tmp_path, most_bytes=1 << 30)
    await store.open()
    path.rename(tmp_path / "aside")
    path.mkdir()
    with pytest.raises(CheckpointDamaged):
        await read(store, first)
    path.rmdir()
    (tmp_path / "aside").rename(path)
    assert store.find("1", 2) == second and await read(store, second) == data


async def test_a_checkpoint_taken_again_replaces_the_former(tmp_path: Path) -> None:
    """The blocks of the former stay on the disk, counted as nobody's."""
    store = Checkpoints(tmp_path, most_bytes=1 << 30)
    await store.open()
    await stored(store, 1, os.urandom(100_000))
    last = await stored(store, 1, data := os.urandom(100_000))
    assert len(blocks(tmp_path)) == 1 and await read(store, last) == data
    store.drop(last)
    assert store.total_bytes == store._kept_bytes == 0


async def test_the_order_of_use_outlives_the_server(tmp_path: Path) -> None:
    """After a restart the checkpoint used last is the first to go; or half a block of a killed server stays."""
    before = Checkpoints(tmp_path, most_bytes=1 << 30)
    await before.open()
    for seq in (1, 2, 3):
        await stored(before, seq, os.urandom(1000))
        os.utime(tmp_path / f"1-{seq}.json", (100 - seq, 100 - seq))
    (part := blocks(tmp_path)[0].with_name("12ab.part")).write_bytes(b"half")
    store = Checkpoints(tmp_path, most_bytes=1 << 30)
    await store.open()
    assert [seq for _, seq in store._known] == [3, 2, 1] and not part.exists()


async def test_a_full_disk_is_told(tmp_path: Path) -> None:
    """A checkpoint fills the last of the disk that running sessions need."""

    def full() -> None:
        raise DataDiskFull("full")

    store = Checkpoints(tmp_path, most_bytes=1 << 30, room=full)
    await store.open()
    with pytest.raises(DataDiskFull):
        await stored(store, 1, b"x")
    assert not blocks(tmp_path)


async def test_what_failed_holds_nothing(tmp_path: Path) -> None:
    """A block whose writing failed once is never removed; or its checkpoint takes the former one with it."""
    full = True

    def room() -> None:
        if full:
            raise DataDiskFull("full")

    store, data = Checkpoints(tmp_path, most_bytes=200_000, room=room), os.urandom(100_000)
    await store.open()
    with pytest.raises(DataDiskFull):
        await stored(store, 1, data)
    full = False
    made = await stored(store, 1, data)
    with pytest.raises(NotForkable):
        await stored(store, 1, os.urandom(250_000))  # refused with its last block
    assert store.find("1", 1) == made and await read(store, made) == data
    store.drop(made)
    assert not blocks(tmp_path) and store.total_bytes == 0


async def test_what_is_held_stays(tmp_path: Path) -> None:
    """The upload of a checkpoint loses its blocks when the checkpoint makes room for another one."""
    store = Checkpoints(tmp_path, most_bytes=1 << 30)
    await store.open()
    made = await stored(store, 1, os.urandom(100_000))
    with store.held(made) as names:
        store.drop(made)
        assert all(map(store.packed, names))
    assert not blocks(tmp_path)


def test_a_block_of_any_claimed_size_is_refused() -> None:
    """A damaged or forged block takes gigabytes of memory."""
    with pytest.raises(ValueError, match="claims"):
        unpack("name", (1 << 30).to_bytes(4, "big") + b"x")


@pytest.mark.parametrize(("at", "fit"), [(7, True), (8, False), (12, False), (13, True), (14, True)])
def test_undone_states_do_not_fit(at: int, fit: bool) -> None:
    """A state that was undone comes back, or the one after the rollback (13, which undid 8 to 12) is made anew."""
    assert fits(Checkpoint("1", at, "image", 0.0), 14, "image", undone=[(8, 13)], whole=True) is fit


async def test_an_error_is_not_kept() -> None:
    """After one error, no copy of the checkpoint can be made."""
    recent = AsyncCache[int](1)
    tries: Iterator[OSError | int] = iter([OSError("once"), 7])

    async def make() -> int:
        one = next(tries)
        if isinstance(one, OSError):
            raise one
        return one

    with pytest.raises(OSError):
        await recent.get("key", make)
    assert await recent.get("key", make) == 7 == await recent.get("key", make)
