"""Migrations, on each database: from nothing, from the first release, by several servers at once."""

import asyncio
import os
from dataclasses import asdict

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from sandbox_server.catalogue.database import Database
from sandbox_server.catalogue.history import History
from sandbox_server.catalogue.tables import REVISION, Base, SessionRow
from sandbox_server.errors import CatalogueUnavailable
from sandbox_server.records import SessionRecord
from tests.live import forking

MIGRATE = """
import asyncio, sys
from sandbox_server.catalogue.database import Database

async def main():
    database = Database(sys.argv[1])
    await database.migrate()
    await database.ping()
    await database.dispose()

asyncio.run(main())
"""


LATER = {
    "timings_s",
    "run",
    "owner",
    "traceparent",
    "parent",
    "forked_at",
    "undone",
    "restores",
    "notice",
    "differences",
    "egress_refused",
    "changes",
}
"""Columns that sessions of the first release did not have."""


async def test_migrations_give_the_tables_of_the_code(database: Database) -> None:
    """A column added to tables.py without a migration would break every server that is upgraded."""

    def told(_: object, name: str | None, kind: str, reflected: bool, __: object) -> bool:
        words = kind == "table" and str(name).startswith("action_words")  # FTS5 has tables of its own
        return not (reflected and (words or name in ("words", "ix_action_index_words")))

    def drift(connection: Connection) -> object:
        options = {"compare_type": True, "include_object": told}
        return compare_metadata(MigrationContext.configure(connection, opts=options), Base.metadata)

    async with database.reading() as connection:
        assert await connection.run_sync(drift) == []


def test_the_revision_of_the_code_is_the_newest_migration() -> None:
    """A server takes a database of this revision for migrated and does not even load alembic."""
    config = Config()
    config.set_main_option("script_location", "sandbox_server.catalogue:migrations")
    assert ScriptDirectory.from_config(config).get_heads() == [REVISION]


async def test_migrating_again_changes_nothing(database: Database) -> None:
    """Every restart migrates; a second run must not fail on existing tables."""
    await database.migrate()
    await database.ping()


async def test_a_database_of_the_first_release_is_brought_here(url: str) -> None:
    """Its sessions would be lost, or the server of an old data directory would not start."""
    database = Database(url)
    await database.migrate()
    config = Config()
    config.set_main_option("script_location", "sandbox_server.catalogue:migrations")

    def back(connection: Connection) -> None:
        config.attributes["connection"] = connection
        command.downgrade(config, "0001")

    async with database.writing() as connection:
        await connection.run_sync(back)
        columns = [column.name for column in SessionRow.__table__.columns if column.name not in LATER]
        kept = SessionRecord("7", "ended", "a__b-1", "n1", "c", 1.0, 2.0, 3.0)
        row = {name: value.encode() if name in ("cwd", "cause") else value for name, value in asdict(kept).items()}
        row["shell_token"] = ""  # a column that no record has any more
        names = ", ".join(columns)
        values = ", ".join(f":{name}" for name in columns)
        await connection.execute(text(f"INSERT INTO sessions ({names}) VALUES ({values})"), row)
    await database.migrate()
    assert await History(database).session("7") == kept
    await database.dispose()


async def test_several_servers_start_at_once(url: str) -> None:
    """Replicas that start together must not create the tables twice, nor fail because another one does."""
    starting = [asyncio.to_thread(forking.run, ["-c", MIGRATE, url], os.environ) for _ in range(4)]
    assert [(done.returncode, done.stderr) for done in await asyncio.gather(*starting)] == [(0, "")] * 4


async def test_a_database_of_a_newer_release_is_refused(database: Database) -> None:
    """An old server must not write into tables it does not know."""
    async with database.writing() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(CatalogueUnavailable, match="not of this release"):
        await database.migrate()


async def test_ping_needs_the_tables(url: str) -> None:
    """/readyz must not say ready for a database that holds nothing."""
    database = Database(url)
    if url.startswith("sqlite"):
        with pytest.raises(CatalogueUnavailable, match="unable to open"):
            await database.ping()
    else:
        with pytest.raises(CatalogueUnavailable, match="instances"):
            await database.ping()
    await database.dispose()
