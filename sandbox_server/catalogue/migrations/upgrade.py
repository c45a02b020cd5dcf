"""Runs alembic. Apart from `database`, which loads this only when there is something to migrate: it takes 0.12 s."""

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Connection

from sandbox_server.errors import CatalogueUnavailable


def upgrade(connection: Connection) -> None:
    """Bring the schema to the newest revision, within the connection's transaction.

    Raises:
        CatalogueUnavailable: a newer release has migrated the database further.

    """
    config = Config()
    config.set_main_option("script_location", "sandbox_server.catalogue:migrations")
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        raise CatalogueUnavailable(
            f"the database's schema is not of this release ({error}); start the release that migrated it"
        ) from error
