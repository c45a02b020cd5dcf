"""Both databases, real ones: a SQLite file, and a PostgreSQL server of this test run's own."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from chaos.database import postgres_bin
from sandbox_server.catalogue.database import Database

pytest.importorskip("asyncpg")


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """URL of a PostgreSQL server (without a database name) that lives as long as the tests."""
    bin_dir = postgres_bin()
    if bin_dir is None:
        if os.environ.get("CI") == "true" and os.environ.get("SANDBOX_TEST_POSTGRES") == "1":
            pytest.fail("SANDBOX_TEST_POSTGRES=1 and no initdb on this machine: install postgresql")
        pytest.skip("no PostgreSQL server on this machine")
    with _server(bin_dir) as url:
        yield url


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> "Templates":
    return Templates(tmp_path_factory.mktemp("migrated") / "catalogue.sqlite3")


@pytest.fixture(params=["sqlite", "postgresql"])
async def url(request: pytest.FixtureRequest, tmp_path: Path, templates: "Templates") -> AsyncIterator[str]:
    """URL of an empty database, or of a migrated one for tests that use `database`."""
    migrated = "database" in request.fixturenames
    if request.param == "sqlite":
        file = tmp_path / "data" / "catalogue.sqlite3"
        if migrated:
            file.parent.mkdir(mode=0o700)
            shutil.copy(await templates.sqlite(), file)
        yield f"sqlite:///{file}"
        return
    server: str = request.getfixturevalue("postgres")
    name = f"test_{uuid.uuid4().hex}"
    template = f"TEMPLATE {await templates.postgresql(server)}" if migrated else ""
    await _administer(server, f"CREATE DATABASE {name} {template}")
    yield f"{server}/{name}"
    await _administer(server, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
async def database(url: str) -> AsyncIterator[Database]:
    """A migrated database."""
    database = Database(url)
    await database.migrate()
    yield database
    await database.dispose()


class Templates:
    """Migrated databases for tests to copy: a migration from nothing costs 0.1 to 0.5 s of CPU."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._name = ""

    async def sqlite(self) -> Path:
        """A SQLite file that no process has open."""
        if not self._file.exists():
            await _migrate(f"sqlite:///{self._file}")
            assert [path.name for path in self._file.parent.iterdir()] == [self._file.name], "not at rest"
        return self._file

    async def postgresql(self, server: str) -> str:
        """Name of a database of `server`."""
        if not self._name:
            self._name = "migrated"
            await _administer(server, f"CREATE DATABASE {self._name}")
            await _migrate(f"{server}/{self._name}")
        return self._name


async def _migrate(url: str) -> None:
    database = Database(url)
    await database.migrate()
    await database.dispose()


async def _administer(server: str, statement: str) -> None:
    admin = create_async_engine(f"{server}/postgres".replace("://", "+asyncpg://"), isolation_level="AUTOCOMMIT")
    async with admin.connect() as connection:
        await connection.execute(text(statement))
    await admin.dispose()


@contextmanager
def _server(bin_dir: Path) -> Iterator[str]:
    # not in tmp_path: PostgreSQL refuses to run as root, and another user may not enter pytest's folders
    folder = Path(tempfile.mkdtemp(prefix="sandbox-test-postgres-"))
    user = "postgres" if os.geteuid() == 0 else None
    if user:
        shutil.chown(folder, user)
    data = folder / "data"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = f"-c listen_addresses=127.0.0.1 -p {port} -c unix_socket_directories={folder} -c fsync=off"
    try:
        initdb = [bin_dir / "initdb", "-D", data, "-U", "tester", "-A", "trust", "-E", "UTF8", "--no-sync"]
        subprocess.run(initdb, user=user, cwd=folder, check=True, capture_output=True)
        start = [bin_dir / "pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", options, "start"]
        subprocess.run(start, user=user, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield f"postgresql://tester@127.0.0.1:{port}"
        finally:
            stop = [bin_dir / "pg_ctl", "-D", data, "-m", "immediate", "stop"]
            subprocess.run(stop, user=user, cwd=folder, check=True, capture_output=True)
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def swebench4_dir() -> Path:
    """Folder with swebench 4.1.0, as the server would find it."""
    folder = Path(os.environ.get("SANDBOX_SWEBENCH4_DIR") or Path(sys.prefix) / "share" / "swebench-4.1.0")
    if not (folder / "swebench").is_dir():
        pytest.skip("swebench 4.1.0 is not installed here: `make setup`")
    return folder
