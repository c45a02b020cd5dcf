"""`sandbox-server gc`: remove what a permanently stopped server left on this host."""

import asyncio

import typer

from sandbox_server.app.engine import open_runtime
from sandbox_server.app.server_lock import only_server
from sandbox_server.cli import configuration
from sandbox_server.settings import Settings
from sandbox_server.state.embedded import end_orphan

app = typer.Typer()


@app.command(epilog="Example: sandbox-server gc")
def gc() -> None:
    """Remove this node's containers and end its embedded Redis. Does nothing while its server runs, which has a reaper.

    Sessions that were live are lost; patches and verdicts stay in SQL.
    """
    settings = configuration.load()
    with only_server(settings.data_dir):
        removed = asyncio.run(_remove(settings))
        ended = end_orphan(settings.data_dir)
    typer.echo(f"{removed} containers removed; embedded Redis {'ended' if ended else 'was not running'}")


async def _remove(settings: Settings) -> int:
    async with open_runtime(settings) as runtime:
        found = await runtime.list()
        await asyncio.gather(*(runtime.remove(container.container_id) for container in found))
        await runtime.remove_leftovers()
        return len(found)
