"""Takes a checkpoint of the sandbox of a session or box, and restores it in a fresh container of the same image.

If the server can access the containers' files (`sandbox.tree`), it reads and writes them itself; otherwise programs in
the containers do. The shell saves and loads its own state. The source is hostile: its output has size limits, is stored
unchanged, and is only restored in containers of the same session, or of boxes of the same key, where it can do nothing
that the source cannot.
"""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from importlib import resources

from sandbox_server import telemetry
from sandbox_server.checkpoints import containerside, hostside
from sandbox_server.checkpoints.archive import BadArchive
from sandbox_server.checkpoints.checkpoint import Checkpoint, LeftOut, Part
from sandbox_server.checkpoints.store import Checkpoints
from sandbox_server.checkpoints.unpacker import HostRestoreFailed
from sandbox_server.checkpoints.writer import CheckpointWriter
from sandbox_server.errors import NotForkable, SandboxDiskFull, SandboxExhausted, ServiceError
from sandbox_server.sandbox.base import Sandbox, ShellOutcome
from sandbox_server.sandbox.inspector import ContainerInspector
from sandbox_server.sandbox.tree import HostAccessFailed, Tree

log = telemetry.logger(__name__)

_SAVE = b"".join(
    resources.files(__package__).joinpath(f"{part}.bash").read_bytes()
    for part in ("save_begin", "save_variables", "save_settings", "save")
)
_OWN, _SAVE_FILE, _SHELL_FILE = "/run/sandbox", "save", "shell"
# The traps are listed first, because a sourced file does not see DEBUG and ERR. `&&` keeps a nonzero status from
# triggering `set -e` or an ERR trap.
_SAVE_ACTION = rf"""__sb_status=$?
\builtin trap -p >| {_OWN}/{_SHELL_FILE}.traps 2> /dev/null || \builtin :
[[ -t 2 ]] && \builtin :
\builtin . {_OWN}/{_SAVE_FILE} %s "$__sb_status" "$?" "$@" 2> /dev/null && \builtin :"""
_RESTORE_ACTION = f"\\builtin shopt -u expand_aliases\n\\builtin . {_OWN}/{_SHELL_FILE} 2> /dev/null && \\builtin :"
_WHOLE = "__sb_whole"
"""The script that restores a shell prints this word at its end. If it is missing, bash could not read a part of it."""
_BOUND = "SANDBOX_CHECKPOINT_TIMEOUT_S"
_SHELL_BYTES = 8 << 20  # of the shell's state; /run/sandbox, where it is kept in the container, has 16 MB
_SMALL_BYTES = 256 << 10  # of it, if the host writes it: the memory then counts as the host's
_LEFT_OUT = 20  # maximum number of programs and files named in a notice


async def capture(
    sandbox: Sandbox, inspector: ContainerInspector, writer: CheckpointWriter, *, timeout_s: float
) -> tuple[str, ...]:
    """Write the files and the shell's state of a sandbox; return descriptions of what was left out.

    The caller holds the session's lock. Programs that run during the capture may change files while they are read.

    Raises:
        NotForkable: the contents of the container prevent it. DataDiskFull. SandboxLost, EngineUnavailable.
    """
    if sandbox.shell.running:
        raise NotForkable("a command still runs in its shell; wait for its end or interrupt it, then copy the session")
    try:
        async with asyncio.timeout(timeout_s), _tree(sandbox, inspector) as tree, asyncio.TaskGroup() as tasks:
            files = tasks.create_task(_take_files(sandbox, inspector, tree, writer, timeout_s))
            shell = tasks.create_task(_take_shell(sandbox, tree, timeout_s))
    except TimeoutError:
        raise NotForkable(f"its state could not be read within {timeout_s:g} s ({_BOUND})") from None
    except ExceptionGroup as group:
        raise _first(group.exceptions) from group
    await writer.add(Part.SHELL, shell.result())
    first_line = shell.result()[:200].partition(b"\n")[0]
    descriptors = re.findall(rb"[0-9]{1,4}", first_line)
    return (*_told(files.result()), *(f"file descriptor {int(number)} of the shell" for number in descriptors))[
        :_LEFT_OUT
    ]


