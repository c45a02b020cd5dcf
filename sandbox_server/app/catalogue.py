"""The SQL database of the service."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sandbox_server.catalogue.database import Database
from sandbox_server.settings import Settings


@asynccontextmanager
async def open_catalogue(settings: Settings) -> AsyncIterator[Database]:
    """The database, migrated."""
    database = Database(settings.database)
    await database.migrate()
    try:
        yield database
    finally:
        await database.dispose()
