"""filesystem.Filesystem: the files in a box, by Connect."""

import re
from datetime import UTC, datetime

from fastapi import APIRouter

from sandbox_server.protocols.e2b.connect import Code, ConnectError, Message
from sandbox_server.protocols.e2b.envd_call import Call, unary
from sandbox_server.sandbox.filesystem import FileInfo, FileKind

ROUTER = APIRouter(include_in_schema=False)
NAMESPACE = "user.e2b"
"""Namespace of the extended attributes with an entry's metadata; the same as envd's."""

_SERVICE = "/filesystem.Filesystem"
_TYPES = {
    FileKind.FILE: "FILE_TYPE_FILE",
    FileKind.DIR: "FILE_TYPE_DIRECTORY",
    FileKind.SYMLINK: "FILE_TYPE_SYMLINK",
    FileKind.OTHER: "FILE_TYPE_UNSPECIFIED",
}
_LISTED = re.compile(r"[-dlcbps](?:[-r][-w][-xsStT]){3}")
_GO_KINDS = {"l": "L", "c": "D", "b": "D", "s": "S"}


class OnePath(Message):
    """Stat, MakeDir, Remove."""

    path: str = ""


class ListDir(Message):
    """ListDir."""

    path: str = ""
    depth: int = 0


class Move(Message):
    """Move."""

    source: str = ""
    destination: str = ""


@unary(ROUTER, f"{_SERVICE}/Stat", OnePath)
async def stat(call: Call, asked: OnePath) -> dict[str, object]:
    """One entry."""
    return {"entry": entry(await call.sandbox.stat(asked.path, user=call.user, namespace=NAMESPACE))}


@unary(ROUTER, f"{_SERVICE}/ListDir", ListDir)
async def list_dir(call: Call, asked: ListDir) -> dict[str, object]:
    """The entries of a folder, down to `depth`."""
    if asked.depth < 0:
        raise ConnectError(Code.INVALID_ARGUMENT, "depth should be at least 1")
    found = await call.sandbox.listdir(asked.path, user=call.user, depth=asked.depth or 1, namespace=NAMESPACE)
    return {"entries": [entry(info) for info in found]}


@unary(ROUTER, f"{_SERVICE}/MakeDir", OnePath)
async def make_dir(call: Call, asked: OnePath) -> dict[str, object]:
    """Create a folder and its missing parents."""
    return {"entry": entry(await call.sandbox.mkdir(asked.path, user=call.user))}


@unary(ROUTER, f"{_SERVICE}/Remove", OnePath)
async def remove(call: Call, asked: OnePath) -> dict[str, object]:
    """Remove a file, or a folder with its contents; no error if it does not exist."""
    await call.sandbox.remove(asked.path, user=call.user)
    return {}


@unary(ROUTER, f"{_SERVICE}/Move", Move)
async def move(call: Call, asked: Move) -> dict[str, object]:
    """Rename."""
    moved = await call.sandbox.move(asked.source, asked.destination, user=call.user, namespace=NAMESPACE)
    return {"entry": entry(moved)}


def entry(info: FileInfo) -> dict[str, object]:
    """EntryInfo."""
    seconds, nanoseconds = divmod(info.mtime_ns, 10**9)
    shown: dict[str, object] = {
        "name": info.name,
        "type": _TYPES[info.kind],
        "path": info.path,
        "size": str(info.size),  # protobuf's JSON writes a 64-bit integer as a string
        "mode": info.mode & 0o777,
        "permissions": permissions(info.permissions),
        "owner": info.owner,
        "group": info.group,
        "modifiedTime": f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{nanoseconds:09}Z",
    }
    if info.target is not None:
        shown["symlinkTarget"] = info.target
    if info.attributes:
        shown["metadata"] = dict(info.attributes)
    return shown


def permissions(listed: str) -> str:
    """The ten characters of `ls -l` as Go's `FileMode` writes them, which is what envd sends.

    `lrwxrwxrwx` is `Lrwxrwxrwx`, `drwxrwxrwt` is `dtrwxrwxrwx`, `crw-rw-rw-` is `Dcrw-rw-rw-`. Any other text, which
    occurs only in a forged listing, is left as it is.
    """
    if not _LISTED.fullmatch(listed):
        return listed
    kind = _GO_KINDS.get(listed[0], listed[0]) if listed[0] != "-" else ""
    special = "".join(letter for letter, at in (("u", 3), ("g", 6), ("t", 9)) if listed[at] in "sStT")
    device = "c" if listed[0] == "c" else ""
    bits = "".join({"s": "x", "t": "x", "S": "-", "T": "-"}.get(one, one) for one in listed[1:])
    return (f"{kind}{special}{device}" or "-") + bits
