"""Folders as text: a gzipped tar archive in base64 that depends on nothing but names, modes and contents."""

import base64
import gzip
import io
import os
import tarfile
from pathlib import Path

MOST_BYTES = 8 << 20
"""Of the archives of one task, in base64: an instance is read whole from SQL."""
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
