"""One Docker engine: its API calls on a bounded number of threads, and raw streams to containers and execs."""

import asyncio
import json
import re
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import urlsplit

import docker
import requests
from docker.utils import kwargs_from_env

from sandbox_server.errors import EngineUnavailable, ServiceError
from sandbox_server.sandbox.docker.answers import Client
from sandbox_server.sandbox.docker.breaker import Breaker
from sandbox_server.sandbox.docker.failure import stream_refused, translate

T = TypeVar("T")

_HEAD_LIMIT = 65536  # of a response's HTTP head; the daemon sends some 200 bytes
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])(?![0-9])")
_FAILURES = 5


def _look_at(future: asyncio.Future[Any]) -> None:
    """Retrieve the exception of a call that nobody waits for any more, so that asyncio does not log it."""
    if not future.cancelled():
        future.exception()


class _Silent(EngineUnavailable):
    """No answer at all."""


class Engine:
    """A connection to a Docker daemon, or to another engine that speaks its API.

    The SDK is synchronous, so its calls run on threads of our own: the loop's default pool is small and is
    shared with name resolution. Streams (attach, exec) never hold a thread: they are hijacked HTTP
    connections, opened here because the SDK may lose the bytes that arrive together with the answer's head.

    Raises:
        EngineUnavailable: the daemon cannot be reached.
    """

    product = "Docker"
    network = "bridge"
    """The network of containers that have a network."""
    _translate = staticmethod(translate)

    def __init__(
        self,
        url: str | None,
        *,
        timeout_s: float,
        threads: int = 32,
        failures: int = _FAILURES,
        fault: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`failures` unanswered calls in a row open the breaker; `fault(text)` is called when it opens and closes.

        Raises:
            EngineUnavailable: the daemon cannot be reached, or is not the `product`.
        """
        environment = kwargs_from_env()
        self.url = url or environment.get("base_url") or "unix:///var/run/docker.sock"
        self._tls: docker.tls.TLSConfig | None = environment.get("tls")
        self._timeout_s = timeout_s
        # use_ssh_client and version negotiation are left to the SDK
        try:
            self._api = Client(
                base_url=self.url,
                tls=self._tls or False,
                timeout=max(1, round(timeout_s)),
                max_pool_size=threads,
                version="auto",
            )
            parts: list[dict[str, Any]] = self._api.version().get("Components") or []
        except (docker.errors.DockerException, requests.exceptions.RequestException) as e:
            raise self._translate(e, self.url) from e
        found = "Podman" if any(part.get("Name") == "Podman Engine" for part in parts) else "Docker"
        if found != self.product:  # their error messages differ, so that an ended container would count as a fault
            self._api.close()
            raise EngineUnavailable(
                f"{self.url} is {found}, not {self.product}: set SANDBOX_ENGINE={found.lower()},"
                f" or let SANDBOX_DOCKER_URL name the socket of {self.product}"
            )
        if self.url.startswith("unix:"):  # no proxy is asked; looking for one in the environment costs each call
            self._api.trust_env = False
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="docker")
        self._breaker = Breaker(failures, fault)

    @property
    def local(self) -> bool:
        """The engine runs on this host."""
        return "unix" in urlsplit(self.url).scheme

    @property
    def fault(self) -> str:
        """What is wrong while the daemon does not answer; else ""."""
        return self._breaker.fault

    async def call(self, method: Callable[[docker.APIClient], T], *, timeout_s: float | None = None) -> T:
        """Run `method(api)` on a thread.

        Raises:
            EngineUnavailable: no answer within `timeout_s` (default: the engine's), or the daemon cannot be reached.
            SandboxLost, ImageUnavailable, SandboxDiskFull: according to the daemon's answer.
        """
        future = asyncio.get_running_loop().run_in_executor(self._pool, method, self._api)
        future.add_done_callback(_look_at)
        try:
            # not `wait_for`: that of Python 3.11 may swallow a cancellation
            async with asyncio.timeout(timeout_s or self._timeout_s + 5):
                answer = await asyncio.shield(future)
        except TimeoutError as e:
            detail = (
                f"the Docker daemon at {self.url} did not answer within {timeout_s or self._timeout_s:g} s;"
                " see `docker info` on the host"
            )
            if timeout_s is None:  # a call with its own limit (a pull, a commit) can be slow for other reasons too
                self._breaker.record_silence(detail)
            raise EngineUnavailable(detail) from e
        except Exception as e:
            error = self._translate(e, self.url)
            if isinstance(e, docker.errors.APIError):
                self._breaker.record_answer()
            elif isinstance(error, EngineUnavailable):
                self._breaker.record_silence(error.detail)
            raise error from e
        self._breaker.record_answer()
        return answer

    async def probe(self, *, timeout_s: float) -> None:
        """Check whether the daemon answers, without a thread: all threads may be held by unanswered calls.

        Raises:
            EngineUnavailable: no answer within `timeout_s`.
        """
        try:
            async with asyncio.timeout(timeout_s):
                sock, _ = await self._open("/_ping", None, "GET")
        except TimeoutError as e:
            raise EngineUnavailable(f"the Docker daemon at {self.url} did not answer within {timeout_s:g} s") from e
        sock.close()
        self._breaker.record_probe()

    async def hijack(
        self, path: str, body: dict[str, Any] | None = None, *, method: str = "POST"
    ) -> tuple[socket.socket, bytes]:
        """Send a request and take over its connection: (connected non-blocking socket, first bytes of the stream).

        Plain sockets (unix, tcp) only; for a TLS engine use an SSH or stunnel forward.
        """
        try:
            opened = await self._open(path, body, method)
        except _Silent as e:
            self._breaker.record_silence(e.detail)
            raise
        except ServiceError:
            self._breaker.record_answer()
            raise
        self._breaker.record_answer()
        return opened

    async def _open(self, path: str, body: dict[str, Any] | None, method: str) -> tuple[socket.socket, bytes]:
        loop = asyncio.get_running_loop()
        data = json.dumps(body).encode() if body is not None else b""
        request = (
            f"{method} /v{self._api.api_version}{path} HTTP/1.1\r\n"
            "Host: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        ).encode() + data
        sock: socket.socket | None = None
        try:
            async with asyncio.timeout(self._timeout_s):
                sock = await self._connect(loop)
                await loop.sock_sendall(sock, request)
                answer = b""
                while b"\r\n\r\n" not in answer:
                    chunk = await loop.sock_recv(sock, 4096)
                    if not chunk or len(answer) > _HEAD_LIMIT:
                        raise _Silent(f"the Docker daemon closed the stream {path.split('?')[0]}")
                    answer += chunk
        except (OSError, TimeoutError) as e:
            if sock is not None:
                sock.close()
            detail = f"the Docker daemon at {self.url} does not answer: {str(e) or 'timeout'}"
            raise _Silent(f"{detail}; see `docker info` on the host") from e
        except BaseException:
            if sock is not None:
                sock.close()
            raise
        head, _, rest = answer.partition(b"\r\n\r\n")
        said = _STATUS.match(head)
        if said is None:  # something else listens there, or a forward of the socket failed
            sock.close()
            raise _Silent(f"what answers at {self.url} is no Docker daemon: {head[:60]!r}; see SANDBOX_DOCKER_URL")
        status = int(said[1])
        if status not in (101, 200):
            with sock:
                reason = await self._reason(loop, sock, head, rest)
            raise self._translate(stream_refused(status, reason), self.url)
        return sock, rest

    async def _reason(self, loop: asyncio.AbstractEventLoop, sock: socket.socket, head: bytes, body: bytes) -> bytes:
        """Read the whole body of an error response: its text decides its meaning and may arrive after the head."""
        length = re.search(rb"(?i)content-length: *(\d+)", head)
        wanted = min(int(length[1]), _HEAD_LIMIT) if length else 0
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(self._timeout_s):
                while len(body) < wanted and (chunk := await loop.sock_recv(sock, 4096)):
                    body += chunk
        return body

    async def _connect(self, loop: asyncio.AbstractEventLoop) -> socket.socket:
        url = urlsplit(self.url)
        if self._tls or url.scheme not in ("unix", "http+unix", "tcp", "http"):
            raise EngineUnavailable(f"streams need a unix or plain tcp engine, not {self.url}; forward it to a socket")
        if "unix" in url.scheme:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            address: Any = url.path
        else:
            sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            address = (url.hostname, url.port or 2375)
        sock.setblocking(False)
        try:
            await loop.sock_connect(sock, address)
        except BaseException:
            sock.close()
            raise
        return sock

    def close(self) -> None:
        """Release the threads and connections; running calls end by their own timeouts."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._api.close()


async def follow(sock: socket.socket, protocol: asyncio.Protocol) -> None:
    """Have the event loop read a hijacked connection for `protocol`, which owns it from now on."""
    loop = asyncio.get_running_loop()
    # uvloop accepts a unix socket only here
    connect = loop.create_unix_connection if sock.family is socket.AF_UNIX else loop.create_connection
    await connect(lambda: protocol, sock=sock)
