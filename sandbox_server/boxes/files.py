"""Write a client's file into a sandbox, and map failures to client errors."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from sandbox_server.errors import FileUnusable, InfrastructureError, MalformedRequest, UnknownFile
from sandbox_server.sandbox.base import Sandbox
from sandbox_server.sandbox.filesystem import FileInfo

_CHMOD_S = 60.0


async def write(
    sandbox: Sandbox, path: str, chunks: AsyncGenerator[bytes, None], user: str, mode: str | None
) -> FileInfo:
    """Write `chunks` to a file as `user`, then give it the permission bits `mode` (octal digits).

    Raises:
        UnknownFile, FileUnusable, MalformedRequest: it cannot be written there. UnknownUser. What `chunks` raises.
        InfrastructureError.

    """
    try:
        async with aclosing(chunks):
            info = await sandbox.put(path, chunks, user=user)
    except (OSError, ValueError) as error:
        raise refused(path, error) from None
    if mode is not None:
        done = await sandbox.exec(["chmod", "--", mode, info.path], timeout_s=_CHMOD_S, user="root")
        if done.exit_code != 0:
            raise InfrastructureError(f"chmod {mode} {info.path}: {done.stderr.text().strip()[-200:]}")
    return info


def refused(path: str, error: Exception) -> UnknownFile | FileUnusable | MalformedRequest:
    """The client error for a file system failure."""
    if isinstance(error, FileNotFoundError):
        return UnknownFile(f"{path}: no such file")
    if isinstance(error, OSError):
        return FileUnusable(f"{path}: {error.strerror or error}")
    return MalformedRequest(f"{path!r}: {error}")
