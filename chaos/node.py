"""One host of the fleet: a server process and its engine."""

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from chaos.engine import Engine, Listed
from chaos.processes import Process, run, until

_CLI = (sys.executable, "-m", "sandbox_server.cli")
_READY_S = 90.0
_ROOT = Path(__file__).resolve().parent.parent


def server_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Our environment without the caller's SANDBOX_*, plus `settings`; imports this tree's code, not installed code."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SANDBOX_")}
    return clean | {"PYTHONPATH": os.pathsep.join((str(_ROOT), str(_ROOT / "client")))} | dict(settings)


class Node:
    """A server that can be killed and restarted; which engine it has decides what faults can do to that."""

    def __init__(
        self,
        name: str,
        engine: Engine,
        folder: Path,
        logs: Path,
        at: tuple[str, int],
        settings: Mapping[str, str],
        enter: Sequence[str] = (),
    ) -> None:
        """`at`: its address. `enter`: command prefix that runs it on another host."""
        self.name = name
        self.engine = engine
        self.at = at
        self.url = f"http://{at[0]}:{at[1]}"
        self.data = folder / name
        self.data.mkdir()
        own = {
            "SANDBOX_HOST": at[0],
            "SANDBOX_PORT": str(at[1]),
            # its address is reachable only from this machine
            "SANDBOX_ALLOW_INSECURE": "1",
            "SANDBOX_NODE_ID": name,
            "SANDBOX_NODE_URL": self.url,
            "SANDBOX_DATA_DIR": str(self.data),
            "SANDBOX_LOG_FORMAT": "json",
            "SANDBOX_PULL": "never",
            "SANDBOX_CONFIRM": "off",
            **({"SANDBOX_DOCKER_URL": engine.url} if engine.url else {}),
        }
        self.server = Process(
            f"server {name}",
            [*enter, *_CLI, "serve"],
            logs / f"{name}.log",
            environment=server_environment({**settings, **own}),
        )

    def start(self) -> None:
        """Start the server and wait until it is ready."""
        self.server.start()
        until(self.ready, _READY_S, f"{self.name} is ready", part=self.server)

    def ready(self) -> bool:
        """Whether /readyz says so."""
        try:
            return httpx.get(f"{self.url}/readyz", timeout=5).is_success
        except httpx.TransportError:
            return False

    def listens(self) -> bool:
        """Whether the process answers at all."""
        try:
            return httpx.get(f"{self.url}/healthz", timeout=2).is_success
        except httpx.TransportError:
            return False

    def get(self, path: str) -> Any:
        """The node's own response to a GET."""
        return httpx.get(self.url + path, timeout=30).raise_for_status().json()

    def containers(self, *filters: str) -> list[Listed]:
        """Containers on its engine with its label."""
        return self.engine.containers(self.name, *filters)

    def without_owner(self) -> list[Listed]:
        """Containers that neither a live session nor the pool owns; a container being created may be among them."""
        listed = self.containers()
        # asked after the listing, so that containers created meanwhile are not reported
        parked = {sid for bucket in self.get("/v1/pool")["buckets"] for sid in bucket["sids"]}
        live = {session["sid"] for session in self.get("/v1/sessions?state=live&limit=1000")}
        return [one for one in listed if not (one.role == "session" and one.sid in parked | live)]

    def import_rows(self, rows: Path) -> None:
        """Import rows into the shared catalogue."""
        environment = [f"{name}={value}" for name, value in (self.server.environment or {}).items()]
        run("env", "-i", *environment, *_CLI, "instances", "import", rows)

    def close(self) -> None:
        """End the server, and remove its containers if the engine outlives the run."""
        self.server.end(signal.SIGTERM)
        if self.engine.url is None and (left := [one.container for one in self.containers()]):
            self.engine.docker("rm", "-f", *left)
