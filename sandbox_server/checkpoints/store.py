"""Checkpoints in a folder of this node, stored as compressed blocks that checkpoints share.

The name of a block is the SHA-256 of its content, which is verified at every read. Beyond the size limit the least
recently used checkpoints are removed, except permanent ones and those of sleeping sessions. A session survives the loss
of a checkpoint, because its state can be rebuilt from the journal.
"""

import asyncio
import errno
import json
import os
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from sandbox_server import telemetry
from sandbox_server.checkpoints.archive import Member
from sandbox_server.checkpoints.async_cache import AsyncCache
from sandbox_server.checkpoints.checkpoint import Checkpoint, Part, fits
from sandbox_server.checkpoints.packing import pack, unpack
from sandbox_server.checkpoints.unpacker import FolderContents
from sandbox_server.checkpoints.writer import CheckpointWriter, named, write
from sandbox_server.errors import DataDiskFull, InfrastructureError, NotForkable

log = telemetry.logger(__name__)

_KEPT_BYTES = 64 << 20  # bytes of cached blocks: the copies of a fork read the same blocks within a second
_UNPACKED = 4  # small checkpoints that are cached as they are restored
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class CheckpointDamaged(Exception):
    """A block is missing or damaged. The checkpoint has been removed."""


class BlockDamaged(Exception):
    """A block is missing or damaged."""

    def __init__(self, name: str, why: str, *, stays: bool) -> None:
        """`stays`: whether reading the block again would fail too."""
        super().__init__(why)
        self.name = name
        self.stays = stays


