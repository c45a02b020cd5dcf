"""Keeps the data folder private: it holds hidden tests, gold patches, tokens of boxes and what runs in them.

The server's umask makes new files private; wider permissions left by older releases or other programs are narrowed.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from sandbox_server.errors import DataDiskFull
from sandbox_server.telemetry import logger

log = logger(__name__)

UMASK = 0o077
_OTHERS = 0o077
_DEEP = ("repositories",)
"""Folders that are narrowed themselves but not walked: git mirrors with thousands of files, unreachable for others."""


def make_private(folder: Path) -> None:
    """Create `folder` if necessary, and make all in it accessible to this user alone. Blocks for some ms.

    Raises:
        DataDiskFull: it cannot be created.

    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise DataDiskFull(
            f"SANDBOX_DATA_DIR ({folder}) cannot be made: {error.strerror}; free space there, or name another folder"
        ) from error
    if shared := why_shared(folder):
        log.warning("the data folder is left open to other users", folder=str(folder), reason=shared)
        return
    narrowed = failed = 0
    for path in list(too_permissive_paths(folder)):
        try:
            path.chmod(stat.S_IMODE(path.lstat().st_mode) & ~_OTHERS)
            narrowed += 1
        except FileNotFoundError:  # a temporary file of SQLite
            continue
        except OSError:
            failed += 1
    if narrowed:
        log.warning(
            "the data folder was open to other users; its rights have been narrowed", folder=str(folder), paths=narrowed
        )
    if failed:
        log.warning("the data folder is open to other users and cannot be narrowed", folder=str(folder), paths=failed)


def why_shared(folder: Path) -> str:
    """The reason why the server must not change the folder's permissions; "" if it may."""
    resolved = folder.resolve()
    facts = resolved.stat()
    if resolved in (Path("/"), Path.home()):
        return f"{resolved} is not the server's alone; give SANDBOX_DATA_DIR a folder of its own"
    if facts.st_mode & stat.S_ISVTX:
        return f"{resolved} is made to be shared (sticky); give SANDBOX_DATA_DIR a folder of its own"
    if facts.st_uid != os.geteuid():
        return f"{resolved} is of user {facts.st_uid}, the server is {os.geteuid()}; chown it to the server's user"
    return ""


def too_permissive_paths(folder: Path) -> Iterator[Path]:
    """The paths in `folder`, itself included, that other users may read, write or enter. Follows no links."""
    if folder.stat().st_mode & _OTHERS:
        yield folder
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent, name)
            try:
                mode = path.lstat().st_mode
            except FileNotFoundError:
                continue
            if not stat.S_ISLNK(mode) and mode & _OTHERS:
                yield path
        folders[:] = [name for name in folders if name not in _DEEP]
