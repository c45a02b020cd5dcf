"""What listens at the engine's address may be something else: a forward that failed, a proxy, an SSH server."""

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import docker.errors
import pytest
import requests
from urllib3.exceptions import ProtocolError

from sandbox_server.app.engine import engine_url
from sandbox_server.errors import EngineUnavailable
from sandbox_server.sandbox.docker.engine import Engine
from sandbox_server.sandbox.docker.failure import translate
from sandbox_server.sandbox.docker.runtime import DockerRuntime, RuntimeConfig
from sandbox_server.sandbox.podman.engine import PodmanEngine
from sandbox_server.settings import Settings
from tests.conformance.sandbox.specs import spec

DOCKER = b'{"ApiVersion": "1.41", "Components": [{"Name": "Engine", "Version": "20.10.24"}]}'
PODMAN = b'{"ApiVersion": "1.41", "Components": [{"Name": "Podman Engine", "Version": "4.3.1"}, {"Name": "Conmon"}]}'


@asynccontextmanager
async def answering(
    path: Path, answer: Callable[[], bytes], kind: type[Engine] = Engine, version: bytes = DOCKER
) -> AsyncIterator[Engine]:
    """An engine that tells its version, and answers each other request with `answer()`."""

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(version)
        writer.write(head + version if b"/version " in request else answer())
        await writer.drain()
        writer.close()

    async with await asyncio.start_unix_server(one, path):
        engine = await asyncio.to_thread(lambda: kind(f"unix://{path}", timeout_s=5))
        try:
            yield engine
        finally:
            engine.close()


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0-OpenSSH_9.2\r\n\r\n", b"\r\n\r\n", b"HTTP/1.1 \r\n\r\n", b"HTTP/1.1 many OK\r\n\r\n"]
)
async def test_another_protocol_is_no_answer(tmp_path: Path, answer: bytes) -> None:
    """The start of a session was a 500: its stream's status was taken out of whatever came."""
    async with answering(tmp_path / "engine.sock", lambda: answer) as engine:
        with pytest.raises(EngineUnavailable, match="no Docker daemon"):
            await engine.hijack("/containers/0/attach")
        with pytest.raises(EngineUnavailable):
            await engine.probe(timeout_s=5)


CALLS: dict[str, Callable[[DockerRuntime], Awaitable[object]]] = {
    "create": lambda runtime: runtime.create(spec()),
    "attach": lambda runtime: runtime.attach("0" * 64),
    "list": lambda runtime: runtime.list(),
    "connect": lambda runtime: runtime.connect("0" * 64, on=True),
    "facts": lambda runtime: runtime.facts(),
    "disk": lambda runtime: runtime.disk_usage(),
    "leftovers": lambda runtime: runtime.remove_leftovers(),
    "seen": lambda runtime: runtime.inspector.inspect("0" * 64),
    "changed_paths": lambda runtime: runtime.inspector.changed_paths("0" * 64),
    "image": lambda runtime: runtime.images.find("x"),
    "images": lambda runtime: runtime.images.all(),
    "stored": lambda runtime: runtime.images.stored(),
    "commit": lambda runtime: runtime.images.commit("0" * 64, "a:b", {}),
}
NOTHING_THERE = {
    "list": [b"[]"],
    "disk": [b"[]"],
    "images": [b"[]", b"[{}]"],
    "stored": [b"[]"],
    "changed_paths": [b"{}", b'{"State": null}'],
}
"""Call -> what a healthy engine may answer too."""


@pytest.mark.parametrize("body", [b"null", b"[]", b"{}", b"[null]", b"[{}]", b'{"State": null}', b'"no"', b"7"])
@pytest.mark.parametrize("call", CALLS)
async def test_an_answer_without_its_parts_is_a_broken_engine(tmp_path: Path, call: str, body: bytes) -> None:
    """An engine, or a proxy before it, that answered `null` with 200 made each request a 500, not to be sent again."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with answering(tmp_path / "engine.sock", lambda: head + body) as engine:
        runtime = DockerRuntime(engine, RuntimeConfig(node="n", fifos=tmp_path))
        try:
            await CALLS[call](runtime)
        except EngineUnavailable as error:
            assert error.retryable and "docker info" in error.detail
        else:
            assert body in NOTHING_THERE.get(call, ())


@pytest.mark.parametrize(("kind", "version", "found"), [(PodmanEngine, DOCKER, "docker"), (Engine, PODMAN, "podman")])
async def test_an_engine_of_the_other_product_is_refused(
    tmp_path: Path, kind: type[Engine], version: bytes, found: str
) -> None:
    """SANDBOX_ENGINE=podman worked on Docker: Podman's reading of its errors, and containers on no network of it."""
    with pytest.raises(EngineUnavailable, match=f"engine.sock is .*, not .*: set SANDBOX_ENGINE={found}, or let"):
        async with answering(tmp_path / "engine.sock", lambda: b"", kind, version):
            pass
    async with answering(tmp_path / "its.sock", lambda: b"", kind, PODMAN if version == DOCKER else DOCKER) as engine:
        assert engine.url == f"unix://{tmp_path}/its.sock"


