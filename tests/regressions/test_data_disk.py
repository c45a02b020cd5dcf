"""The data folder: what is reported and refused when its disk is full, and who may read it."""

import errno
import hashlib
import os
import stat
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from sandbox_server.app.data_disk import DataDisk
from sandbox_server.app.data_folder import make_private, too_permissive_paths, why_shared
from sandbox_server.boxes.blobs import Blobs
from sandbox_server.catalogue.database import Database
from sandbox_server.errors import CatalogueUnavailable, DataDiskFull
from sandbox_server.sandbox.faults import Faults
from sandbox_server.state.embedded import EmbeddedRedis

MB = 1 << 20


@pytest.fixture
def small(tmp_path: Path, missing) -> Iterator[Path]:
    """A file system of 8 MB."""
    if os.geteuid():
        missing("root, to mount a small file system")
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,mode=700", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(folder: Path) -> Path:
    """Fill it to the last byte."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as stream:
        try:
            while True:
                stream.write(bytes(4096))
        except OSError as error:
            assert error.errno == errno.ENOSPC
    return filler


async def pieces(data: bytes, size: int) -> AsyncIterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


async def test_a_full_disk_is_told_and_forgotten(small: Path) -> None:
    """The server must notice by itself that its disk is full, and that there is space again."""
    faults = Faults()
    disk = DataDisk(small, faults, min_free_mb=2)
    await disk.look()
    assert not faults.present
    (small / "some").write_bytes(bytes(7 * MB))
    await disk.look()
    assert "SANDBOX_DATA_MIN_FREE_MB=2" in faults.present["data"]
    with pytest.raises(DataDiskFull):
        disk.room()
    (small / "some").unlink()
    disk.room()
    await disk.check()
    assert not faults.present


async def test_a_write_that_fails_is_told(small: Path) -> None:
    """The file system reports free space, but every write fails."""
    filler = fill(small)
    disk = DataDisk(small, Faults(), min_free_mb=0)
    with pytest.raises(DataDiskFull, match="No space left on device"):
        await disk.check()
    filler.unlink()
    await disk.check()
    assert os.listdir(small) == []


@pytest.mark.parametrize("piece", [100, MB])
async def test_a_blob_that_finds_no_room(small: Path, piece: int) -> None:
    """It raised a bare OSError; small pieces did so only when the file was closed, where nothing caught it."""
    blobs = Blobs(small / "blobs", most_bytes=100 * MB)
    small_one = b"x" * 5000
    assert await blobs.put(hashlib.sha256(small_one).hexdigest(), pieces(small_one, 100)) == 5000
    filler = fill(small)
    data = os.urandom(6000 if piece == 100 else 4 * MB)
    sha256 = hashlib.sha256(data).hexdigest()
    with pytest.raises(DataDiskFull) as refused:
        await blobs.put(sha256, pieces(data, piece))
    assert refused.value.http_status == 507
    assert [path.name for path in (small / "blobs").iterdir()] == [hashlib.sha256(small_one).hexdigest()]
    filler.unlink()
    assert await blobs.put(sha256, pieces(data, piece)) == len(data)
    assert b"".join([chunk async for chunk in blobs.read(sha256)]) == data


async def test_a_database_that_finds_no_room(small: Path) -> None:
    """The database goes on with the same connections; until then its error names the full disk."""
    database = Database(f"sqlite:///{small / 'catalogue.sqlite3'}")
    await database.migrate()
    filler = fill(small)
    insert = "INSERT INTO alembic_version VALUES (hex(randomblob(100000)))"
    with pytest.raises(CatalogueUnavailable, match="free space on its disk"):
        for _ in range(50):
            async with database.writing() as connection:
                await connection.exec_driver_sql(insert)
    filler.unlink()
    async with database.writing() as connection:
        await connection.exec_driver_sql(insert)
    await database.dispose()


async def test_what_is_made_is_private(tmp_path: Path) -> None:
    """The catalogue, its journal and the append-only file had mode 0644, whatever the umask."""
    had = os.umask(0o022)
    try:
        make_private(tmp_path / "data")
        database = Database(f"sqlite:///{tmp_path / 'data' / 'catalogue.sqlite3'}")
        await database.migrate()
        redis = EmbeddedRedis(tmp_path / "data")
        redis.start()
        try:
            made = [tmp_path / "data", *(tmp_path / "data").rglob("*")]
            assert {"catalogue.sqlite3-wal", "redis.log"} <= {path.name for path in made}
            assert [path for path in made if path.lstat().st_mode & 0o077] == []
        finally:
            redis.stop()
        await database.dispose()
    finally:
        os.umask(had)


def test_what_was_wider_is_narrowed(tmp_path: Path) -> None:
    """The folder of an older release would stay readable; a link in it could have another file's mode changed."""
    data, other = tmp_path / "data", tmp_path / "other"
    (data / "redis").mkdir(parents=True)
    (data / "repositories" / "mirrors").mkdir(parents=True)
    other.write_text("of somebody else")
    (data / "link").symlink_to(other)
    for path in (data / "redis" / "a.aof", data / "catalogue.sqlite3"):
        path.write_text("")
        path.chmod(0o644)
    os.chmod(other, 0o644)
    assert len(list(too_permissive_paths(data))) > 3
    make_private(data)
    assert list(too_permissive_paths(data)) == []
    assert stat.S_IMODE(other.stat().st_mode) == 0o644
    assert stat.S_IMODE((data / "catalogue.sqlite3").stat().st_mode) == 0o600


def test_a_folder_of_others_is_left(tmp_path: Path) -> None:
    """With SANDBOX_DATA_DIR=/tmp nobody else could use /tmp any more."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    make_private(shared)
    assert stat.S_IMODE(shared.stat().st_mode) == 0o1777
    assert "a folder of its own" in why_shared(shared)
    assert why_shared(Path("/")) and why_shared(Path.home())
