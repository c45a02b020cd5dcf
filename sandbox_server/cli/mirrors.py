"""Mirrors of this host, for verbs that read repositories."""

import importlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sandbox_server import telemetry
from sandbox_server.catalogue.repositories import Mirrors
from sandbox_server.cli import configuration


@asynccontextmanager
async def opened() -> AsyncIterator[Mirrors]:
    """As the settings say; what they log goes to stderr, beside what the verb prints."""
    settings = configuration.load()
    telemetry.configure_logging(settings.log_level, settings.log_format)
    # only a verb that does fetch needs what a server is made of
    workspaces = importlib.import_module("sandbox_server.app.workspaces")
    async with workspaces.open_mirrors(settings) as mirrors:
        yield mirrors