async def capture_files(
    sandbox: Sandbox, inspector: ContainerInspector, writer: CheckpointWriter, *, timeout_s: float
) -> tuple[str, ...]:
    """Like `capture`, for a sandbox without a shell. Programs started by `Sandbox.start` are not reported."""
    try:
        async with asyncio.timeout(timeout_s), _tree(sandbox, inspector) as tree:
            return _told(await _take_files(sandbox, inspector, tree, writer, timeout_s))
    except TimeoutError:
        raise NotForkable(f"its files could not be read within {timeout_s:g} s ({_BOUND})") from None
    except (SandboxExhausted, SandboxDiskFull) as error:
        raise _first([error]) from error


async def restore_files(
    sandbox: Sandbox,
    checkpoint: Checkpoint,
    store: Checkpoints,
    *,
    timeout_s: float,
    inspector: ContainerInspector | None = None,
) -> None:
    """Like `restore`, for a sandbox without a shell."""
    try:
        async with asyncio.timeout(timeout_s), _tree(sandbox, inspector) as tree:
            if tree is None or not await _put_from_host(tree, checkpoint, store, {}):
                await containerside.put_files(sandbox, checkpoint, store, timeout_s)
    except TimeoutError:
        raise NotForkable(f"its files could not be restored within {timeout_s:g} s ({_BOUND})") from None
    except SandboxExhausted as error:
        raise _first([error]) from error


async def restore(
    sandbox: Sandbox,
    checkpoint: Checkpoint,
    store: Checkpoints,
    *,
    timeout_s: float,
    inspector: ContainerInspector | None = None,
) -> tuple[str, ...]:
    """Restore the session's state in a fresh container of the checkpoint's image; return what is missing.

    `inspector`: if given, the files are written from the engine's host where that is possible.

    Raises:
        CheckpointDamaged: the checkpoint is incomplete. NotForkable: it cannot be restored. SandboxDiskFull: the
        engine's disk is full now. SandboxLost, EngineUnavailable.
    """
    script = b"".join([block async for block in store.read(checkpoint, Part.SHELL)])
    try:
        async with asyncio.timeout(timeout_s):
            async with _tree(sandbox, inspector) as tree:
                own = {_SHELL_FILE.encode(): script}
                if tree is None or not await _put_from_host(tree, checkpoint, store, own):
                    async with asyncio.TaskGroup() as tasks:
                        tasks.create_task(containerside.put_files(sandbox, checkpoint, store, timeout_s))
                        tasks.create_task(sandbox.write_file(f"{_OWN}/{_SHELL_FILE}", script))
            said = await _run(sandbox, _RESTORE_ACTION, timeout_s, "its shell's state could not be restored")
    except TimeoutError:
        raise NotForkable(f"its state could not be restored within {timeout_s:g} s ({_BOUND})") from None
    except ExceptionGroup as group:
        full = (error for error in group.exceptions if isinstance(error, SandboxDiskFull))
        raise next(full, _first(group.exceptions)) from group
    # (scripts of older versions do not have the word)
    return ("a part of the shell's state",) if _WHOLE.encode() in script and _WHOLE not in said else ()


@asynccontextmanager
async def _tree(sandbox: Sandbox, inspector: ContainerInspector | None) -> AsyncIterator[Tree | None]:
    """The container's files, if this server can access them; otherwise None."""
    tree = None
    if inspector is not None:
        try:
            tree = await inspector.tree(sandbox.container_id)
        except HostAccessFailed as error:
            log.debug("a container's files are not seen from here", why=str(error))
    try:
        yield tree
    finally:
        if tree is not None:
            tree.close()


