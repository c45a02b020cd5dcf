"""`sandbox-server gc`: remove what a permanently stopped server left on this host."""

import asyncio
import time
from contextlib import suppress
from typing import Annotated

import typer

from sandbox_server.app.engine import open_runtime
from sandbox_server.app.server_lock import only_server
from sandbox_server.cli import configuration
from sandbox_server.errors import ServiceError
from sandbox_server.sandbox.base import Runtime
from sandbox_server.state.embedded import end_orphan

app = typer.Typer()

_LOOK_S = 0.5


@app.command(epilog="Example: sandbox-server gc")
def gc(
    wait_s: Annotated[
        float, typer.Option("--wait", min=0, help="Seconds to wait for the engine to finish removing them.")
    ] = 240.0,
) -> None:
    """Remove this node's containers and end its embedded Redis. Does nothing while its server runs, which has a reaper.

    Sessions that were live are lost; patches and verdicts stay in SQL.
    """
    settings = configuration.load()

    async def remove() -> tuple[int, list[str]]:
        async with open_runtime(settings) as runtime:
            return await remove_all(runtime, wait_s=wait_s)

    with only_server(settings.data_dir):
        found, left = asyncio.run(remove())
        ended = end_orphan(settings.data_dir)
    typer.echo(f"{found - len(left)} containers removed; embedded Redis {'ended' if ended else 'was not running'}")
    if left:
        typer.echo(
            f"the engine was still removing {len(left)} after {wait_s:g} s: {', '.join(left)}; see `docker ps -a`, and"
            " run `sandbox-server gc` again if they stay",
            err=True,
        )
        raise typer.Exit(1)


async def remove_all(runtime: Runtime, *, wait_s: float) -> tuple[int, list[str]]:
    """Remove all containers of the node; returns their number, and the short ids of those that are still there.

    An engine needs minutes to remove a layer of many gigabytes. Meanwhile it answers a second request at once, so an
    answer does not mean that the container is gone.

    Raises:
        EngineUnavailable: the engine does not answer.

    """
    end = time.monotonic() + wait_s
    found = {container.container_id for container in await runtime.list()}
    await asyncio.gather(*(_remove(runtime, container_id) for container_id in found))
    while left := found & {container.container_id for container in await runtime.list()}:
        if time.monotonic() >= end:
            break
        await asyncio.sleep(_LOOK_S)
    await runtime.remove_leftovers()
    return len(found), sorted(container_id[:12] for container_id in left)


async def _remove(runtime: Runtime, container_id: str) -> None:
    with suppress(ServiceError):  # the list read afterwards shows whether the engine has removed it all the same
        await runtime.remove(container_id)