class Checkpoints:
    """The checkpoints in `folder`, which only this server uses. Call `open` first."""

    def __init__(self, folder: Path, *, most_bytes: int, room: Callable[[], None] = lambda: None) -> None:
        """`most_bytes`: limit on all blocks together. `room()` raises DataDiskFull if the disk has too little space."""
        self.most_bytes = most_bytes
        self._folder = folder
        self._room = room
        self._known: OrderedDict[tuple[str, int], Checkpoint] = OrderedDict()
        """(sid, seq) -> checkpoint, the least recently used first."""
        self._sizes: dict[str, int] = {}
        """Block -> bytes on the disk."""
        self._users: Counter[str] = Counter()
        """Block -> number of checkpoints and writers that use it."""
        self.pinned: set[str] = set()
        """Sids of sleeping sessions, whose checkpoints are not removed to make room."""
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._kept_bytes = 0
        self.unpacked: AsyncCache[tuple[FolderContents, Sequence[Member]]] = AsyncCache(_UNPACKED)
        """Names of blocks -> their content, for concurrent copies."""

    async def open(self) -> None:
        """Read the folder, and remove blocks that no checkpoint uses."""
        known, self._sizes = await asyncio.to_thread(self._look)
        for checkpoint in known:
            if all(name in self._sizes for names in checkpoint.blocks.values() for name in names):
                self._known[checkpoint.sid, checkpoint.seq] = checkpoint
                self._users.update(_names(checkpoint))
            else:
                self._path_of(checkpoint).unlink(missing_ok=True)
        for name in [name for name in self._sizes if not self._users[name]]:
            self._forget_block(name)

    @property
    def total_bytes(self) -> int:
        """Size on disk in bytes."""
        return sum(self._sizes.values())

    def nearest(
        self, sid: str, seq: int, image: str, *, undone: Sequence[tuple[int, int]] = (), whole: bool = False
    ) -> Checkpoint | None:
        """The session's last checkpoint that fits, see `checkpoint.fits`. Counts as a use."""
        of_it = (checkpoint for (of, _), checkpoint in self._known.items() if of == sid)
        fit = (checkpoint for checkpoint in of_it if fits(checkpoint, seq, image, undone=undone, whole=whole))
        best = max(fit, key=lambda checkpoint: checkpoint.seq, default=None)
        if best is not None:
            self._used(best)
        return best

    def find(self, sid: str, seq: int) -> Checkpoint | None:
        """The checkpoint taken after exactly this action. Counts as a use."""
        if (found := self._known.get((sid, seq))) is not None:
            self._used(found)
        return found

    def permanent(self) -> list[Checkpoint]:
        """The permanent checkpoints."""
        return [checkpoint for checkpoint in self._known.values() if checkpoint.stands]

    async def release(self, checkpoint: Checkpoint) -> None:
        """Make a permanent checkpoint removable."""
        key = (checkpoint.sid, checkpoint.seq)
        if key in self._known:
            self._known[key] = released = replace(checkpoint, stands=False)
            with _stored():
                await asyncio.to_thread(write, self._path_of(released), json.dumps(released.to_json()).encode())

    def stored_bytes(self, checkpoint: Checkpoint) -> int:
        """Size of its blocks on disk in bytes, shared ones included."""
        return sum(self._sizes.get(name, 0) for name in set(_names(checkpoint)))

    def _used(self, checkpoint: Checkpoint) -> None:
        self._known.move_to_end((checkpoint.sid, checkpoint.seq))
        with suppress(OSError):
            os.utime(self._path_of(checkpoint))

    @asynccontextmanager
    async def writer(self) -> AsyncIterator[CheckpointWriter]:
        """Write a checkpoint; `keep` completes it. At the end of the context, blocks that no checkpoint uses are
        removed.
        """
        writer = CheckpointWriter(self)
        try:
            yield writer
        finally:
            for names in writer._blocks.values():
                self._let_go(names)

    async def keep(self, writer: CheckpointWriter, checkpoint: Checkpoint) -> Checkpoint:
        """Store the checkpoint with the written parts; return it as stored. Raises as `CheckpointWriter.add`."""
        key, path = (checkpoint.sid, checkpoint.seq), self._path_of(checkpoint)
        former = self._known.pop(key, None)
        try:
            made = await writer.end(checkpoint, path)
        except BaseException:
            if former is not None:
                self._known[key] = former
            raise
        self._users.update(_names(made))
        if former is not None:
            self._let_go(_names(former))
        self._known[key] = made
        self._make_room()
        if self.total_bytes > self.most_bytes or (made.sid, made.seq) not in self._known:
            self.drop(made)
            raise NotForkable("those of sleeping sessions, boxes and snapshots leave no room (SANDBOX_CHECKPOINTS_MB)")
        return made

    async def read(self, checkpoint: Checkpoint, part: Part) -> AsyncIterator[bytes]:
        """Yield the part's blocks. Raises CheckpointDamaged."""
        for name in checkpoint.blocks.get(part, ()):
            if (block := self._kept.get(name)) is None:
                try:
                    block = await asyncio.to_thread(self._load, name)
                except BlockDamaged as error:
                    raise self.damaged(checkpoint, error) from error
                self._remember(name, block)
            yield block

    def blocks(self, checkpoint: Checkpoint, part: Part) -> Iterator[bytes]:
        """As `read`, for use on a thread. Blocks. Raises BlockDamaged, which the caller passes to `damaged`."""
        for name in checkpoint.blocks.get(part, ()):
            yield self._kept.get(name) or self._load(name)

    def damaged(self, checkpoint: Checkpoint, error: BlockDamaged) -> CheckpointDamaged:
        """Remove a damaged block and the checkpoints that use it, except other permanent ones; return the error to
        raise.

        The next checkpoint with this content must write the block again instead of relying on the damaged one.
        """
        log.error("checkpoint damaged", sid=checkpoint.sid, seq=checkpoint.seq, error=str(error))
        if error.stays:
            self._spoil(error.name)
            for other in [one for one in self._known.values() if not one.stands and error.name in _names(one)]:
                self.drop(other)
        self.drop(checkpoint)
        return CheckpointDamaged(str(error))

    def drop(self, checkpoint: Checkpoint) -> None:
        """Remove a checkpoint. Idempotent; a newer checkpoint that has replaced it stays."""
        key = (checkpoint.sid, checkpoint.seq)
        if (known := self._known.get(key)) is not None and known.blocks == checkpoint.blocks:
            del self._known[key]
            self._path_of(checkpoint).unlink(missing_ok=True)
            self._let_go(_names(checkpoint))

    async def put(
        self, blocks: Sequence[tuple[str | None, bytes]], then: Callable[[int], None] | None = None
    ) -> tuple[list[str], int]:
        """Store blocks for a writer and hold them; return all names, and the bytes on disk of the new ones.

        The name of a block is None if it is not known yet. `then(written)` is called on the thread that has written
        them.
        """
        unnamed = iter(await named([block for name, block in blocks if name is None]))
        names = [name or next(unnamed) for name, _ in blocks]
        self._users.update(names)
        new = {name: block for name, (_, block) in zip(names, blocks, strict=True) if name not in self._sizes}
        sizes: dict[str, int] = {}
        try:
            if new or then:
                with _stored():
                    self._room()
                    await asyncio.to_thread(self._pack, new, sizes, then)
        except BaseException:
            self._sizes.update(sizes)
            self._let_go(names)
            raise
        self._sizes.update(sizes)
        for name, block in new.items():
            self._remember(name, block)
        return names, sum(sizes.values())

    @contextmanager
    def held(self, checkpoint: Checkpoint) -> Iterator[list[str]]:
        """The blocks of a checkpoint, held until the end of the context even if the checkpoint is removed."""
        names = _names(checkpoint)
        self._users.update(names)
        try:
            yield names
        finally:
            self._let_go(names)

    def packed(self, name: str) -> bytes:
        """Read a stored block, see `packing`. Blocks. Raises OSError: it is missing."""
        return self._path(name).read_bytes()

    # ---- on the disk

    def _look(self) -> tuple[list[Checkpoint], dict[str, int]]:
        (self._folder / "blocks").mkdir(mode=0o700, parents=True, exist_ok=True)
        sizes, known = {}, []
        for path in (self._folder / "blocks").glob("*/*"):
            if path.suffix:
                path.unlink(missing_ok=True)  # left by a killed server
            else:
                sizes[path.name] = path.stat().st_size
        for path in self._folder.glob("*.json"):
            try:
                known.append((path.stat().st_mtime, Checkpoint.from_json(json.loads(path.read_bytes()))))
            except (OSError, ValueError, KeyError, TypeError) as error:
                log.warning("checkpoint cannot be read; removed", path=path.name, error=str(error))
                path.unlink(missing_ok=True)
        return [checkpoint for _, checkpoint in sorted(known, key=lambda pair: pair[0])], sizes

    def _pack(self, blocks: Mapping[str, bytes], sizes: dict[str, int], then: Callable[[int], None] | None) -> None:
        """Write the blocks; adds the size of each written one to `sizes`."""
        for name, block in blocks.items():
            packed = pack(block)
            write(self._path(name), packed)
            sizes[name] = len(packed)
        if then is not None:
            then(sum(sizes.values()))

    def _load(self, name: str) -> bytes:
        try:
            packed = self.packed(name)
        except OSError as error:
            raise BlockDamaged(name, str(error), stays=isinstance(error, FileNotFoundError)) from error
        try:
            return unpack(name, packed)
        except (OSError, ValueError) as error:
            raise BlockDamaged(name, str(error), stays=True) from error

    def _path(self, name: str) -> Path:
        return self._folder / "blocks" / name[:2] / name

    def _path_of(self, checkpoint: Checkpoint) -> Path:
        return self._folder / f"{checkpoint.sid}-{checkpoint.seq}.json"

    # ---- room

    def _make_room(self) -> None:
        if self.total_bytes <= self.most_bytes:
            return
        for (sid, seq), oldest in list(self._known.items()):
            if sid not in self.pinned and not oldest.stands:
                log.info("checkpoint removed for others", sid=sid, seq=seq)
                self.drop(oldest)
                if self.total_bytes <= self.most_bytes:
                    return

    def _let_go(self, names: list[str]) -> None:
        self._users.subtract(names)
        for name in set(names):
            if self._users[name] <= 0:
                self._forget_block(name)

    def _forget_block(self, name: str) -> None:
        del self._users[name]
        if (block := self._kept.pop(name, None)) is not None:
            self._kept_bytes -= len(block)
        self._spoil(name)

    def _spoil(self, name: str) -> None:
        if self._sizes.pop(name, None) is not None:
            with suppress(OSError):
                self._path(name).unlink(missing_ok=True)

    def _remember(self, name: str, block: bytes) -> None:
        if name not in self._kept:
            self._kept[name] = block
            self._kept_bytes += len(block)
        while self._kept_bytes > _KEPT_BYTES:
            self._kept_bytes -= len(self._kept.popitem(last=False)[1])


def _names(checkpoint: Checkpoint) -> list[str]:
    return [name for names in checkpoint.blocks.values() for name in names]


@contextmanager
def _stored() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        told = f"the checkpoint cannot be stored: {error.strerror}; free space in SANDBOX_DATA_DIR"
        raise (DataDiskFull if error.errno in _FULL else InfrastructureError)(told) from error
