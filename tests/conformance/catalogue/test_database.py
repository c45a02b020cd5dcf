"""Faults and concurrency, on each database."""

import asyncio
import os
import random
import signal
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, event, text

from sandbox_server.catalogue.database import Database
from sandbox_server.catalogue.tables import ReceiptRow
from sandbox_server.errors import CatalogueUnavailable
from tests.live import forking

from .conftest import asyncpg
from .test_migrations import MIGRATE


async def test_a_failed_transaction_leaves_nothing(database: Database) -> None:
    """An import that fails midway must leave no rows."""
    with pytest.raises(RuntimeError):
        async with database.writing() as connection:
            await connection.execute(database.insert(ReceiptRow).values(id="r", sid="1", created_at=1.0, body="{}"))
            raise RuntimeError
    async with database.reading() as connection:
        assert (await connection.execute(text("SELECT count(*) FROM receipts"))).scalar_one() == 0


async def test_sql_faults_come_out_as_ours(database: Database) -> None:
    """A caller branches on CatalogueUnavailable; a driver's own error would become a bare 500."""
    with pytest.raises(CatalogueUnavailable) as caught:
        async with database.writing() as connection:
            await connection.execute(text("SELECT secret FROM nowhere"))
    assert "SELECT" not in caught.value.detail  # a statement may carry a patch


async def test_writers_do_not_meet_a_locked_database(database: Database, url: str) -> None:
    """200 writers at once, in two processes' worth of connections; one `database is locked` would lose a verdict."""
    other = Database(url)

    async def write(number: int) -> None:
        target = database if number % 2 else other
        async with target.writing() as connection:
            await connection.execute(text("SELECT count(*) FROM receipts"))  # read first: the case that deadlocks
            await connection.execute(
                target.insert(ReceiptRow).values(id=str(number), sid="1", created_at=1.0, body="{}")
            )

    await asyncio.gather(*(write(number) for number in range(200)))
    async with database.reading() as connection:
        assert (await connection.execute(text("SELECT count(*) FROM receipts"))).scalar_one() == 200
    await other.dispose()


async def test_a_cancelled_writer_frees_the_database(database: Database) -> None:
    """A client that disconnects cancels its handler; the next writer must not wait for ever."""
    chance = random.Random(7)

    async def write(number: int) -> None:
        async with database.writing() as connection:
            await connection.execute(
                database.insert(ReceiptRow).values(id=str(number), sid="1", created_at=1.0, body="{}")
            )

    for number in range(30):
        task = asyncio.create_task(write(number))
        await asyncio.sleep(chance.random() * 0.004)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    async with asyncio.timeout(10):
        await write(1000)
    async with database.reading() as connection:
        assert (await connection.execute(text("SELECT count(*) FROM receipts WHERE id = '1000'"))).scalar_one() == 1


async def test_a_transaction_in_one_turn_is_whole_or_nothing(database: Database) -> None:
    """`write` and `read` are a second way to the database: what the first one promises holds there too."""

    def add(connection: Connection, number: int) -> int:
        row = {"id": str(number), "sid": "1", "created_at": 1.0, "body": "{}"}
        connection.execute(database.insert(ReceiptRow).values(row))
        if number < 0:
            raise RuntimeError
        return number

    def count(connection: Connection) -> int:
        return int(connection.execute(text("SELECT count(*) FROM receipts")).scalar_one())

    async def add_the_other_way(number: int) -> None:
        async with database.writing() as connection:
            await connection.run_sync(add, number)

    with pytest.raises(RuntimeError):
        await database.write(partial(add, number=-1))
    with pytest.raises(CatalogueUnavailable) as caught:
        await database.write(lambda connection: connection.execute(text("SELECT secret FROM nowhere")))
    assert "SELECT" not in caught.value.detail
    assert await database.read(count) == 0
    both = (*(database.write(partial(add, number=n)) for n in range(30)), *map(add_the_other_way, range(30, 60)))
    assert (await asyncio.gather(*both))[:30] == list(range(30))
    assert await database.read(count) == 60


