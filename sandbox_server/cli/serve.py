"""`sandbox-server serve`: listen, with limits for a thousand simultaneous rollouts."""

import asyncio
import contextlib
import ctypes
import gc
import logging
import math
import os
import resource
import socket
import sys
import threading
from collections.abc import AsyncIterator
from types import AsyncGeneratorType, FrameType

import typer
import uvicorn
from starlette.datastructures import State

from sandbox_server.app import Build, Parts, create_app
from sandbox_server.app.access import is_loopback
from sandbox_server.app.build import build
from sandbox_server.app.data_folder import UMASK
from sandbox_server.app.one_write import OneWriteProtocol
from sandbox_server.app.websocket_upgrades import Upgraded
from sandbox_server.cli import configuration
from sandbox_server.errors import ServiceError
from sandbox_server.settings import Settings
from sandbox_server.telemetry import configure_logging, logger

log = logger(__name__)
app = typer.Typer()

_BACKLOG = 4096
"""Connections that the kernel may queue: trainers open one per call, a thousand at once."""
_STARTUP_FAILURE = 3
"""uvicorn's exit status for a failed startup; also used if the address is taken."""
_TICK_S = 1.0
"""Interval between updates of the Date header."""
_MOST_NAMED = 20
"""Tasks and threads that are named when a server did not end in time."""
_M_MMAP_THRESHOLD, _MAPPED_BYTES = -3, 1 << 16
"""For glibc's mallopt: blocks of this size or more are mapped one by one, so that freed ones return to the system at
once. A body comes in pieces of 64 to 256 KB. Without this call glibc raises the threshold by itself, up to 32 MB."""
_NOT_IN_ORDER = 1
"""Exit status of a server that did not end within SANDBOX_STOP_S."""


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, state: State, *, stop_s: float) -> None:
        """`state`: the application's."""
        super().__init__(config)
        self._state = state
        self._stop_s = stop_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Begin an orderly stop with exit status 0."""
        self.should_exit = True
        if self._loop is not None:  # this may be a signal handler
            self._loop.call_soon_threadsafe(self._stopping.set)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self.stop()

    async def main_loop(self) -> None:
        self._loop = asyncio.get_running_loop()
        # uvicorn's own loop wakes ten times a second to check whether it should end, which costs 0.1 % of a core
        while not await self.on_tick(0):  # 0: it renews the Date header each time
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK_S):
                    await self._stopping.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._state.stopping = True
        # a thread, not a timer of the loop: after the loop's end the interpreter waits for threads that ask the engine
        end = threading.Timer(self._stop_s, _end_now, (self._stop_s, asyncio.get_running_loop()))
        end.daemon = True
        end.start()
        await super().shutdown(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        # a full collection would scan these long-lived objects, block the loop for 80 ms (measured) and free nothing
        gc.freeze()


class _Opening:
    """Opens the parts by `build`; if that fails for a known reason, such as a missing Docker, keeps the error."""

    def __init__(self, build: Build) -> None:
        self._build = build
        self.error: ServiceError | ValueError | None = None

    @contextlib.asynccontextmanager
    async def __call__(self, settings: Settings) -> AsyncIterator[Parts]:
        async with contextlib.AsyncExitStack() as stack:
            try:
                parts = await stack.enter_async_context(self._build(settings))
            except (ServiceError, ValueError) as error:
                self.error = error
                raise
            yield parts


@app.command(epilog="Example: sandbox-server serve --port 8000")
def serve(
    host: str | None = typer.Option(None, help="Address to listen on; overrides SANDBOX_HOST."),
    port: int | None = typer.Option(None, min=0, max=65535, help="Port to listen on; overrides SANDBOX_PORT."),
) -> None:
    """Serve until SIGTERM or SIGINT; docs/settings.md lists the settings."""
    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    run(configuration.load().model_copy(update=given), build)


def run(settings: Settings, build: Build) -> None:
    """Serve until SIGTERM or SIGINT.

    Exits with status 2 if it would be reachable from other machines without keys, 3 if the address is taken or a part
    fails to open.
    """
    configure_logging(settings.log_level, settings.log_format)
    os.umask(UMASK)  # for all files that this server writes
    return_memory()
    _refuse_open(settings)
    config = _config(settings)
    # the usual soft limit of 1,024 is too low for a thousand clients and the streams of their sandboxes
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    listener = _bound(config, settings)
    settings = settings.model_copy(update={"port": listener.getsockname()[1]})  # announced to other nodes
    opening = _Opening(build)
    try:
        config.app = app = create_app(settings, opening)
    except ValueError as error:
        raise SystemExit(f"error: {error}") from None
    if settings.log_level != "debug":  # uvicorn prints a stack of 250 lines, which hides the reason
        logging.getLogger("uvicorn.error").addFilter(lambda _: opening.error is None)
    with listener:
        log.info("starting", host=settings.host, port=settings.port, node=settings.node_id)
        for sentence in configuration.without_effect():
            log.warning(sentence)
        server = _Server(config, app.state, stop_s=settings.stop_s)
        app.state.stop = server.stop
        gc.collect()  # collect garbage of the imports before the freeze
        try:
            with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises it again after an orderly stop
                server.run(sockets=[listener])
        finally:  # uvicorn exits if the start failed
            if opening.error is not None:
                sys.stderr.write(
                    f"The server does not start: {opening.error}\n"
                    "`sandbox-server doctor` checks every part; SANDBOX_LOG_LEVEL=debug shows the stack.\n"
                )
    if not server.started:
        raise SystemExit(_STARTUP_FAILURE)


def return_memory() -> None:
    """Make the C library return a large body's memory to the system when the body is freed."""
    with contextlib.suppress(AttributeError):  # another library than glibc
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)


