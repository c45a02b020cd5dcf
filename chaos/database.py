"""The shared SQL database: PostgreSQL if this machine has it, else one SQLite file."""

import shutil
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path

import asyncpg

from chaos.processes import run

_LOCKED_TABLES = "sessions, actions, patches"
_USER = "tester"


class Sql(ABC):
    """The operations that faults perform on it."""

    url: str
    kind: str

    @abstractmethod
    def locked(self) -> AbstractAsyncContextManager[None]:
        """Hold a transaction that blocks others during the block: with SQLite writers, with PostgreSQL everybody."""

    @abstractmethod
    async def answers(self) -> bool:
        """Whether it accepts a connection and a query within a second."""

    @abstractmethod
    def size(self) -> int:
        """Size of its data in bytes."""


class Sqlite(Sql):
    """One file that both servers open."""

    kind = "SQLite"

    def __init__(self, path: Path) -> None:
        self._path = path
        self.url = f"sqlite:///{path}"

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """BEGIN IMMEDIATE takes the writers' single lock."""
        connection = sqlite3.connect(self._path, isolation_level=None, timeout=30)
        try:
            connection.execute("BEGIN IMMEDIATE")
            yield
        finally:
            connection.close()

    async def answers(self) -> bool:
        """Always true: it is a file."""
        return self._path.exists()

    def size(self) -> int:
        """The file and its log."""
        return sum(path.stat().st_size for path in self._path.parent.glob(f"{self._path.name}*"))


class Postgres(Sql):
    """A cluster of our own."""

    kind = "PostgreSQL"

    def __init__(self, folder: Path, bin_dir: Path, address: str, port: int) -> None:
        self._folder = folder
        self._bin = bin_dir
        self._user = "postgres" if folder.owner() == "postgres" else None
        self._at = {"host": "127.0.0.1", "port": port, "user": _USER, "database": "postgres"}
        self._options = (
            f"-c listen_addresses=127.0.0.1,{address} -p {port} -c unix_socket_directories={folder}"
            " -c max_connections=200"
        )
        self.url = f"postgresql://{_USER}@{address}:{port}/postgres"

    def create(self, network: str) -> None:
        """Create a cluster that trusts this machine and `network`."""
        initdb = ("initdb", "-D", self._data, "-U", _USER, "-A", "trust", "-E", "UTF8")
        self._run(*initdb)
        with (self._data / "pg_hba.conf").open("a") as stream:
            stream.write(f"host all all {network} trust\n")

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def start(self) -> None:
        """Start it and wait until it answers."""
        # pg_ctl's child would keep our pipe open, so its output goes to the log
        words = f"'{self._bin}/pg_ctl' -D '{self._data}' -w -l '{self._folder}/log' -o '{self._options}' start"
        run("setsid", "sh", "-c", f"{words} >/dev/null 2>&1 </dev/null", user=self._user)

    def stop(self) -> None:
        """Stop it like a crash: no shutdown checkpoint, every connection broken."""
        self._run("pg_ctl", "-D", self._data, "-m", "immediate", "stop")

    def _run(self, program: str, *words: str | Path) -> None:
        run(self._bin / program, *words, user=self._user)

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """ACCESS EXCLUSIVE on the tables of sessions, actions and patches."""
        connection = await asyncpg.connect(**self._at, timeout=10)
        try:
            async with connection.transaction():
                await connection.execute(f"LOCK TABLE {_LOCKED_TABLES} IN ACCESS EXCLUSIVE MODE")
                yield
        finally:
            await connection.close()

    async def answers(self) -> bool:
        """Try a connection and a query."""
        try:
            connection = await asyncpg.connect(**self._at, timeout=1)
        except (OSError, TimeoutError, asyncpg.PostgresError):
            return False
        await connection.close()
        return True

    def size(self) -> int:
        """The tables' files; the write-ahead log grows and shrinks by its own rules."""
        return sum(path.stat().st_size for path in (self._data / "base").rglob("*") if path.is_file())


def postgres_bin() -> Path | None:
    """Folder of initdb and pg_ctl, of the newest version; None if PostgreSQL is not installed."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    on_path = shutil.which("initdb")
    found = [*debian, *([Path(on_path).resolve().parent] if on_path else [])]
    return next((folder for folder in found if (folder / "initdb").exists()), None)


@contextmanager
def database(folder: Path, address: str, port: int) -> Iterator[Sql]:
    """Run a database below `folder`; `address` is where other hosts reach it."""
    bin_dir = postgres_bin()
    folder.mkdir()
    if bin_dir is None:
        yield Sqlite(folder / "catalogue.sqlite3")
        return
    shutil.chown(folder, "postgres")
    sql = Postgres(folder, bin_dir, address, port)
    sql.create(f"{address}/30")
    try:
        sql.start()
        yield sql
    finally:
        run(bin_dir / "pg_ctl", "-D", folder / "data", "-m", "immediate", "stop", check=False, user="postgres")
