"""The files of a sandbox as a user of its image sees them: relative to a home, owned by someone, streamed.

Paths: absolute, or relative to the user's home, or beginning with `~/`. Reading and writing are done as root, as the
user's are the files and folders that come into being. `read_file` and `write_file` of `Sandbox` are for the service's
own files: small, whole, root's.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol


class FileKind(StrEnum):
    """What a path leads to."""

    FILE = "file"
    DIR = "dir"
    SYMLINK = "symlink"
    """A link that leads nowhere; any other is what it leads to, with `FileInfo.target`."""
    OTHER = "other"
    """A device, a pipe, a socket."""


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One entry of a folder."""

    name: str
    path: str
    """Absolute."""
    kind: FileKind
    """For a link: of what it leads to."""
    size: int
    """Bytes; of a link its own."""
    mode: int
    """Permission bits, at most 0o7777; of a link its target's."""
    permissions: str
    """As `ls -l` shows them, `-rw-r--r--`."""
    owner: str
    """The user's name, or its number where the image has no name for it."""
    group: str
    mtime_ns: int
    """Nanoseconds since 1970."""
    changed: str = ""
    """Differs once anything of the entry has changed: its inode and the time of its last change."""
    target: str | None = None
    """Where a link leads to, resolved; None for all else."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Extended attributes of the name space that was asked for, without its prefix."""


class FileSystem(Protocol):
    """File operations with users.

    All raise, beside what they name:
        UnknownUser: the image has no such user. SandboxLost, EngineUnavailable.
        ValueError: no path (`~name`, a NUL). BlockingIOError: the sandbox can take no further process.

    """

    async def put(
        self,
        path: str,
        chunks: AsyncIterator[bytes],
        *,
        user: str = "root",
        attributes: Mapping[str, str] | None = None,
        namespace: str = "",
    ) -> FileInfo:
        """Write a file in place (an existing one keeps its mode), as long as `chunks` gives; the user's ever after.

        Missing folders are made, 0755, the user's. `attributes` become extended attributes `<namespace>.<key>` in
        place of all that the name space held; an image without `tar` keeps none. What had come stays when `chunks`
        raises.

        Raises:
            IsADirectoryError, NotADirectoryError, PermissionError: as of the file system.
            SandboxDiskFull: no room.

        """
        ...

    def get(self, path: str, *, user: str = "root") -> AsyncGenerator[bytes, None]:
        """The file's bytes, read as they are asked for. Errors come with the first chunk; close it when done early.

        Raises:
            FileNotFoundError, IsADirectoryError, PermissionError: as of the file system.

        """
        ...

    async def stat(self, path: str, *, user: str = "root", namespace: str = "") -> FileInfo:
        """One entry, with the extended attributes of `namespace` if it is given.

        Raises:
            FileNotFoundError.

        """
        ...

    async def listdir(
        self, path: str, *, user: str = "root", depth: int = 1, namespace: str = ""
    ) -> Sequence[FileInfo]:
        """What is in a folder, down to `depth`, sorted; links are not followed, but `path` may be one.

        With `namespace`: also the extended attributes, if `put` has set any in this sandbox.

        Raises:
            FileNotFoundError, NotADirectoryError. OverflowError: too much for one answer.

        """
        ...

    async def mkdir(self, path: str, *, user: str = "root") -> FileInfo:
        """Make the folder, and those above it that are missing: 0755, the user's.

        Raises:
            FileExistsError: it is there. NotADirectoryError: a file stands there, or above. SandboxDiskFull.

        """
        ...

    async def remove(self, path: str, *, user: str = "root") -> None:
        """Remove a file, or a folder with all that is in it; nothing there is no error.

        Raises:
            PermissionError: something could not be removed (a mount).

        """
        ...

    async def move(self, source: str, destination: str, *, user: str = "root", namespace: str = "") -> FileInfo:
        """Rename; missing folders above `destination` are made. Returns what is at `destination` now.

        Raises:
            FileNotFoundError: no `source`. PermissionError: a folder stands in its way. NotADirectoryError.

        """
        ...
