"""The SQL database: engine, transactions, migrations and errors. SQLite by default, PostgreSQL by URL."""

import asyncio
import importlib
import os
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from sqlalchemy import JSON, ColumnElement, Connection, create_engine, event, inspect, text, type_coerce
from sqlalchemy import cast as sql_cast
from sqlalchemy.engine import URL, ExceptionContext, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry

from sandbox_server.catalogue.tables import REVISION, Base
from sandbox_server.errors import CatalogueUnavailable

if TYPE_CHECKING:
    from sqlalchemy.dialects import sqlite

T = TypeVar("T")

_BUSY_S = 30.0
"""How long SQLite waits for another process's transaction; an import takes a second or two."""
_IDLE_S = 30.0
"""A PostgreSQL transaction whose client says nothing for this long is ended: the locks of a frozen node become free."""
_THREADS = 4
"""Threads of a SQLite database for `read` and `write`; at most one of them writes at a time."""
_FULL = ("disk is full", "disk I/O error", "No space left")
_SAME = "UPDATE alembic_version SET version_num = version_num"
_MIGRATION_LOCK = 0x5A4DB0C5
"""PostgreSQL advisory lock, taken in turn by replicas that start at the same time."""


class Database:
    """One pool of connections.

    SQLite allows one writer at a time, and its busy handler is not fair. So the writers of this process queue on a
    lock, and those of other processes wait up to 30 s. With WAL readers continue meanwhile; with `synchronous=FULL` an
    acknowledged commit survives a power loss.

    Every SQL failure inside `reading`, `writing`, `read` and `write` is raised as CatalogueUnavailable.

    On SQLite `reading` and `writing` hand each statement, begin and commit to a thread: some ten turns for a
    transaction, each of which waits for the thread and for the event loop. `read` and `write` need one turn.
    """

    def __init__(self, url: str) -> None:
        """`url` is `sqlite:///file` or `postgresql://user:password@host/database`.

        Raises:
            ValueError: the URL is neither, names no file, or its driver is not installed.

        """
        self._url = _with_driver(url)
        self._sqlite = self._url.get_backend_name() == "sqlite"
        self._writer = asyncio.Lock()
        self._refused = False
        """Whether the last writing transaction failed; if so, `ping` tries a write itself."""
        self._raised: tuple[type[Exception], ...] = (SQLAlchemyError, OSError)
        """Exceptions of failures; OSError: the connection was refused, timed out, or its host name was not resolved."""
        # pre-ping: a restarted PostgreSQL then costs one round trip, not a failed rollout
        try:
            self._engine = create_async_engine(self._url, pool_pre_ping=not self._sqlite, pool_timeout=_BUSY_S)
        except ModuleNotFoundError as error:
            raise ValueError(f"{error.name} is not installed; install sandbox-server[postgres]") from None
        if self._sqlite:
            self._apart = create_engine(self._url.set(drivername="sqlite"), pool_timeout=_BUSY_S)
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="sql")
            for engine in (self._engine.sync_engine, self._apart):
                event.listen(engine, "connect", _prepare_sqlite)
                event.listen(engine, "begin", _begin_sqlite)
                event.listen(engine, "handle_error", _drop_read_only)
        else:
            driver = importlib.import_module("asyncpg")
            # also the driver's exceptions: while a new connection is prepared, SQLAlchemy does not translate them yet
            self._raised += (driver.PostgresError, driver.InterfaceError, driver.InternalClientError)
            event.listen(self._engine.sync_engine, "connect", _prepare_postgresql)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """A connection for queries; each query sees what was committed before it."""
        with self._faults():
            async with self._engine.connect() as connection:
                if not self._sqlite:
                    # saves the round trips of BEGIN and ROLLBACK
                    await connection.execution_options(isolation_level="AUTOCOMMIT")
                yield connection

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[AsyncConnection]:
        """A transaction: committed at the end of the block, rolled back if the block raises."""
        if not self._sqlite:
            with self._noted():
                async with self._engine.begin() as connection:
                    yield connection
            return
        async with self._writer:
            with self._noted():
                async with self._engine.connect() as connection:
                    await connection.execution_options(writes=True)
                    async with connection.begin():
                        yield connection

    async def read(self, query: Callable[[Connection], T]) -> T:
        """The result of `query`, run as in `reading` but in a single turn of a thread."""
        if self._sqlite:
            return await self._on_thread(self._read_now, query)
        async with self.reading() as connection:
            return await connection.run_sync(query)

    async def write(self, work: Callable[[Connection], T]) -> T:
        """The result of `work`, run in a transaction as in `writing` but in a single turn of a thread.

        Once SQLite has begun the transaction, cancelling the caller does not stop it, and the next writer of this
        process waits for its end: the next writer would otherwise wait on a thread, and readers need the threads.
        """
        if self._sqlite:
            await self._writer.acquire()
            try:
                begun = self._threads.submit(self._write_now, work)
            except BaseException:
                self._writer.release()
                raise
            writing = asyncio.wrap_future(begun)
            writing.add_done_callback(lambda _: self._writer.release())
            try:
                return await asyncio.shield(writing)
            except asyncio.CancelledError:
                begun.cancel()  # effective only if no thread has taken it yet
                raise
        async with self.writing() as connection:
            return await connection.run_sync(work)

    async def _on_thread(self, run: Callable[[Callable[[Connection], T]], T], work: Callable[[Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(run, work))

    def _read_now(self, query: Callable[[Connection], T]) -> T:
        with self._faults(), self._apart.connect() as connection:
            return query(connection)

    def _write_now(self, work: Callable[[Connection], T]) -> T:
        with self._noted(), self._apart.connect() as connection:
            connection.execution_options(writes=True)
            with connection.begin():
                return work(connection)

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """As `_faults`, for a transaction that writes: its outcome is noted for `ping`."""
        try:
            with self._faults():
                yield
        except CatalogueUnavailable:
            self._refused = True
            raise
        self._refused = False

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except self._raised as error:
            cause = error.orig if isinstance(error, DBAPIError) else error  # without the statement and its parameters
            where = self._url.render_as_string(hide_password=True)
            hint = "; is it running, and is SANDBOX_DATABASE_URL correct?" if isinstance(error, OSError) else ""
            if any(word in str(cause) for word in _FULL):
                hint = "; free space on its disk"
            raise CatalogueUnavailable(f"the database {where} failed: {cause}{hint}") from error

    @property
    def is_sqlite(self) -> bool:
        """SQLite, else PostgreSQL."""
        return self._sqlite

    def insert(self, table: type[Base]) -> "sqlite.Insert":
        """An INSERT with ON CONFLICT in this database's dialect (PostgreSQL's has the same methods)."""
        # imported by name: loading the unused dialect would cost every start 60 ms
        dialect = importlib.import_module(f"sqlalchemy.dialects.{self._engine.dialect.name}")
        return cast("sqlite.Insert", dialect.insert(table))

    def json(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        """A column of JSON text, which the database itself can query."""
        # SQLite has no JSON type: a cast would turn the text into a number
        return type_coerce(column, JSON) if self._sqlite else sql_cast(column, JSON)

    async def migrate(self) -> None:
        """Migrate the schema to this release. Safe for concurrent processes; nearly free if nothing has to be done.

        Raises:
            CatalogueUnavailable: no answer, or a newer release has migrated the database further.

        """
        if self._sqlite and self._url.database:
            await asyncio.to_thread(_begin_file, Path(self._url.database))
        async with self.reading() as connection:
            if await connection.run_sync(_revision) == REVISION:
                return
        migrations = importlib.import_module("sandbox_server.catalogue.migrations.upgrade")
        async with self.writing() as connection:  # on SQLite BEGIN IMMEDIATE is the lock
            if not self._sqlite:
                await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
            await connection.run_sync(migrations.upgrade)

    async def ping(self) -> None:
        """Raise CatalogueUnavailable unless the database answers, has the tables and takes writes.

        A write is tried only after one has failed: a file system that became read-only, a full disk, a PostgreSQL that
        is a replica by now.
        """
        if self._refused:
            await self.try_write()
        async with self.reading() as connection:
            await connection.execute(text("SELECT 1 FROM instances LIMIT 1"))

    async def try_write(self) -> None:
        """Raise CatalogueUnavailable unless the database takes a write, which changes nothing."""
        await self.write(lambda connection: connection.execute(text(_SAME)))

    async def dispose(self) -> None:
        """Close all connections."""
        if self._sqlite:
            await asyncio.to_thread(self._threads.shutdown)
            self._apart.dispose()
        await self._engine.dispose()


def _with_driver(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise ValueError("the database URL must read sqlite:///file or postgresql://user@host/name") from None
    match parsed.get_backend_name():
        case "sqlite" if parsed.database and parsed.database != ":memory:":
            return parsed.set(drivername="sqlite+aiosqlite")
        case "sqlite":
            raise ValueError("the SQLite URL names no file; write sqlite:////absolute/path or sqlite:///relative")
        case "postgresql" | "postgres":
            return parsed.set(drivername="postgresql+asyncpg")
        case other:
            raise ValueError(f"no support for {other} databases; use sqlite:///file or postgresql://...")


def _begin_file(path: Path) -> None:
    """Create the file for its user alone; SQLite gives its journal the same mode. Raises CatalogueUnavailable."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        how = "this user must be able to write there (SANDBOX_DATA_DIR, SANDBOX_DATABASE_URL)"
        raise CatalogueUnavailable(f"the database {path} cannot be opened: {error.strerror}; {how}") from error


def _prepare_sqlite(connection: Any, _record: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # the driver must not begin transactions itself; `_begin_sqlite` does
    cursor = connection.cursor()
    for pragma in (f"busy_timeout={int(_BUSY_S * 1000)}", "journal_mode=WAL", "synchronous=FULL"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _drop_read_only(context: ExceptionContext) -> None:
    """Close all connections if one cannot write: one opened while the file was read-only stays read-only for good."""
    if getattr(context.original_exception, "sqlite_errorname", "").startswith("SQLITE_READONLY"):
        context.is_disconnect = True


def _prepare_postgresql(connection: Any, _record: ConnectionPoolEntry) -> None:
    # not by `server_settings`, which PgBouncer refuses; on the driver's own connection, outside of a transaction
    # without JIT, which compiles for 300 ms before a count of 120,000 rows that itself takes 60 ms
    command = f"SET idle_in_transaction_session_timeout = {int(_IDLE_S * 1000)}; SET jit = off"
    connection.run_async(lambda driver: driver.execute(command))


def _begin_sqlite(connection: Connection) -> None:
    # IMMEDIATE: a transaction that reads first and then wants to write fails with "database is locked"
    if connection.get_execution_options().get("writes"):
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
