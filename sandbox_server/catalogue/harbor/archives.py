"""Folders as text: a gzipped tar archive in base64 that depends on nothing but names, modes and contents."""

import base64
import gzip
import io
import os
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

MOST_BYTES = 8 << 20
"""Limit on the archives of one task, in base64, because an instance is read whole from SQL."""
_LEFT_OUT = {".harborignore", ".git", "__pycache__", ".DS_Store"}


def packed(folder: Path) -> str:
    """The folder's files and links, without owners and times; "" if it does not exist.

    Raises:
        ValueError: it holds something else, or is too large. OSError.
    """
    if not folder.is_dir():
        return ""
    whole = io.BytesIO()
    left = MOST_BYTES
    with tarfile.open(fileobj=whole, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for root, folders, files in os.walk(folder):
            folders[:] = sorted(name for name in folders if name not in _LEFT_OUT)
            for name in sorted({*folders, *files} - _LEFT_OUT):
                path = Path(root, name)
                entry = archive.gettarinfo(path, path.relative_to(folder).as_posix())
                if entry is None or not (entry.isfile() or entry.isdir() or entry.issym() or entry.islnk()):
                    raise ValueError(f"{path} is neither a file nor a folder nor a link")
                left -= entry.size if entry.isfile() else 0
                if left < 0:
                    raise ValueError(f"{folder} is larger than {MOST_BYTES >> 20} MiB; use a prebuilt image")
                _add(archive, entry, path)
    return base64.b64encode(gzip.compress(whole.getvalue(), mtime=0)).decode()


def unpacked(packed_folder: str) -> bytes:
    """The gzipped tar archive itself."""
    return base64.b64decode(packed_folder)


def _add(archive: tarfile.TarFile, entry: tarfile.TarInfo, path: Path) -> None:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = 0
    entry.mode = 0o755 if entry.isdir() or entry.mode & 0o111 else 0o644
    if entry.islnk():  # the second name of a file: stored as a file of its own
        entry.type, entry.linkname, entry.size = tarfile.REGTYPE, "", path.stat().st_size
    if entry.isfile():
        with path.open("rb") as content:
            archive.addfile(entry, content)
    else:
        archive.addfile(entry)


class Folder:
    """A packed folder, read."""

    def __init__(self, packed_folder: str) -> None:
        self._members: dict[str, tuple[tarfile.TarInfo, bytes]] = {}
        if packed_folder:
            with tarfile.open(fileobj=io.BytesIO(unpacked(packed_folder)), mode="r:gz") as archive:
                for entry in archive:
                    content = archive.extractfile(entry) if entry.isfile() else None
                    self._members[entry.name] = (entry, content.read() if content else b"")

    def text(self, name: str) -> str | None:
        """The text of a file; None if there is none."""
        entry, content = self._members.get(name, (None, b""))
        return content.decode("utf-8", "replace") if entry is not None and entry.isfile() else None

    def contents(self) -> list[bytes]:
        """The contents of all files."""
        return [content for entry, content in self._members.values() if entry.isfile()]

    def below(self, name: str) -> "Folder":
        """The folder `name` in it; "." is itself."""
        if name == ".":
            return self
        found = Folder("")
        for path, (entry, content) in self._members.items():
            if path.startswith(f"{name}/"):
                found._members[path.removeprefix(f"{name}/")] = (entry, content)
        return found

    def under(self, other: "Folder") -> "Folder":
        """A folder with this one's files, and the files of `other` over them."""
        found = Folder("")
        found._members.update({**self._members, **other._members})
        return found

    def packed(self) -> str:
        """As `packed` gives it."""
        return _archive([(path, entry, content) for path, (entry, content) in self._members.items()])

    def placed(self, files: Mapping[str, str]) -> str:
        """Packed: absolute path -> file or folder here. Raises ValueError: there is none."""
        chosen = []
        for target, name in files.items():
            found = [
                (target + path[len(name) :] if name != "." else f"{target}/{path}", entry, content)
                for path, (entry, content) in self._members.items()
                if name == "." or path == name or path.startswith(f"{name}/")
            ]
            if not found:
                raise ValueError(f"environment/{name} does not exist")
            chosen += [(path.lstrip("/"), entry, content) for path, entry, content in found]
        return _archive(chosen)


def _archive(members: Sequence[tuple[str, tarfile.TarInfo, bytes]]) -> str:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, entry, content in members:
            named = tarfile.TarInfo(path)
            named.type, named.mode, named.linkname, named.size = entry.type, entry.mode, entry.linkname, len(content)
            archive.addfile(named, io.BytesIO(content))
    return base64.b64encode(gzip.compress(whole.getvalue(), mtime=0)).decode()
