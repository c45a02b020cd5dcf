"""The host's repository mirrors, for verbs that read repositories."""

import importlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sandbox_server import telemetry
from sandbox_server.catalogue.repositories import Mirrors
from sandbox_server.cli import configuration


@asynccontextmanager
async def opened() -> AsyncIterator[Mirrors]:
    """Open the mirrors of the settings; their log goes to stderr, apart from the verb's output."""
    settings = configuration.load()
    telemetry.configure_logging(settings.log_level, settings.log_format)
    # only verbs that fetch need the server's parts
    workspaces = importlib.import_module("sandbox_server.app.workspaces")
    async with workspaces.open_mirrors(settings) as mirrors:
        yield mirrors
