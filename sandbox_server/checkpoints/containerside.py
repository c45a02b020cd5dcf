"""Captures and restores the files of a checkpoint by programs in the container, which every task image has.

Works with every engine and runtime and with any number of files. Changed files are found by their ctime, or listed by
the host of the engine where that is possible, which avoids a walk through the whole tree.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from importlib import resources

from sandbox_server.checkpoints.checkpoint import Checkpoint, LeftOut, Part
from sandbox_server.checkpoints.store import Checkpoints
from sandbox_server.checkpoints.unpacker import NO_ROOM
from sandbox_server.checkpoints.writer import CheckpointWriter
from sandbox_server.errors import NotForkable, SandboxDiskFull, ServiceError
from sandbox_server.sandbox.base import Process, Sandbox, Stream
from sandbox_server.sandbox.inspector import ContainerInspector

_CAPTURE = resources.files(__package__).joinpath("capture.bash").read_text()
_RESTORE = resources.files(__package__).joinpath("restore.bash").read_text()
_LISTS_BYTES = 16 << 20  # bytes of all three lists of names together
_GIVEN_BYTES = 4 << 20  # bytes of names given to a container, which keeps them in memory
_SAID_BYTES = 2000
_FEED = 1 << 18  # bytes written at once
_FULL = re.compile(rb"^tar: .*: No space left on device$", re.MULTILINE)
"""tar's message about a full disk. Only tar's counts: the lists of names are in a small file system of their own."""


async def take_files(
    sandbox: Sandbox, inspector: ContainerInspector, writer: CheckpointWriter, timeout_s: float
) -> LeftOut:
    """Write the files and their lists; return what they lack. Raises as `capture.capture`."""
    changed = await inspector.changed_paths(sandbox.container_id)
    given = [b"".join(path + b"\0" for path in paths) for paths in (changed.folders, changed.others)] if changed else []
    if sum(map(len, given)) > _GIVEN_BYTES:
        given = []
    # the host has listed the changed files, or capture.bash finds them by their ctime
    words = (
        ["given", str(len(given[0]))]
        if given
        else ["since", (await inspector.inspect(sandbox.container_id)).created_at]
    )
    process = await sandbox.start(["bash", "-c", _CAPTURE, "capture", *words], stdin=bool(given), timeout_s=timeout_s)
    lists = bytearray()
    try:
        for names in given:
            for at in range(0, len(names), _FEED):
                await process.write(names[at : at + _FEED])
        if given:
            await process.close_stdin()
        async for stream, data in process.output():
            if stream is Stream.STDOUT:
                await writer.add(Part.FILES, data)
            else:
                lists += data
                if len(lists) > _LISTS_BYTES:
                    raise NotForkable(f"the names of its changed files take more than {_LISTS_BYTES >> 20} MB")
        end = await process.wait()
    except BaseException:
        await asyncio.shield(_kill(process))
        raise
    if end.exit_code != 0:
        raise NotForkable(f"its files could not be read: {_said(bytes(lists), end.error)}")
    folders, contents, *left_out = _parts(bytes(lists))
    await writer.add(Part.FOLDERS, folders)
    await writer.add(Part.CONTENTS, contents)
    return LeftOut(*([os.fsdecode(name) for name in names.split(b"\0") if name] for names in left_out))


def _parts(lists: bytes) -> list[bytes]:
    """Split the output of capture.bash into its four lists; each name ends in NUL."""
    parts = []
    for _ in range(4):
        if lists.startswith(b"\0"):
            parts.append(b"")
            lists = lists[1:]
            continue
        end = lists.find(b"\0\0")
        if end < 0:
            raise NotForkable("its files could not be read: the list of them broke off")
        parts.append(lists[: end + 1])
        lists = lists[end + 2 :]
    return parts


async def put_files(sandbox: Sandbox, checkpoint: Checkpoint, store: Checkpoints, timeout_s: float) -> None:
    """Restore the files in a fresh container. Raises as `capture.restore`."""
    sizes = [checkpoint.sizes.get(part, 0) for part in (Part.FOLDERS, Part.CONTENTS)]
    process = await sandbox.start(["bash", "-c", _RESTORE, "restore"], stdin=True, timeout_s=timeout_s)
    said = bytearray()

    async def listen() -> None:
        async for _, data in process.output():
            said.extend(data[: _SAID_BYTES - len(said)])

    listening = asyncio.create_task(listen())
    try:
        await process.write(b"%d %d\n" % tuple(sizes))
        for part in (Part.FOLDERS, Part.CONTENTS, Part.FILES):
            async for block in store.read(checkpoint, part):
                async for piece in _pieces(block):
                    await process.write(piece)
        await process.close_stdin()
        await listening
        end = await process.wait()
    except BaseException:
        listening.cancel()
        await asyncio.shield(_kill(process))
        raise
    if end.exit_code != 0 and _FULL.search(said):
        raise SandboxDiskFull(NO_ROOM)
    if end.exit_code != 0:
        raise NotForkable(f"its files could not be restored: {_said(bytes(said), end.error)}")


async def _pieces(block: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(block), _FEED):
        yield block[at : at + _FEED]


async def _kill(process: Process) -> None:
    with suppress(ServiceError):
        await process.kill_tree()
    process.detach()


def _said(output: bytes, error: str) -> str:
    return error or output[-_SAID_BYTES:].decode("utf-8", "replace").strip() or "it broke off"
