"""Takes a checkpoint of a sandbox, a session's or a box's, and gives its state to a fresh container of the same image.

It is done inside the containers, by programs that every task image has. What was changed is found by its time, or
listed from outside where the engine's host shows it, which saves the walk through the whole tree. The source is
hostile: what comes out of it is bounded, stored as it is, and only ever goes into containers of the same session, or of
boxes of the same key, which could do nothing with it that the source cannot do itself.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from importlib import resources

from sandbox_server.checkpoints.checkpoint import Checkpoint, Part
from sandbox_server.checkpoints.store import Checkpoints, Writing
from sandbox_server.errors import NotForkable, SandboxDiskFull, SandboxExhausted, ServiceError
from sandbox_server.sandbox.base import Process, Sandbox, ShellOutcome, Stream
from sandbox_server.sandbox.outside import Outside

_SAVE = resources.files(__package__).joinpath("save.bash").read_bytes()
_CAPTURE = resources.files(__package__).joinpath("capture.bash").read_text()
_RESTORE = resources.files(__package__).joinpath("restore.bash").read_text()
_SAVE_FILE, _SHELL_FILE = "/run/sandbox/save", "/run/sandbox/shell"
# `&&`: passing on a nonzero status must not trigger `set -e` or an ERR trap
_SAVE_ACTION = f'\\builtin . {_SAVE_FILE} "$?" "$@" 2> /dev/null && \\builtin :'
_RESTORE_ACTION = f"\\builtin shopt -u expand_aliases\n\\builtin . {_SHELL_FILE} > /dev/null 2>&1 && \\builtin :"
_BOUND = "SANDBOX_CHECKPOINT_TIMEOUT_S"
_SHELL_BYTES = 8 << 20  # of the shell's state; what a container keeps in memory for us is 16 MB
_LISTS_BYTES = 16 << 20  # of names, of all three lists
_GIVEN_BYTES = 4 << 20  # of names given to a container, which keeps them in memory
_SAID_BYTES = 2000
_LEFT_OUT = 20  # programs and files named in a notice
_FEED = 1 << 18  # bytes written at once


async def capture(sandbox: Sandbox, outside: Outside, writing: Writing, *, timeout_s: float) -> tuple[str, ...]:
    """Write a sandbox's files and shell; the caller holds the session. Returns what cannot be carried.

    Programs that run meanwhile may change files while they are read.

    Raises:
        NotForkable: what is in the container prevents it. DataDiskFull. SandboxLost, EngineUnavailable.
    """
    if sandbox.shell.running:
        raise NotForkable("a command still runs in its shell; wait for its end or interrupt it, then copy the session")
    try:
        async with asyncio.timeout(timeout_s):
            async with asyncio.TaskGroup() as tasks:
                files = tasks.create_task(_files(sandbox, outside, writing, timeout_s))
                shell = tasks.create_task(_shell(sandbox, timeout_s))
    except TimeoutError:
        raise NotForkable(f"its state could not be read within {timeout_s:g} s ({_BOUND})") from None
    except ExceptionGroup as group:
        raise _first(group) from group
    await writing.add(Part.SHELL, shell.result())
    first_line = shell.result()[:200].partition(b"\n")[0]
    descriptors = re.findall(rb"[0-9]{1,4}", first_line)
    return (*files.result(), *(f"file descriptor {int(number)} of the shell" for number in descriptors))[:_LEFT_OUT]


async def capture_files(sandbox: Sandbox, outside: Outside, writing: Writing, *, timeout_s: float) -> tuple[str, ...]:
    """As `capture`, of a sandbox without a shell; what runs in it by `Sandbox.start` is not told."""
    try:
        async with asyncio.timeout(timeout_s):
            return await _files(sandbox, outside, writing, timeout_s)
    except TimeoutError:
        raise NotForkable(f"its files could not be read within {timeout_s:g} s ({_BOUND})") from None
    except (SandboxExhausted, SandboxDiskFull) as error:
        raise _first(ExceptionGroup("", [error])) from error


async def restore_files(sandbox: Sandbox, checkpoint: Checkpoint, store: Checkpoints, *, timeout_s: float) -> None:
    """As `restore`, of a sandbox without a shell."""
    try:
        async with asyncio.timeout(timeout_s):
            await _put_files(sandbox, checkpoint, store, timeout_s)
    except TimeoutError:
        raise NotForkable(f"its files could not be restored within {timeout_s:g} s ({_BOUND})") from None
    except (SandboxExhausted, SandboxDiskFull) as error:
        raise _first(ExceptionGroup("", [error])) from error


async def restore(sandbox: Sandbox, checkpoint: Checkpoint, store: Checkpoints, *, timeout_s: float) -> None:
    """Give a fresh container of the checkpoint's image the state of the session.

    Raises:
        Damaged: the checkpoint is not whole. NotForkable: its state cannot be restored. SandboxLost, EngineUnavailable.
    """
    script = b"".join([block async for block in store.read(checkpoint, Part.SHELL)])
    try:
        async with asyncio.timeout(timeout_s):
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_put_files(sandbox, checkpoint, store, timeout_s))
                tasks.create_task(sandbox.write_file(_SHELL_FILE, script))
            await _run(sandbox, _RESTORE_ACTION, timeout_s, "its shell's state could not be restored")
    except TimeoutError:
        raise NotForkable(f"its state could not be restored within {timeout_s:g} s ({_BOUND})") from None
    except ExceptionGroup as group:
        raise _first(group) from group


async def _shell(sandbox: Sandbox, timeout_s: float) -> bytes:
    try:
        await sandbox.write_file(_SAVE_FILE, _SAVE)
        await _run(sandbox, _SAVE_ACTION, timeout_s, "its shell's state could not be read")
        return await sandbox.read_file(_SHELL_FILE, max_bytes=_SHELL_BYTES)
    except (OSError, OverflowError) as error:
        raise NotForkable(f"its shell's state could not be read: {error}") from error


async def _run(sandbox: Sandbox, action: str, timeout_s: float, failed: str) -> None:
    result = await sandbox.shell.run(action, timeout_s=timeout_s)
    if result.outcome is not ShellOutcome.FINISHED or result.shell_replaced:
        raise NotForkable(f"{failed}: {result.outcome.value}")


async def _files(sandbox: Sandbox, outside: Outside, writing: Writing, timeout_s: float) -> tuple[str, ...]:
    """Write the files and their lists; returns the names of the programs that run."""
    changed = await outside.changed(sandbox.container_id)
    given = [b"".join(path + b"\0" for path in paths) for paths in (changed.folders, changed.others)] if changed else []
    if sum(map(len, given)) > _GIVEN_BYTES:
        given = []
    # what was changed is given, or found by its time
    words = ["given", str(len(given[0]))] if given else ["since", (await outside.see(sandbox.container_id)).created_at]
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
                await writing.add(Part.FILES, data)
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
    folders, contents, running = _parts(bytes(lists))
    await writing.add(Part.FOLDERS, folders)
    await writing.add(Part.CONTENTS, contents)
    programs = [name.decode("utf-8", "replace") for name in running.split(b"\0") if name]
    return tuple(f"running program {_plain(name)}" for name in sorted(programs))


def _plain(name: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in name[:40])


def _parts(lists: bytes) -> tuple[bytes, bytes, bytes]:
    """The three lists of capture.bash, each of names that end in NUL."""
    parts = []
    for _ in range(3):
        if lists.startswith(b"\0"):
            parts.append(b"")
            lists = lists[1:]
            continue
        end = lists.find(b"\0\0")
        if end < 0:
            raise NotForkable("its files could not be read: the list of them broke off")
        parts.append(lists[: end + 1])
        lists = lists[end + 2 :]
    return parts[0], parts[1], parts[2]


async def _put_files(sandbox: Sandbox, checkpoint: Checkpoint, store: Checkpoints, timeout_s: float) -> None:
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


def _first(group: ExceptionGroup[Exception]) -> Exception:
    """The error to report of several that came together: the service's own, with what the container is to blame for."""
    errors = list(group.exceptions)
    for error in errors:
        if isinstance(error, SandboxExhausted | SandboxDiskFull):
            return NotForkable(f"there is no room in the container for what reads it: {error.detail}")
        if isinstance(error, TimeoutError):
            return NotForkable(f"its container does not answer: {error}")
    return next((error for error in errors if isinstance(error, ServiceError)), errors[0])
