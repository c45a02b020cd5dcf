"""Implements `sandbox.filesystem.FileSystem` with bash, coreutils and findutils; extended attributes with tar."""

import asyncio
import base64
import io
import os
import re
import tarfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TypeVar

from sandbox_server.errors import CommandBroken, SandboxLost
from sandbox_server.sandbox.bash.filesystem_channels import ChannelEnded, Exchange, FileSystemChannels
from sandbox_server.sandbox.bash.filesystem_errors import error_of
from sandbox_server.sandbox.filesystem import FileInfo, FileKind

T = TypeVar("T")

_TIMEOUT_S = 60.0  # for an operation that does not stream, and between two pieces of one that does
_PIECE = 1 << 20  # bytes of an upload per `head` that the channel runs
_MOST = 8 << 20  # bytes of an answer: some 70,000 entries of a folder; parsing it blocks the event loop
_AT_ONCE = 1 << 14  # bytes of an answer that take about a millisecond to parse; longer ones are parsed on a thread
_FIELDS = 11
_XATTR = "SCHILY.xattr."
_SIZE = re.compile("[0-9]{1,19}")
_MODE = re.compile("[0-7]{1,5}")
_SECONDS = re.compile("-?[0-9]{1,19}")
_FIRST_S, _LAST_S = -62_135_596_800, 253_402_300_799
"""Seconds of the years 1 and 9999, the range of a date; a file can claim a later time."""
_LONGEST_NAME = 256
_LONGEST_PATH = 1 << 16
_KINDS = {"f": FileKind.FILE, "d": FileKind.DIR, "N": FileKind.SYMLINK, "L": FileKind.SYMLINK}
"""find's letters -> kind; N and L are a dangling link and a link loop."""


class BashFileSystem:
    """See `sandbox.filesystem.FileSystem`."""

    def __init__(self, channels: FileSystemChannels) -> None:
        self._file_channels = channels

    async def stat(self, path: str, *, user: str = "root", namespace: str = "") -> FileInfo:
        """See `FileSystem.stat`."""
        return await _read(_shown, await self._ask("stat", path, user, _text(path), namespace), namespace)

    async def listdir(
        self, path: str, *, user: str = "root", depth: int = 1, namespace: str = ""
    ) -> Sequence[FileInfo]:
        """See `FileSystem.listdir`."""
        answer = await self._ask("list", path, user, _text(path), str(depth), namespace)
        return await _read(_listed, answer, namespace)

    async def mkdir(self, path: str, *, user: str = "root") -> FileInfo:
        """See `FileSystem.mkdir`."""
        return await _read(_shown, await self._ask("mkfolder", path, user, _text(path)), "")

    async def remove(self, path: str, *, user: str = "root") -> None:
        """See `FileSystem.remove`."""
        await self._ask("remove", path, user, _text(path))

    async def move(self, source: str, destination: str, *, user: str = "root", namespace: str = "") -> FileInfo:
        """See `FileSystem.move`."""
        answer = await self._ask("move", source, user, _text(source), _text(destination), namespace)
        return await _read(_shown, answer, namespace)

    async def put(
        self,
        path: str,
        chunks: AsyncIterator[bytes],
        *,
        user: str = "root",
        attributes: Mapping[str, str] | None = None,
        namespace: str = "",
    ) -> FileInfo:
        """See `FileSystem.put`."""
        archive = _archive(attributes, namespace) if attributes else b""
        words = ("put", user, _text(path), namespace, str(len(archive)))
        for attempt in range(2):
            try:
                async with self._file_channels.exchange(fresh=bool(attempt)) as exchange:
                    async with asyncio.timeout(_TIMEOUT_S):
                        await exchange.tell(*words)
                        await exchange.answer(_MOST)
                    if exchange.word == "go":
                        return await _fill(exchange, path, chunks, archive, namespace)
                    word = exchange.word
                raise error_of(word, path, user)
            except ChannelEnded:
                continue
        return await self._file_channels.refused()

    async def get(self, path: str, *, user: str = "root") -> AsyncGenerator[bytes, None]:
        """See `FileSystem.get`."""
        for attempt in range(2):
            began = False
            try:
                async with self._file_channels.exchange(fresh=bool(attempt)) as exchange:
                    await exchange.tell("get", user, _text(path))
                    async with aclosing(_content(exchange)) as content:
                        async for piece in content:
                            began = True
                            yield piece
                    word = exchange.word
                if word != "ok":
                    raise error_of(word, path, user)
                return
            except ChannelEnded:
                if began:
                    raise SandboxLost(f"reading {path} was cut off; the sandbox or its processes were killed") from None
        await self._file_channels.refused()

    async def _ask(self, function: str, path: str, *words: str) -> bytes:
        """Call a function of filesystem.bash and return its output. `words` begin with the user."""
        for attempt in range(2):
            try:
                async with self._file_channels.exchange(fresh=bool(attempt)) as exchange, asyncio.timeout(_TIMEOUT_S):
                    await exchange.tell(function, *words)
                    answer = await exchange.answer(_MOST)
                    word = exchange.word
            except ChannelEnded:
                continue
            except TimeoutError:
                raise TimeoutError(f"no answer about {path} within {_TIMEOUT_S:g} s; try again") from None
            if word == "ok":
                return answer
            raise error_of(word, path, words[0])
        return await self._file_channels.refused()