def _refuse_open(settings: Settings) -> None:
    """Exit with status 2 if other machines could reach the server although it has no keys."""
    if not (settings.api_keys or settings.allow_insecure or is_loopback(settings.host)):
        sys.stderr.write(
            f"{settings.host} is reachable from other machines, and whoever reaches this server can run code in its "
            "containers. Set SANDBOX_API_KEYS, or listen on 127.0.0.1, or, if something else guards the port, set "
            "SANDBOX_ALLOW_INSECURE=1.\n"
        )
        raise SystemExit(2)


def _config(settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        "",  # set once the port is known
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http=OneWriteProtocol,
        ws=Upgraded,
        ws_max_size=int(settings.max_body_mb * 2**20),
        ws_per_message_deflate=False,  # it costs CPU and memory for each connection
        lifespan="on",
        access_log=False,
        server_header=False,  # responses of a box's port have their own
        proxy_headers=False,  # nothing here uses the client's address
        log_config=None,  # uvicorn's warnings and errors go to stderr anyway; its other output would break JSON lines
        log_level=settings.log_level,
        backlog=_BACKLOG,
        # longer than clients keep a connection; otherwise a client writes while we close
        timeout_keep_alive=round(settings.keep_alive_s),
        timeout_graceful_shutdown=math.ceil(settings.stop_s / 2),
    )


def _bound(config: uvicorn.Config, settings: Settings) -> socket.socket:
    """The listening socket, bound before any part opens: a second server must not touch the first one's sessions."""
    try:
        listener = config.bind_socket()  # prints the system's error
    except SystemExit:
        sys.stderr.write(
            f"Nothing can listen on {settings.host}:{settings.port}: stop what holds the address, or choose another one"
            " with --host and --port.\n"
        )
        raise
    # uvicorn makes it inheritable; a child that outlives a killed server briefly would keep the address taken
    listener.set_inheritable(False)
    return listener


def _end_now(stop_s: float, loop: asyncio.AbstractEventLoop) -> None:
    """Log what the process waits for, and end it at once, as SIGKILL would; nothing acknowledged is lost."""
    tasks: list[str] = []
    with contextlib.suppress(RuntimeError):  # a task ended meanwhile
        tasks = [f"{task.get_name()}: {_waits_at(task)}" for task in asyncio.all_tasks(loop)]
    threads = [thread.name for thread in threading.enumerate() if not thread.daemon]
    log.error(
        "the server did not close everything within SANDBOX_STOP_S; the next server continues the work",
        after_s=stop_s,
        tasks=sorted(tasks)[:_MOST_NAMED],
        threads=sorted(threads)[:_MOST_NAMED],
    )
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(_NOT_IN_ORDER)


def _waits_at(task: asyncio.Task[object]) -> str:
    """The innermost line that the task waits in."""
    place = ""
    waiting: object = task.get_coro()
    while waiting is not None:
        if type(waiting).__name__ == "async_generator_asend":  # it has no attribute for its generator
            waiting = next((one for one in gc.get_referents(waiting) if isinstance(one, AsyncGeneratorType)), None)
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "ag_frame", None)
        if frame is None:
            break
        place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "ag_await", None)
    return place
