"""`sandbox-server images ...`: images that sessions start from, made ahead and cleared away."""

import asyncio
import os
import time

import typer

from sandbox_server.app.build import open_catalogue, open_runtime, workspaces_of
from sandbox_server.catalogue.instances import Instances
from sandbox_server.cli import configuration
from sandbox_server.errors import ServiceError
from sandbox_server.sessions.workspace import REPOSITORY

app = typer.Typer(no_args_is_help=True)

_ALL = 1_000_000


@app.command("prepare")
def prepare(
    ids: list[str] | None = typer.Argument(None, metavar="[ID...]"),  # noqa: B008 -- typer reads it
) -> None:
    """Prepare the images of these instances, or of all: a first start then costs no more than any other."""
    if failed := asyncio.run(_prepare(ids or [])):
        raise SystemExit(f"error: {failed} images could not be prepared")


@app.command("prune")
def prune() -> None:
    """Remove prepared images that no container uses; they are made again when they are needed."""
    removed, kept = asyncio.run(_prune())
    typer.echo(f"{removed} prepared images removed, {kept} in use")


async def _prepare(ids: list[str]) -> int:
    settings = configuration.load()
    failed = 0
    async with (
        open_catalogue(settings) as database,
        open_runtime(settings, guest=f"prepare-{os.getpid()}") as runtime,
    ):
        instances = Instances(database)
        workspaces = workspaces_of(settings, runtime)
        for instance_id in ids or [summary.instance_id for summary in await instances.list(limit=_ALL)]:
            began = time.monotonic()
            try:
                prepared = await workspaces.prepared(await instances.by_id(instance_id))
            except ServiceError as e:
                failed += 1
                typer.echo(f"{instance_id}: {e.detail}", err=True)
                continue
            typer.echo(f"{instance_id}: {prepared.image} ({time.monotonic() - began:.1f} s)")
    return failed


async def _prune() -> tuple[int, int]:
    async with open_runtime(configuration.load()) as runtime:
        return await runtime.remove_images(REPOSITORY)
