"""The files of a sandbox as a user of its image sees them: paths relative to a home, an owner, streamed contents.

Paths are absolute, relative to the user's home, or begin with `~/`. Operations run as root; files and folders that
they create belong to the user. `Sandbox.read_file` and `write_file` are for the service's own files: small, read and
written whole, owned by root.
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
    """A dangling link. Any other link has its target's kind, and `FileInfo.target`."""
    OTHER = "other"
    """A device, a pipe, a socket."""


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One entry of a folder."""

    name: str
    path: str
    """Absolute path."""
    kind: FileKind
    """For a link: its target's kind."""
    size: int
    """Bytes; for a link, the link's own size."""
    mode: int
    """Permission bits, at most 0o7777; for a link, its target's."""
    permissions: str
    """As `ls -l` shows them, `-rw-r--r--`."""
    owner: str
    """The user's name, or its number if the image has no name for it."""
    group: str
    mtime_ns: int
    """Nanoseconds since 1970."""
    changed: str = ""
    """Changes whenever the entry changes: its inode and the time of its last status change."""
    target: str | None = None
    """A link's resolved target; None for everything else."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Extended attributes of the requested namespace, without its prefix."""


class FileSystem(Protocol):
    """File operations on behalf of a user.

    Besides the errors named below, all methods raise:
        UnknownUser: the image has no such user. SandboxLost, EngineUnavailable.
        ValueError: an invalid path (`~name`, a NUL). BlockingIOError: the sandbox can take no further process.

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
        """Write `chunks` to a file in place and give it to `user`; an existing file keeps its mode.

        Missing folders are created with mode 0755 and belong to the user. `attributes` become the extended attributes
        `<namespace>.<key>` and replace all others of that namespace; an image without `tar` stores none. If `chunks`
        raises, what was written until then stays.

        Raises:
            IsADirectoryError, NotADirectoryError, PermissionError: from the file system.
            SandboxDiskFull: no space.

        """
        ...

    def get(self, path: str, *, user: str = "root") -> AsyncGenerator[bytes, None]:
        """Yield the file's bytes, read on demand. Errors come with the first chunk; close the generator if you stop
        early.

        Raises:
            FileNotFoundError, IsADirectoryError, PermissionError: from the file system.

        """
        ...

    async def stat(self, path: str, *, user: str = "root", namespace: str = "") -> FileInfo:
        """Return one entry, with the extended attributes of `namespace` if given.

        Raises:
            FileNotFoundError.

        """
        ...

    async def listdir(
        self, path: str, *, user: str = "root", depth: int = 1, namespace: str = ""
    ) -> Sequence[FileInfo]:
        """Return the entries of a folder down to `depth`, sorted. Links are not followed, but `path` may be a link.

        With `namespace`, the entries have their extended attributes, if `put` has set any in this sandbox.

        Raises:
            FileNotFoundError, NotADirectoryError. OverflowError: the answer is too large.

        """
        ...

    async def mkdir(self, path: str, *, user: str = "root") -> FileInfo:
        """Create the folder and its missing parents, with mode 0755, owned by the user.

        Raises:
            FileExistsError: the folder exists. NotADirectoryError: it or a parent is a file. SandboxDiskFull.

        """
        ...

    async def remove(self, path: str, *, user: str = "root") -> None:
        """Remove a file, or a folder with its contents; no error if it does not exist.

        Raises:
            PermissionError: something could not be removed, for example a mount.

        """
        ...

    async def move(self, source: str, destination: str, *, user: str = "root", namespace: str = "") -> FileInfo:
        """Rename `source`; create missing parents of `destination`. Returns the entry now at `destination`.

        A file is replaced; a file that is moved to itself is left as it is.

        Raises:
            FileNotFoundError: no `source`. FileExistsError: `destination` is a folder. NotADirectoryError.
            OSError (EINVAL): `destination` lies below `source`.

        """
        ...