async def _take_files(
    sandbox: Sandbox, inspector: ContainerInspector, tree: Tree | None, writer: CheckpointWriter, timeout_s: float
) -> LeftOut:
    """Write the files; return what they lack."""
    if tree is not None:
        try:
            return await hostside.take_files(tree, writer)
        except HostAccessFailed as error:
            log.debug("a checkpoint is taken by the container", why=str(error))
        except (OSError, OverflowError) as error:  # OverflowError: a sparse file that got more ranges meanwhile
            raise NotForkable(f"its files could not be read: {error}") from error
    return await containerside.take_files(sandbox, inspector, writer, timeout_s)


async def _put_from_host(tree: Tree, checkpoint: Checkpoint, store: Checkpoints, own: Mapping[bytes, bytes]) -> bool:
    """Restore from the host, with the service's own files `own`. Returns False if the container has to do it."""
    if sum(map(len, own.values())) > _SMALL_BYTES:
        return False
    try:
        await hostside.put_files(tree, checkpoint, store, own)
    except (HostRestoreFailed, BadArchive) as error:
        log.debug("a checkpoint is restored by the container", why=str(error))
        return False
    return True


async def _take_shell(sandbox: Sandbox, tree: Tree | None, timeout_s: float) -> bytes:
    nonce = secrets.token_hex(8)
    end = f"#{nonce}\n".encode()
    try:
        await _store(sandbox, tree, _SAVE_FILE, _SAVE)
        await _run(sandbox, _SAVE_ACTION % nonce, timeout_s, "its shell's state could not be read")
        state = await _load(sandbox, tree, _SHELL_FILE)
    except (OSError, OverflowError) as error:
        raise NotForkable(f"its shell's state could not be read: {error}") from error
    if not state.endswith(end):
        raise NotForkable("its shell did not write its whole state; /run/sandbox may be full, or a builtin replaced")
    return state.removesuffix(end)


async def _load(sandbox: Sandbox, tree: Tree | None, name: str) -> bytes:
    """The content of a small file of the service's own."""
    if tree is not None:
        with suppress(OSError):
            return await hostside.on_thread(tree.own.load, name.encode(), _SHELL_BYTES)
    return await sandbox.read_file(f"{_OWN}/{name}", max_bytes=_SHELL_BYTES)


async def _store(sandbox: Sandbox, tree: Tree | None, name: str, data: bytes) -> None:
    """Write a small file of the service's own."""
    if tree is not None:
        with suppress(OSError):
            tree.own.store(name.encode(), data)  # a write to memory: starting a thread takes longer
            return
    await sandbox.write_file(f"{_OWN}/{name}", data)


async def _run(sandbox: Sandbox, action: str, timeout_s: float, failed: str) -> str:
    """Run an action of the service in the shell and return its output."""
    result = await sandbox.shell.run(action, timeout_s=timeout_s)
    if result.outcome is not ShellOutcome.FINISHED or result.shell_replaced:
        raise NotForkable(f"{failed}: {result.outcome.value}")
    return result.output.text()


def _told(left_out: LeftOut) -> tuple[str, ...]:
    volumes = (f"the files of the volume {_plain(path)}" for path in sorted(left_out.volumes))
    return (*volumes, *(f"running program {_plain(name)}" for name in sorted(left_out.programs)))[:_LEFT_OUT]


def _plain(name: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in name[:40])


def _first(errors: Sequence[Exception]) -> Exception:
    """Choose the error to report: the first about the container's limits or a timeout, else the first ServiceError."""
    for error in errors:
        if isinstance(error, SandboxExhausted | SandboxDiskFull):
            return NotForkable(f"there is no room in the container for what reads it: {error.detail}")
        if isinstance(error, TimeoutError):
            return NotForkable(f"its container does not answer: {error}")
    return next((error for error in errors if isinstance(error, ServiceError)), errors[0])
