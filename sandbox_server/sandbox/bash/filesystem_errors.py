"""The meaning of the words that filesystem.bash answers with."""

import errno
import os
from collections.abc import Mapping

from sandbox_server.errors import SandboxDiskFull, UnknownUser

_OS_ERRORS: Mapping[str, tuple[type[OSError], int]] = {
    "missing": (FileNotFoundError, errno.ENOENT),
    "dir": (IsADirectoryError, errno.EISDIR),
    "notdir": (NotADirectoryError, errno.ENOTDIR),
    "exists": (FileExistsError, errno.EEXIST),
    "inside": (OSError, errno.EINVAL),
    "special": (PermissionError, errno.EPERM),
    "denied": (PermissionError, errno.EACCES),
    "busy": (BlockingIOError, errno.EAGAIN),
}
"""Word of filesystem.bash -> exception."""


def error_of(word: str, path: str, user: str = "") -> Exception:
    """The exception for the word at the end of an answer about `path`; an unknown word is PermissionError."""
    match word:
        case "user":
            return UnknownUser(f"the image has no user {user!r}")
        case "tilde":
            return ValueError(f"{path!r}: only ~/ stands for a home, not ~name")
        case "path":
            return ValueError(f"{path[:100]!r} is not a valid path: a part of it is too long")
        case "full":
            return SandboxDiskFull(f"no space left to write {path} in the sandbox; remove files and try again")
        case _:
            kind, number = _OS_ERRORS.get(word, _OS_ERRORS["denied"])
            return kind(number, os.strerror(number), path)