async def _fill(
    exchange: Exchange, path: str, chunks: AsyncIterator[bytes], archive: bytes, namespace: str
) -> FileInfo:
    """Send the data of a `put` that has answered "go"."""
    try:
        async for piece in _pieces(chunks):
            async with asyncio.timeout(_TIMEOUT_S):
                await exchange.send(b"%d\n" % len(piece))
                await exchange.send(piece)
    except (BrokenPipeError, ConnectionResetError):
        pass  # the final answer says why
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            await exchange.send(b"0\n" + archive)
            answer = await exchange.answer(_MOST)
    except ChannelEnded:
        raise SandboxLost(f"writing {path} was cut off; the sandbox or its processes were killed") from None
    if exchange.word != "ok":
        raise error_of(exchange.word, path, "")
    return await _read(_shown, answer, namespace)


async def _pieces(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Regroup `chunks` into pieces of _PIECE bytes: each costs a fork in the container, and HTTP chunks are small."""
    kept = bytearray()
    async for chunk in chunks:
        kept += chunk
        while len(kept) >= _PIECE:
            yield bytes(kept[:_PIECE])
            del kept[:_PIECE]
    if kept:
        yield bytes(kept)


async def _content(exchange: Exchange) -> AsyncGenerator[bytes, None]:
    """Yield the file's bytes of a `get`. The file's path, ending in NUL, comes before them."""
    head = b""
    async with aclosing(_bounded(exchange.data())) as data:
        async for piece in data:
            head += piece
            if b"\0" in head:
                break
            if len(head) > _LONGEST_PATH:
                raise CommandBroken("The beginning of an answer about a file")
        if rest := head.partition(b"\0")[2]:
            yield rest
        async for piece in data:
            yield piece


async def _bounded(data: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield from `data`, with a time limit for each piece."""
    async with aclosing(data):
        while True:
            try:
                async with asyncio.timeout(_TIMEOUT_S):
                    piece = await anext(data)
            except StopAsyncIteration:
                return
            yield piece


def _text(path: str) -> str:
    if "\0" in path:
        raise ValueError("a path must not contain NUL")
    return path


async def _read(read: Callable[[bytes, str], T], answer: bytes, namespace: str) -> T:
    """Parse an answer, distrusting it: a policy can replace the image's `find` and `tar`.

    Raises:
        CommandBroken: it is not in their format.

    """
    try:
        if len(answer) <= _AT_ONCE:
            return read(answer, namespace)
        return await asyncio.to_thread(read, answer, namespace)
    except (ValueError, IndexError):
        raise CommandBroken("An answer about files") from None


def _shown(answer: bytes, namespace: str) -> FileInfo:
    """Parse the output of `show`: path and fields; then a link's target and the target's mode, or an archive."""
    path, *fields = answer.split(b"\0", _FIELDS + 1)
    rest = fields.pop()
    name = os.fsdecode(path)
    if fields[1] == b"l":
        target, mode, *_ = (*rest.split(b"\0"), b"", b"")
        return _info(name, fields, target=os.fsdecode(target), mode=_number(os.fsdecode(mode or b"0"), _MODE, 8))
    return _info(name, fields, attributes=_attributes(rest, namespace))


def _listed(answer: bytes, namespace: str) -> list[FileInfo]:
    parts = answer.split(b"\0")
    top = os.fsdecode(parts[0]).rstrip("/")
    entries: dict[str, list[bytes]] = {}
    at = 1
    while at + _FIELDS < len(parts) and parts[at]:
        entries[os.fsdecode(parts[at])] = parts[at : at + _FIELDS]
        at += _FIELDS
    targets: dict[str, str] = {}
    at += 1
    while at + 1 < len(parts) and parts[at]:
        targets[os.fsdecode(parts[at])] = os.fsdecode(parts[at + 1])
        at += 2
    marked: dict[str, Mapping[str, str]] = {}
    at += 1
    while at + 1 < len(parts) and parts[at]:
        marked[os.fsdecode(parts[at])] = _attributes(base64.b64decode(parts[at + 1], validate=True), namespace)
        at += 2
    return [
        _info(f"{top}/{name}", entries[name], target=targets.get(name), attributes=marked.get(name, {}))
        for name in sorted(entries, key=lambda name: name.split("/"))
    ]


def _info(
    path: str,
    fields: Sequence[bytes],
    *,
    target: str | None = None,
    mode: int | None = None,
    attributes: Mapping[str, str] | None = None,
) -> FileInfo:
    _, kind, leads_to, size, bits, permissions, owner, group, mtime, inode, ctime = (os.fsdecode(f) for f in fields)
    return FileInfo(
        name=os.path.basename(path.rstrip("/")) or "/",
        path=path,
        kind=_KINDS.get(leads_to if kind == "l" else kind, FileKind.OTHER),
        size=_number(size, _SIZE),
        mode=_number(bits, _MODE, 8) if mode is None else mode,
        permissions=_name(permissions),
        owner=_name(owner),
        group=_name(group),
        mtime_ns=_nanoseconds(mtime),
        changed=f"{_name(inode)}:{_name(ctime)}",
        target=(target or path) if kind == "l" else None,
        attributes=attributes or {},
    )


def _number(text: str, shape: re.Pattern[str], base: int = 10) -> int:
    if not shape.fullmatch(text):
        raise ValueError("not a number that find prints")
    return int(text, base)


def _text_of(text: str) -> str:
    """`text` if it is valid text, else with its undecodable parts replaced."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _name(text: str) -> str:
    """Check a short word printed by find, such as a user's name."""
    if len(text) > _LONGEST_NAME:
        raise ValueError("not a word that find prints")
    return _text_of(text)


def _nanoseconds(seconds: str) -> int:
    whole, _, fraction = seconds.partition(".")
    at = min(max(_number(whole, _SECONDS), _FIRST_S), _LAST_S)
    return at * 10**9 + _number(fraction[:9].ljust(9, "0"), _SIZE)


def _archive(attributes: Mapping[str, str], namespace: str) -> bytes:
    """A tar archive with an empty file `attributes` that has these extended attributes."""
    entry = tarfile.TarInfo("attributes")
    entry.pax_headers = {f"{_XATTR}{namespace}.{key}": value for key, value in attributes.items()}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(entry)
    return out.getvalue()


def _attributes(archive: bytes, namespace: str) -> dict[str, str]:
    """The extended attributes in the first header of a tar archive, of which only the beginning is present."""
    if not namespace or len(archive) < tarfile.BLOCKSIZE:
        return {}
    prefix = f"{_XATTR}{namespace}."
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r|") as opened:
            first = opened.next()
    except (tarfile.TarError, ValueError, OverflowError, EOFError):
        return {}
    headers = first.pax_headers if first else {}
    return {
        _text_of(key.removeprefix(prefix)): _text_of(value) for key, value in headers.items() if key.startswith(prefix)
    }
