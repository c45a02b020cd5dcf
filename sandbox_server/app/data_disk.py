"""Watches free space on the disk of the data folder, which holds SQLite, the embedded Redis, mirrors and blobs.

Below the minimum, or when a write fails, nothing new starts, so that sessions in progress still have room for their
journals and patches. Once there is room again, the server continues without any action by the operator.
"""

import asyncio
import os
import secrets
from contextlib import suppress
from pathlib import Path

from sandbox_server.errors import DataDiskFull
from sandbox_server.sandbox.faults import Faults

REASON = "data"
_PROBE = 1 << 16  # bytes of a trial write: more than a file system stores inside an inode


class DataDisk:
    """Watches the disk of one data folder."""

    def __init__(self, folder: Path, faults: Faults, *, min_free_mb: float) -> None:
        self._folder = folder
        self._faults = faults
        self._min_free = int(min_free_mb * 2**20)

    async def look(self) -> None:
        """Check the disk once and report a fault, or that there is none."""
        self._faults.tell(REASON, await asyncio.to_thread(self._wrong))

    async def check(self) -> None:
        """As `look`; for /readyz. Raises DataDiskFull."""
        wrong = await asyncio.to_thread(self._wrong)
        self._faults.tell(REASON, wrong)
        if wrong:
            raise DataDiskFull(wrong)

    def room(self) -> None:
        """Raise DataDiskFull if less than the minimum is free; asks the file system, writes nothing."""
        if wrong := self._too_little():
            raise DataDiskFull(wrong)

    def _wrong(self) -> str:
        return self._too_little() or probe_write(self._folder)

    def _too_little(self) -> str:
        free = free_bytes(self._folder)
        if free >= self._min_free:
            return ""
        return (
            f"the disk of SANDBOX_DATA_DIR ({self._folder}) has {free / 2**20:.0f} MB free, and"
            f" SANDBOX_DATA_MIN_FREE_MB={self._min_free / 2**20:g} are kept for what is under way; free some, then it"
            " goes on by itself"
        )


def free_bytes(folder: Path) -> int:
    """Bytes that this user can still write to the folder's disk."""
    stat = os.statvfs(folder)
    return stat.f_bavail * stat.f_frsize


def probe_write(folder: Path) -> str:
    """Write a small file to `folder` and remove it; returns the error text, "" on success."""
    probe = folder / f".probe-{secrets.token_hex(4)}"
    try:
        handle = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            left = memoryview(bytes(_PROBE))
            while left:
                left = left[os.write(handle, left) :]
        finally:
            os.close(handle)
    except OSError as error:
        return (
            f"SANDBOX_DATA_DIR ({folder}) cannot be written to: {error.strerror}; free space there, or mend its disk"
            " and rights, then it goes on by itself"
        )
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)
    return ""