def test_podmans_socket_is_looked_for_at_its_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SANDBOX_ENGINE=podman without a URL used Docker's socket, without a word."""
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert engine_url(Settings()) is None
    podman = Settings(engine="podman")
    assert engine_url(podman.model_copy(update={"docker_url": "unix:///own.sock"})) == "unix:///own.sock"
    with monkeypatch.context() as patched:
        patched.setattr(Path, "is_socket", lambda self: False)
        with pytest.raises(
            EngineUnavailable, match=r"no socket at .* or /run/podman/podman.sock: start Podman's service"
        ):
            engine_url(podman)
    (tmp_path / "podman").mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "podman" / "podman.sock"))
        assert engine_url(podman) == f"unix://{tmp_path}/podman/podman.sock"
    monkeypatch.setenv("DOCKER_HOST", "unix:///given.sock")
    assert engine_url(podman) is None


async def test_a_host_without_processes_is_not_the_containers_fault(tmp_path: Path) -> None:
    """A start was answered with sandbox_exhausted, as if a policy had filled the container that was not there yet."""
    body = b'{"message": "failed to start shim: fork/exec /usr/bin/containerd-shim: resource temporarily unavailable"}'
    head = b"HTTP/1.1 500 Internal\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with answering(tmp_path / "engine.sock", lambda: head + body) as engine:
        runtime = DockerRuntime(engine, RuntimeConfig(node="n"))
        with pytest.raises(EngineUnavailable, match=r"host starts no further process.*SANDBOX_PIDS"):
            await runtime.create(spec())


@pytest.mark.parametrize("later", range(6))
async def test_an_answer_swallows_no_cancellation(tmp_path: Path, later: int) -> None:
    """A limit that was over as the engine answered had no effect: a service that is never healthy was waited for."""
    async with answering(tmp_path / "engine.sock", lambda: b"") as engine:
        answers, asked = threading.Event(), threading.Event()

        def method(api: object) -> None:
            asked.set()
            answers.wait(20)

        call = asyncio.create_task(engine.call(method))
        await asyncio.to_thread(asked.wait, 20)
        answers.set()
        time.sleep(0.2)  # noqa: ASYNC251 - until the answer waits for the loop
        for _ in range(later):
            await asyncio.sleep(0)
        if call.cancel():
            with pytest.raises(asyncio.CancelledError):
                await call
        else:
            assert later > 1


def test_an_engine_that_does_not_run_says_so() -> None:
    """An operator would read the SDK's `ConnectionRefusedError(111, ...)` in two layers, and not what to do."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"tcp://127.0.0.1:{closed.getsockname()[1]}"
    with pytest.raises(EngineUnavailable, match=f"{url} does not answer: nothing listens there; start the engine"):
        Engine(url, timeout_s=5)


@pytest.mark.parametrize(
    ("cause", "told"),
    [
        (
            FileNotFoundError(2, "x"),
            "there is no such socket; start the engine, or name its socket by SANDBOX_DOCKER_URL",
        ),
        (PermissionError(13, "x"), "this user may not open its socket; add the user to the group docker"),
        (
            TimeoutError("timed out"),
            "('Connection aborted.', TimeoutError('timed out')); see `docker info` on the host",
        ),
    ],
)
def test_a_socket_that_cannot_be_opened_says_why(cause: OSError, told: str) -> None:
    """Wrapped as the SDK wraps it: root may open every socket, and the SDK does not close one that fails."""
    aborted = requests.exceptions.ConnectionError(ProtocolError("Connection aborted.", cause))
    error = docker.errors.DockerException(str(aborted))
    error.__cause__, aborted.__context__ = aborted, error
    assert str(translate(error, "unix:///x")).startswith(f"the Docker daemon at unix:///x does not answer: {told}")
