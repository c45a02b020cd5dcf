"""Reads and writes small files whole, as root, for the service itself."""

import asyncio
import errno

from sandbox_server.errors import CommandBroken
from sandbox_server.sandbox.bash.filesystem_channels import ChannelEnded, Exchange, FileSystemChannels
from sandbox_server.sandbox.bash.filesystem_errors import error_of

_TIMEOUT_S = 30.0  # for one operation
_ASIDE = 1 << 12  # bytes of other output that an operation's programs may print besides the answer


async def read(channels: FileSystemChannels, path: str, max_bytes: int) -> bytes:
    """See `sandbox.base.Sandbox.read_file`."""
    word, data = await _ask(channels, max_bytes + 1, b"", "load", _rooted(path), str(max_bytes + 1))
    _raise_for(word, path)
    if len(data) > max_bytes:
        raise OverflowError(f"{path} is longer than {max_bytes} bytes")
    return data


async def write(channels: FileSystemChannels, path: str, data: bytes, mode: int | None) -> None:
    """See `sandbox.base.Sandbox.write_file`."""
    octal = "" if mode is None else f"{mode:o}"
    if path.endswith("/"):
        raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
    word, _ = await _ask(channels, _ASIDE, data, "store", _rooted(path), str(len(data)), octal)
    _raise_for(word, path)


async def _ask(channels: FileSystemChannels, most: int, data: bytes, *words: str) -> tuple[str, bytes]:
    """Return the word at the end of the answer and at most `most` bytes before it."""
    for attempt in range(2):
        try:
            async with channels.exchange(fresh=bool(attempt)) as exchange, asyncio.timeout(_TIMEOUT_S):
                return await _exchange(exchange, most, data, *words)
        except ChannelEnded:
            continue
        except TimeoutError:
            raise TimeoutError(f"no answer within {_TIMEOUT_S:g} s") from None
    return await channels.refused()


async def _exchange(exchange: Exchange, most: int, data: bytes, *words: str) -> tuple[str, bytes]:
    # a function that rejects the data answers before it has read all of it
    sending = asyncio.create_task(exchange.tell(*words, data=data))
    try:
        answer = await exchange.answer(most)
    except OverflowError:  # the policy can replace `head`, which then prints what it likes
        raise CommandBroken("An answer about a file") from None
    finally:
        sending.cancel()
    return exchange.word, answer


def _raise_for(word: str, path: str) -> None:
    if word == "special":
        raise PermissionError(errno.EPERM, "Not a regular file", path)
    if word != "ok":
        raise error_of(word, path)


def _rooted(path: str) -> str:
    """`path` as an absolute path. Raises FileNotFoundError: the name is not possible."""
    try:
        path.encode()
    except UnicodeEncodeError:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", path) from None
    if not path or "\0" in path:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
    return path if path.startswith("/") else f"/{path}"
