"""A temporary server for a `with` block: free port, temporary data, everything removed at the end."""

import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

_READY_TIMEOUT_S = 240.0  # for a busy host; a server that fails ends the wait by its exit
_STOP_TIMEOUT_S = 60.0
_COMMAND = (sys.executable, "-m", "sandbox_server.cli")


class LocalServerFailed(RuntimeError):
    """The server did not become ready, or left containers behind; the message has the end of its log."""


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A running server."""

    url: str
    node_id: str
    pid: int
    log: Path

    def containers(self) -> list[str]:
        """Ids of the containers with this server's node label, running or not."""
        listing = ["docker", "ps", "-aq", "--filter", f"label=sandbox.node={self.node_id}"]
        return subprocess.run(listing, capture_output=True, text=True, check=True, timeout=30).stdout.split()


@contextmanager
def local_server(
    instances: Path, settings: Mapping[str, str] | None = None, *, import_options: Sequence[str] = ()
) -> Iterator[LocalServer]:
    """Import the rows of `instances`, serve them on a free loopback port, and stop at the end of the block.

    `import_options`: options of `instances import`. `settings`: SANDBOX_* variables; those of the caller's environment
    do not reach the server. It has its own Redis and SQL database.

    Raises:
        LocalServerFailed: it exited, was not ready within 240 s, or left containers behind.

    """
    with (
        tempfile.TemporaryDirectory(prefix="sandbox-server-") as folder,
        socket.create_server(("127.0.0.1", 0)) as free,
    ):
        port = free.getsockname()[1]
        free.close()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SANDBOX_")}
        environment |= {
            "SANDBOX_HOST": "127.0.0.1",
            "SANDBOX_PORT": str(port),
            "SANDBOX_DATA_DIR": folder,
            "SANDBOX_NODE_ID": f"local-{secrets.token_hex(4)}",
            **(settings or {}),
        }
        log = Path(folder, "server.log")
        _run("instances", "import", str(instances), *import_options, environment=environment)
        with log.open("wb") as stream:
            process = subprocess.Popen([*_COMMAND, "serve"], env=environment, stdout=stream, stderr=stream)
        server = LocalServer(f"http://127.0.0.1:{port}", environment["SANDBOX_NODE_ID"], process.pid, log)
        try:
            _wait_until_ready(server, process)
            yield server
        finally:
            _stop(process)
            # removes what is meant to survive a server: its embedded Redis, containers of unfinished sessions
            _run("gc", environment=environment)
        if left := server.containers():
            raise LocalServerFailed(f"{len(left)} containers outlived the server: {', '.join(left)}")


def _run(*verb: str, environment: Mapping[str, str]) -> None:
    done = subprocess.run([*_COMMAND, *verb], env=environment, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise LocalServerFailed(f"sandbox-server {' '.join(verb)}: {(done.stderr or done.stdout)[-2000:]}")


def _wait_until_ready(server: LocalServer, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _READY_TIMEOUT_S
    answer = "no answer"
    while time.monotonic() < end and process.poll() is None:
        try:
            response = httpx.get(f"{server.url}/readyz", timeout=5.0)
        except httpx.TransportError:
            time.sleep(0.1)
            continue
        if response.is_success:
            return
        answer = response.text
        time.sleep(0.1)
    why = f"exited with {process.returncode}" if process.poll() is not None else f"is not ready: {answer}"
    raise LocalServerFailed(f"the server {why}\n{server.log.read_text(errors='replace')[-3000:]}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
