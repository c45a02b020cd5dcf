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
from typing import Any

import pytest

from chaos.database import postgres_bin
from sandbox_server.catalogue.database import Database
from sandbox_server.catalogue.repositories import Mirrors
from tests.conformance.catalogue.mirrors import opened
from tests.git_server import GitServer, serving_git
from tests.repository import Repository, blob, make_repository

asyncpg = pytest.importorskip("asyncpg")


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
def templates(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Templates"]:
    made = Templates(tmp_path_factory.mktemp("migrated") / "catalogue.sqlite3")
    yield made
    made.close()


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
    administrator = await templates.administrator(server)
    by = "STRATEGY FILE_COPY" if template and administrator.get_server_version().major >= 15 else ""  # half the CPU
    await administrator.execute(f"CREATE DATABASE {name} {template} {by}")
    yield f"{server}/{name}"
    await administrator.execute(f"DROP DATABASE {name} WITH (FORCE)")


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
        self._administrator: Any | None = None

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
            await (await self.administrator(server)).execute(f"CREATE DATABASE {self._name}")
            await _migrate(f"{server}/{self._name}")
        return self._name

    async def administrator(self, server: str) -> Any:
        """One connection that makes and removes the databases of `server`."""
        if self._administrator is None:
            self._administrator = await asyncpg.connect(f"{server}/postgres")
        return self._administrator

    def close(self) -> None:
        """Give up that connection, whose server may have ended."""
        if self._administrator is not None:
            self._administrator.terminate()


async def _migrate(url: str) -> None:
    database = Database(url)
    await database.migrate()
    await database.dispose()


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


@pytest.fixture(scope="session")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """The repository that all tests fetch from and none changes."""
    return make_repository(tmp_path_factory.mktemp("remote") / "owner" / "name.git")


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a repository `large` of 2 MB."""
    folder = tmp_path_factory.mktemp("large")
    made = Repository(folder / "large")
    made.write("blob", blob(2_000_000, 1))
    made.commit("One")
    return folder


@pytest.fixture
def server(remote: Repository) -> Iterator[GitServer]:
    with serving_git(remote.path.parents[1]) as server:
        yield server


@pytest.fixture
async def mirrors(tmp_path: Path, server: GitServer, remote: Repository) -> AsyncIterator[Mirrors]:
    """Mirrors where `owner/name` is the remote by HTTP; its folder is allowed too."""
    async with opened(
        tmp_path / "mirrors", url=f"{server.url}/{{repo}}.git", folders=(remote.path.parents[1],)
    ) as mirrors:
        yield mirrors