async def test_a_cancelled_caller_does_not_keep_the_next_from_writing(database: Database) -> None:
    """The cancelled transaction goes on in its thread for a moment; the next one waits for it and does not fail."""
    began = threading.Event()

    def again(connection: Connection) -> None:
        connection.execute(text("UPDATE instances SET verified_at = 0"))

    def slowly(connection: Connection) -> None:
        again(connection)
        began.set()
        time.sleep(0.3)

    writing = asyncio.create_task(database.write(slowly))
    await asyncio.to_thread(began.wait, 20) if database.is_sqlite else await asyncio.sleep(0)
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    async with asyncio.timeout(20):
        await database.write(again)
        async with database.writing() as connection:
            await connection.run_sync(again)


async def test_cancelled_writers_keep_no_reader_waiting(database: Database) -> None:
    """Each would begin while the one before still goes on, and wait for it in a thread that readers need."""
    began, may_end = threading.Event(), threading.Event()

    def slowly(connection: Connection) -> None:
        connection.execute(text("UPDATE instances SET verified_at = 0"))
        began.set()
        may_end.wait(20)

    if not database.is_sqlite:
        return  # its writers have no threads
    try:
        for _ in range(6):
            writing = asyncio.create_task(database.write(slowly))
            await asyncio.to_thread(began.wait, 20)
            await asyncio.sleep(0.05)
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
        async with asyncio.timeout(5):
            assert await database.read(lambda connection: connection.execute(text("SELECT 1")).scalar_one()) == 1
    finally:
        may_end.set()


async def test_a_commit_survives_kill_9(url: str) -> None:
    """Acknowledged writes must survive a kill of the server immediately afterwards."""
    database = Database(url)
    await database.migrate()
    program = MIGRATE.replace(
        "await database.ping()",
        "\n    from sqlalchemy import text\n"
        "    async with database.writing() as connection:\n"
        "        await connection.execute(text(\"INSERT INTO receipts VALUES ('r', '1', 1.0, '{}')\"))\n"
        "    import os; os.kill(os.getpid(), 9)",
    )
    died = await asyncio.to_thread(forking.run, ["-c", program, url], os.environ)
    assert died.returncode == -signal.SIGKILL
    async with database.reading() as connection:
        assert (await connection.execute(text("SELECT count(*) FROM receipts"))).scalar_one() == 1
    await database.dispose()


async def test_sqlite_is_durable_and_lets_readers_on(tmp_path: Path) -> None:
    """Without WAL a reader blocks the writer; without FULL a power cut may lose an acknowledged verdict."""
    database = Database(f"sqlite:///{tmp_path / 'c.sqlite3'}")
    await database.migrate()
    async with database.writing() as writer:
        await writer.execute(text("INSERT INTO receipts VALUES ('r', '1', 1.0, '{}')"))
        async with database.reading() as reader:
            assert (await reader.execute(text("SELECT count(*) FROM receipts"))).scalar_one() == 0
            assert (await reader.execute(text("PRAGMA journal_mode"))).scalar_one() == "wal"
            assert (await reader.execute(text("PRAGMA synchronous"))).scalar_one() == 2
    await database.dispose()


async def test_sqlite_writes_again_once_its_file_can_be_written(tmp_path: Path) -> None:
    """Connections of the time when the disk was read-only stay so: nothing is stored until the server's restart."""
    database = Database(f"sqlite:///{tmp_path}/c.sqlite3")
    await database.migrate()

    async def write() -> None:
        async with database.writing() as connection:
            await connection.execute(text("DELETE FROM actions"))

    def opened_read_only(connection: Any, _: object) -> None:
        connection.execute("PRAGMA query_only = 1")  # the same error; root may write whatever a file's mode says

    ways = (write, lambda: database.write(lambda connection: connection.execute(text("DELETE FROM actions"))))
    engines = (database._engine.sync_engine, database._apart)
    await database._engine.dispose()
    database._apart.dispose()
    for engine in engines:
        event.listen(engine, "connect", opened_read_only)
    await database.ping()  # no write is tried as long as none has failed
    for way in ways:
        for asked in (way, database.ping, database.try_write):
            with pytest.raises(CatalogueUnavailable, match="readonly"):
                await asked()
    for engine in engines:
        event.remove(engine, "connect", opened_read_only)
    await database.ping()
    assert not database._refused, "a probe that succeeds is the last one"
    for way in ways:
        await way()
    await database.dispose()


