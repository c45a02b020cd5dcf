"""One thread with its own event loop per process, which runs every request of the drop-in.

A fork copies the loop's file descriptors but not its thread. A child therefore makes its own loop, and never touches or
frees the parent's: closing that loop in the child would remove the parent's descriptors from the shared epoll set.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from sandbox_client import environment
from sandbox_client.client import SandboxClient
from sandbox_client.transport import Transport, parse_host

_T = TypeVar("_T")
_LAST_REQUESTS_S = 10.0  # at exit, time for a script's last postprocess that nobody awaited


class Background:
    """The thread, its loop, and the connections that belong to the loop."""

    def __init__(self) -> None:
        """Starts the thread."""
        # Not new_event_loop(): the trainer may have set uvloop's policy, and the fork handling here is not for uvloop.
        self._loop = asyncio.SelectorEventLoop()
        self._transports: dict[tuple[str, ...], Transport] = {}
        self._clients: dict[tuple[str, str | None, str | None], SandboxClient] = {}
        self._staying: Future[None] | None = None
        self._in_flight: set[Future[Any]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sandbox-client", daemon=True)
        self._thread.start()

    def submit(self, request: Coroutine[Any, Any, _T]) -> Future[_T]:
        """Start `request` at once; call it from any thread but the background one."""
        future = asyncio.run_coroutine_threadsafe(request, self._loop)
        self._in_flight.add(future)
        future.add_done_callback(self._in_flight.discard)
        return future

    def stay(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `work` until this process ends; only the first call has an effect."""
        if self._staying is None:
            self._staying = asyncio.run_coroutine_threadsafe(work(), self._loop)

    def transport(self, urls: list[str]) -> Transport:
        """The shared connections to these hosts; call it only on the background loop."""
        key = (environment.run(), *urls)
        if key not in self._transports:
            self._transports[key] = Transport([parse_host(url) for url in urls], run=key[0])
        return self._transports[key]

    def client(self, url: str, api_key: str | None, run: str | None) -> SandboxClient:
        """The shared typed client for these arguments. Call it only on the background loop; do not close it."""
        key = (url, api_key, run)
        if key not in self._clients:
            urls = [one.strip() for one in url.split(",") if one.strip()]
            self._clients[key] = SandboxClient(urls, api_key=api_key, run=run)
        return self._clients[key]

    def close(self) -> None:
        """Wait a limited time for running requests, then end the thread and close everything."""
        wait(list(self._in_flight), timeout=_LAST_REQUESTS_S)
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(_LAST_REQUESTS_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_LAST_REQUESTS_S)
        self._loop.close()

    async def _end(self) -> None:
        requests = asyncio.all_tasks() - {asyncio.current_task()}
        for request in requests:
            request.cancel()
        await asyncio.gather(*requests, return_exceptions=True)
        for transport in self._transports.values():
            await transport.aclose()
        for client in self._clients.values():
            await client.aclose()


class _PerProcess:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.current: Background | None = None


_state = _PerProcess()
_inherited: list[Background | None] = []  # never freed: see above


def background() -> Background:
    """The background of this process, created at the first use."""
    with _state.lock:
        if _state.current is None:
            _state.current = Background()
        return _state.current


def close_background() -> None:
    """End this process's background; the next request creates a new one."""
    with _state.lock:
        current, _state.current = _state.current, None
    if current is not None:
        current.close()


def _after_fork() -> None:
    _inherited.append(_state.current)
    _state.current = None
    _state.lock = threading.Lock()  # the parent may have held the old one


os.register_at_fork(after_in_child=_after_fork)
atexit.register(close_background)
