"""`sandbox-server drain`: take a node out of service without losing anything."""

import time

import typer

from sandbox_server.cli import api, configuration
from sandbox_server.errors import ServiceError

app = typer.Typer()

_LOOK_EVERY_S = 1.0


class NotDrained(ServiceError):
    """The node still has work when the time is up; it continues to drain."""

    code = "not_drained"


@app.command(epilog="Example: sandbox-server drain --node sandbox-2")
def drain(
    node: str = typer.Option("", help="Node to drain; default: this server's (SANDBOX_NODE_ID)."),
    timeout_s: float = typer.Option(15_000.0, min=0, help="Maximum wait; every session ends by SANDBOX_SESSION_MAX_S."),
    undo: bool = typer.Option(False, "--undo", help="Take new sessions again."),
) -> None:
    """Finish live sessions, take nothing new, end the server; return when it has ended."""
    name = node or configuration.load().node_id
    path = f"/v1/nodes/{name}/drain"
    if undo:
        api.call("DELETE", path)
        typer.echo(f"{name} takes sessions again")
        return
    api.call("POST", path)
    ends = time.monotonic() + timeout_s
    printed = ""
    while (left := _left(name)) is not None:
        if left != printed:
            typer.echo(f"{name}: {left}")
            printed = left
        if time.monotonic() > ends:
            raise NotDrained(f"{name} has {left} after {timeout_s:g} s; it continues to drain; `drain --undo` stops it")
        time.sleep(_LOOK_EVERY_S)
    typer.echo(f"{name} is drained")


def _left(name: str) -> str | None:
    """The node's remaining work; None: it is gone, because this server or the other nodes do not list it."""
    try:
        found = next((node for node in api.call("GET", "/v1/nodes") if node["node"] == name), None)
    except api.NoServer:
        return None
    return found and f"{found['used']} sessions, {found['gradings']} gradings"