async def test_a_postgresql_that_takes_no_writes_is_told(postgres: str) -> None:
    """After a failover to a replica /readyz said `sql: ok`, and no session could end."""
    administrator = await asyncpg.connect(f"{postgres}/postgres")
    await administrator.execute("CREATE DATABASE replica")
    database = Database(f"{postgres}/replica")

    async def turned(words: str) -> None:
        await administrator.execute(f"ALTER DATABASE replica {words}")
        await administrator.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'replica'")

    try:
        await database.migrate()
        await turned("SET default_transaction_read_only = on")
        for asked in (database.try_write, database.ping):
            with pytest.raises(CatalogueUnavailable, match="read-only"):
                await asked()
        await turned("RESET default_transaction_read_only")
        await database.ping()
    finally:
        await database.dispose()
        await administrator.execute("DROP DATABASE replica WITH (FORCE)")
        await administrator.close()


async def test_no_answer_is_a_catalogue_fault(postgres: str) -> None:
    """A refused connection and a missing database are both ours to mend, never the policy's."""
    for url in ("postgresql://tester@127.0.0.1:1/nothing", f"{postgres}/no_such_database"):
        database = Database(url)
        with pytest.raises(CatalogueUnavailable):
            await database.migrate()
        await database.dispose()


async def test_a_connection_that_postgresql_ends_at_once_is_a_catalogue_fault(postgres: str) -> None:
    """While PostgreSQL restarted, requests that opened a connection were 500s (the driver's own errors)."""
    database = Database(f"{postgres}/postgres")

    def end(connection: Any, _: object) -> None:
        async def ended(driver: Any) -> None:
            other = await asyncpg.connect(f"{postgres}/postgres")
            await other.execute("SELECT pg_terminate_backend($1, 5000)", driver.get_server_pid())
            await other.close()

        connection.run_async(ended)

    pool = database._engine.sync_engine  # the moment between the opening of a connection and its settings
    event.listen(pool, "connect", end, insert=True)
    try:
        for asked in (database.reading, database.writing):
            with pytest.raises(CatalogueUnavailable):
                async with asked():
                    pass
        event.remove(pool, "connect", end)
        async with database.reading() as connection:
            assert await connection.scalar(text("SHOW jit")) == "off"
            assert await connection.scalar(text("SHOW idle_in_transaction_session_timeout")) == "30s"
    finally:
        await database.dispose()


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("nonsense", "must read"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("mysql://root@localhost/x", "no support for mysql"),
    ],
)
def test_urls_that_cannot_work(url: str, why: str) -> None:
    """A wrong setting must be reported at start with an explanation."""
    with pytest.raises(ValueError, match=why):
        Database(url)


async def test_a_folder_that_cannot_be_written_names_its_setting(tmp_path: Path) -> None:
    """The first thing that fails for a server without rights; the error named only the file."""
    (tmp_path / "file").touch()
    with pytest.raises(CatalogueUnavailable, match="SANDBOX_DATA_DIR"):
        await Database(f"sqlite:///{tmp_path / 'file' / 'catalogue.sqlite3'}").migrate()


async def test_a_node_that_froze_in_a_transaction_does_not_keep_its_locks(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All other nodes wait for a lock of a stopped process for as long as it is stopped."""
    if url.startswith("sqlite"):
        pytest.skip("SQLite serves the processes of one host")
    monkeypatch.setattr("sandbox_server.catalogue.database._IDLE_S", 0.5)
    frozen, other = Database(url), Database(url)
    await frozen.migrate()
    lock = text("LOCK TABLE sessions IN ACCESS EXCLUSIVE MODE")
    with pytest.raises(CatalogueUnavailable):
        async with frozen.writing() as connection:
            await connection.execute(lock)
            async with asyncio.timeout(20), other.writing() as second:
                await second.execute(lock)
            await connection.execute(text("SELECT 1"))
    for database in (frozen, other):
        await database.dispose()
