"""Loads settings and the database for the verbs; a wrong setting ends the command with one line."""

import os
from typing import TYPE_CHECKING

from pydantic import ValidationError

from sandbox_server import settings
from sandbox_server.catalogue.database import Database

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


def load() -> settings.Settings:
    """The current settings; exits with code 1 if one is invalid, or if SANDBOX_ENV_FILE cannot be read."""
    if (file := os.environ.get("SANDBOX_ENV_FILE")) and not os.access(file, os.R_OK):
        raise SystemExit(f"error: SANDBOX_ENV_FILE: {file} cannot be read; correct the path, or unset it")
    try:
        return settings.load()
    except ValidationError as error:
        raise SystemExit("\n".join(f"error: {_told(fault)}" for fault in error.errors())) from None


def without_effect() -> list[str]:
    """A sentence for each environment variable that is no setting any more."""
    return [f"{name} has no effect any more: {why}" for name, why in settings.REMOVED.items() if name in os.environ]


def _told(fault: "ErrorDetails") -> str:
    said = fault["msg"].removeprefix("Value error, ")
    if not fault["loc"]:  # several settings together, which the text names
        return said
    return f"SANDBOX_{'_'.join(map(str, fault['loc'])).upper()}: {said}"


def database() -> Database:
    """The database in the settings, not yet migrated; exits as `load` does."""
    try:
        return Database(load().database)
    except ValueError as error:
        raise SystemExit(f"error: SANDBOX_DATABASE_URL: {error}") from None
