"""`sandbox-server serve`: listen, with the limits that a thousand simultaneous rollouts need."""

import contextlib
import gc
import os
import resource
import socket
import sys

import typer
import uvicorn

from sandbox_server.app import Build, create_app
from sandbox_server.app.access import is_loopback
from sandbox_server.app.build import build
from sandbox_server.app.data_folder import UMASK
from sandbox_server.cli import configuration
from sandbox_server.settings import Settings
from sandbox_server.telemetry import configure_logging, logger

log = logger(__name__)
app = typer.Typer()

_BACKLOG = 4096
"""Connections the kernel may hold for us: trainers open one a call, a thousand at once."""
_STARTUP_FAILURE = 3
"""uvicorn's own, also when the address is taken."""
_GRACE_S = 10
"""For requests under way at SIGTERM; orchestrators kill after some 30 s."""


class _Server(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        # what stands now stays: a full collection that walks it stops the loop for 80 ms (measured), and finds nothing
        gc.freeze()


@app.callback(invoke_without_command=True)
def serve(
    host: str | None = typer.Option(None, help="Address to listen on; over SANDBOX_HOST."),
    port: int | None = typer.Option(None, min=0, max=65535, help="Port to listen on; over SANDBOX_PORT."),
) -> None:
    """Serve until SIGTERM or SIGINT; docs/settings.md lists the settings."""
    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    run(configuration.load().model_copy(update=given), build)


def run(settings: Settings, build: Build) -> None:
    """Serve until SIGTERM or SIGINT.

    Exits with status 2 when it would be open to other machines without keys, 3 when the address is taken or a part
    does not open.
    """
    configure_logging(settings.log_level, settings.log_format)
    os.umask(UMASK)  # of all that this server writes
    if not (settings.api_keys or settings.allow_insecure or is_loopback(settings.host)):
        sys.stderr.write(
            f"{settings.host} is reachable from other machines, and whoever reaches this server can run code in its "
            "containers. Set SANDBOX_API_KEYS, or listen on 127.0.0.1, or, if something else guards the port, set "
            "SANDBOX_ALLOW_INSECURE=1.\n"
        )
        raise SystemExit(2)
    config = uvicorn.Config(
        "",  # the application follows, once its own port is known
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="on",
        access_log=False,
        server_header=False,  # an answer of a box's port has its own
        proxy_headers=False,  # nothing here asks who the client is
        log_config=None,  # its warnings and errors reach stderr; its chatter would break JSON lines
        log_level=settings.log_level,
        backlog=_BACKLOG,
        timeout_keep_alive=round(settings.keep_alive_s),  # longer than clients keep one, or they write as we close
        timeout_graceful_shutdown=_GRACE_S,
    )
    # the usual soft limit of 1,024 is less than a thousand clients and the streams of their sandboxes
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # bound before the parts are opened: a second server by mistake must not touch the first one's sessions
    listener = config.bind_socket()
    # uvicorn opens it for children; one that outlives a killed server for a moment would keep its address taken
    listener.set_inheritable(False)
    settings = settings.model_copy(update={"port": listener.getsockname()[1]})  # which is told to other nodes
    config.app = app = create_app(settings, build)
    with listener:
        log.info("starting", host=settings.host, port=settings.port, node=settings.node_id)
        server = _Server(config)
        app.state.stop = lambda: setattr(server, "should_exit", True)  # in order, and with status 0
        gc.collect()  # what the imports left behind, before it is kept for good
        with contextlib.suppress(KeyboardInterrupt):  # raised again by uvicorn after its orderly end
            server.run(sockets=[listener])
    if not server.started:
        raise SystemExit(_STARTUP_FAILURE)
