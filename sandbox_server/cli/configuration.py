"""Settings and the database for every verb that needs them; a wrong setting ends the command with one line."""

from pydantic import ValidationError

from sandbox_server import settings
from sandbox_server.catalogue.database import Database


def load() -> settings.Settings:
    """The settings in force; ends the process with exit code 1 when one of them is wrong."""
    try:
        return settings.load()
    except ValidationError as error:
        faults = [f"SANDBOX_{'_'.join(map(str, fault['loc'])).upper()}: {fault['msg']}" for fault in error.errors()]
        raise SystemExit("\n".join(f"error: {fault}" for fault in faults)) from None


def database() -> Database:
    """The database that the settings name, not yet migrated; ends the process as `load` does."""
    try:
        return Database(load().database)
    except ValueError as error:
        raise SystemExit(f"error: SANDBOX_DATABASE_URL: {error}") from None
