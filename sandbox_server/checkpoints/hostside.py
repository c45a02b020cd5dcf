"""Captures and restores the files of a checkpoint from the host of the engine. Starts no process in the container."""

import asyncio
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import TypeVar, TypeVarTuple

from sandbox_server.checkpoints.archive import Member, members
from sandbox_server.checkpoints.checkpoint import Checkpoint, LeftOut, Part
from sandbox_server.checkpoints.packer import Packer
from sandbox_server.checkpoints.store import BlockDamaged, Checkpoints
from sandbox_server.checkpoints.unpacker import FolderContents, HostRestoreFailed, unpack
from sandbox_server.checkpoints.writer import CheckpointWriter
from sandbox_server.sandbox.tree import Tree

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_THREADS = ThreadPoolExecutor(4, thread_name_prefix="checkpoints")
_SHARED_BYTES = 8 << 20  # a checkpoint of at most this size is read once for all of its copies
_LISTS_BYTES = 4 << 20  # of names; a larger list means too many files for this method


async def on_thread(function: Callable[[*Ts], T], *arguments: *Ts, stopped: Callable[[], None] = lambda: None) -> T:
    """Run a function on a thread. If the caller is cancelled, it still waits for the function to end.

    The caller closes what the function uses, so it must not return earlier. `stopped` is called on cancellation, to end
    a function that takes longer than a moment.
    """
    future = asyncio.get_running_loop().run_in_executor(_THREADS, function, *arguments)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        stopped()
        await asyncio.wait([future])
        raise


async def take_files(tree: Tree, writer: CheckpointWriter) -> LeftOut:
    """Write the files and their lists; return what they lack.

    Raises:
        HostAccessFailed: too much for this method; nothing was written. OSError, OverflowError: a file cannot be read.
        The errors of `CheckpointWriter.add`.
    """
    packer, pieces, size, cut = await on_thread(_begun, tree, writer)
    with closing(pieces):
        await writer.add_cut(Part.FILES, size, cut)
        while not packer.done:
            await writer.add_cut(Part.FILES, *await on_thread(_cut, pieces, writer))
    await writer.add(Part.FOLDERS, packer.folders)
    await writer.add(Part.CONTENTS, packer.contents)
    return packer.left_out


Cut = Sequence[tuple[str | None, bytes]]


def _begun(tree: Tree, writer: CheckpointWriter) -> tuple[Packer, Generator[bytearray, None, None], int, Cut]:
    packer = Packer(tree)
    pieces = packer.pieces()
    return packer, pieces, *_cut(pieces, writer)


def _cut(pieces: Iterator[bytearray], writer: CheckpointWriter) -> tuple[int, Cut]:
    """The next bytes of the archive: their number, and the blocks that they complete."""
    data = next(pieces)
    return len(data), writer.cut(Part.FILES, data)


async def put_files(tree: Tree, checkpoint: Checkpoint, store: Checkpoints, own: Mapping[bytes, bytes]) -> None:
    """Restore the files in a fresh container, and write the service's own files (`own`).

    If it raises, some of the files may have been written.

    Raises:
        BadArchive, HostRestoreFailed: use the other method. CheckpointDamaged.
    """
    if sum(checkpoint.sizes.get(part, 0) for part in (Part.FOLDERS, Part.CONTENTS)) > _LISTS_BYTES:
        raise HostRestoreFailed("it has too many files")
    try:
        if sum(checkpoint.sizes.values()) > _SHARED_BYTES:
            stop = threading.Event()
            await on_thread(_put_all, tree, checkpoint, store, own, stop, stopped=stop.set)
        else:
            listed, found = await store.unpacked.get(_names(checkpoint), lambda: on_thread(_loaded, checkpoint, store))
            await on_thread(_put, tree, listed, found, own)
    except BlockDamaged as error:
        raise store.damaged(checkpoint, error) from error


def _names(checkpoint: Checkpoint) -> tuple[Sequence[str], ...]:
    return tuple(tuple(checkpoint.blocks.get(part, ())) for part in (Part.FOLDERS, Part.CONTENTS, Part.FILES))


def _put_all(
    tree: Tree, checkpoint: Checkpoint, store: Checkpoints, own: Mapping[bytes, bytes], stop: threading.Event
) -> None:
    listed, found = _opened(checkpoint, store, stop)
    _put(tree, listed, found, own)


def _put(tree: Tree, listed: FolderContents, found: Iterable[Member], own: Mapping[bytes, bytes]) -> None:
    unpack(tree, listed, found)
    try:
        for name, data in own.items():
            tree.own.store(name, data)
    except OSError as error:
        raise HostRestoreFailed(str(error)) from error


def _loaded(checkpoint: Checkpoint, store: Checkpoints) -> tuple[FolderContents, Sequence[Member]]:
    listed, found = _opened(checkpoint, store, threading.Event())
    return listed, [replace(member, content=list(member.content)) for member in found]


def _opened(
    checkpoint: Checkpoint, store: Checkpoints, stop: threading.Event
) -> tuple[FolderContents, Iterator[Member]]:
    lists = [b"".join(store.blocks(checkpoint, part)) for part in (Part.FOLDERS, Part.CONTENTS)]
    return FolderContents.of(*lists), members(_reader(store.blocks(checkpoint, Part.FILES), stop))


def _reader(blocks: Iterable[bytes], stop: threading.Event) -> Callable[[int], bytes]:
    left, coming = memoryview(b""), iter(blocks)

    def read(size: int) -> bytes:
        nonlocal left
        if stop.is_set():
            raise HostRestoreFailed("it takes too long")
        data = bytes(left[:size])
        left = left[size:]
        while len(data) < size and (block := next(coming, None)) is not None:
            missing = size - len(data)
            data += block[:missing]
            left = memoryview(block)[missing:]
        return data

    return read
