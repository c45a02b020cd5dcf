"""A real server that tests can kill and restart, with the calls of a policy's client."""

import atexit
import contextlib
import functools
import json
import os
import secrets
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from docker import APIClient, from_env
from docker.errors import APIError

from sandbox_server.state.embedded import end_orphan

from .forking import Forked, forker, run

_MOST_S = 200.0
"""Below pytest's timeout of a test, because this error says more."""
_FIRST_PAUSE_S = 0.05
_LAST_PAUSE_S = 0.25
"""Longest pause between two checks of `until`: a check takes some milliseconds of CPU here, in the server and in the
engine."""
_LIMITS = httpx.Limits(max_connections=None, keepalive_expiry=2)  # shorter than a server keeps an idle connection
CATALOGUE = ".sqlite3"
SCRIPTED = "samples__scripted-1"
"""The sample `ledger` graded by one command: 0.3 s of CPU less than pytest in each grading. A server whose sessions are
all of such instances starts no process of the swebench library either, which takes 0.3 s."""
CALLED = "samples__called-1"
"""The sample `intervals` with the functions of its tests called without pytest."""
UNGRADED = "samples__ungraded-1"
"""The sample `ledger` without a grader: the end of its session reads the patch, and nothing is graded."""
UNREAD = "samples__unread-1"
"""The same as a code search: the end of its session makes no container at all."""
OCI_RUNTIME = os.environ.get("SANDBOX_TEST_RUNTIME")
"""The OCI runtime of the sandboxes, e.g. runsc; without it the engine's own."""


def bash(command: str) -> str:
    """An action of the default dialect."""
    return f"<function=execute_bash>\n<parameter=command>\n{command}\n</parameter>\n</function>"


def editor(**arguments: object) -> str:
    """An action of the default dialect."""
    lines = [f"<parameter={name}>{_plain(value)}</parameter>" for name, value in arguments.items()]
    return "\n".join(["<function=str_replace_editor>", *lines, "</function>"])


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def until(condition: Callable[[], object], seconds: float = 30.0, what: str = "") -> None:
    """Wait until `condition` is true; fail after ten times `seconds` (at least 60 s), as the machine may be busy."""
    end = time.monotonic() + min(max(10 * seconds, 60), _MOST_S)
    pause_s = _FIRST_PAUSE_S
    while not condition():
        assert time.monotonic() < end, f"not within ten times {seconds:g} s: {what or condition}"
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.2, _LAST_PAUSE_S)


def docker(*words: str) -> str:
    """Run the docker command; return its output."""
    done = subprocess.run(["docker", *words], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


def free_port() -> int:
    """A free port below the kernel's range for clients, so that it is still free after each `kill`."""
    while True:
        port = 10_000 + secrets.randbelow(20_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


@functools.cache
def engine() -> APIClient:
    """API client of the engine, for frequent calls: starting the docker command takes 30 ms of CPU."""
    client = from_env().api
    atexit.register(client.close)
    return client


@functools.cache
def imported(rows: Path) -> Path:
    """A catalogue of `rows`, to be copied: the one beside them, else a new one, which takes seconds of CPU."""
    if (beside := rows.with_suffix(CATALOGUE)).exists():
        return beside
    folder = Path(tempfile.mkdtemp(prefix="imported-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _cli(_clean() | {"SANDBOX_DATA_DIR": str(folder)}, "instances", "import", str(rows))
    assert sorted(path.name for path in folder.glob("catalogue*")) == ["catalogue.sqlite3"], "not at rest"
    return folder / "catalogue.sqlite3"


def _clean() -> dict[str, str]:
    """This process's environment without the service's settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SANDBOX_")}


def _cli(environment: Mapping[str, str], *verb: str, code: int = 0) -> str:
    done = run(verb, environment)
    assert done.returncode == code, (verb, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout


class Server:
    """One node with its data directory; it can be killed and started again."""

    def __init__(self, folder: Path, rows: Path, settings: Mapping[str, str]) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.node = f"live-{secrets.token_hex(4)}"
        self.folder = folder
        self.log = folder / "server.log"
        self.environment = _clean() | {
            "SANDBOX_HOST": "127.0.0.1",
            "SANDBOX_PORT": str(port),
            "SANDBOX_DATA_DIR": str(folder / "data"),
            "SANDBOX_NODE_ID": self.node,
            "SANDBOX_LOG_FORMAT": "json",
            "SANDBOX_PULL": "never",
            **({"SANDBOX_RUNTIME": OCI_RUNTIME} if OCI_RUNTIME else {}),
            "SANDBOX_CONFIRM": "off",  # not needed by these tests, and it takes seconds
            "SANDBOX_GRADE_CPU_SHARES": "1024",  # beside each process of the tests, a quarter of that would starve
            "SANDBOX_GRADE_AHEAD": "0",  # nor is a grading container where the patch turns out to be empty
            # nor are containers for the rest of a group, which would be three of four that a test makes
            **({} if any(name.startswith("SANDBOX_POOL_") for name in settings) else {"SANDBOX_POOL_SIZE": "0"}),
            **settings,
        }
        self._process: Forked | None = None
        self._http = httpx.Client(base_url=self.url, limits=_LIMITS)  # another one for each request doubles its CPU
        (folder / "data").mkdir(mode=0o700, exist_ok=True)
        shared = settings.get("SANDBOX_DATABASE_URL", "").removeprefix("sqlite:///")
        catalogue = Path(shared) if shared else folder / "data" / "catalogue.sqlite3"
        if not catalogue.exists():
            shutil.copy(imported(rows), catalogue)

    # ---- the process

    def start(self, words: Sequence[str] = ("serve",)) -> None:
        """Start it and wait until it is ready. `words`: see `forking`."""
        with self.log.open("ab") as stream:
            self._process = forker().start(words, self.environment, stream.fileno(), stream.fileno())
        until(self._ready, 240, "ready")

    def ensure_started(self) -> None:
        """Start it unless it runs."""
        if self._process is None:
            self.start()

    def _ready(self) -> bool:
        assert self._process is not None and self._process.poll() is None, self.log.read_text()[-3000:]
        with contextlib.suppress(httpx.TransportError):
            key = self.environment.get("SANDBOX_API_KEYS", "").rpartition(",")[2]
            return self._http.get("/readyz", timeout=5, headers={"X-API-Key": key} if key else {}).is_success
        return False

    def kill(self, sign: signal.Signals = signal.SIGKILL) -> None:
        """Send `sign` (default SIGKILL), whatever it is doing, and wait for its exit."""
        assert self._process is not None
        self._process.send_signal(sign)
        self._process.wait(60)
        self._process = None

    def tell(self, sign: signal.Signals) -> None:
        """Send a signal that does not end it."""
        assert self._process is not None
        self._process.send_signal(sign)

    def ended(self) -> int:
        """Wait until it ends by itself; return its exit status."""
        assert self._process is not None
        status = self._process.wait(60)
        self._process = None
        return status

    def restart(self, sign: signal.Signals = signal.SIGKILL) -> None:
        """As `kill`, then `start`."""
        self.kill(sign)
        self.start()

    def secrets_in_log(self) -> list[str]:
        """The keys among its settings that its log shows; a named key's entry is `name=key`."""
        entries = [
            self.environment.get(f"SANDBOX_{name}", "") for name in ("API_KEYS", "VIEW_KEYS", "DATABASE_PASSWORD")
        ]
        keys = [entry.strip().partition("=")[2] or entry.strip() for text in entries for entry in text.split(",")]
        log = self.log.read_text(errors="replace")
        return [key for key in keys if key and key in log]

    def close(self) -> None:
        """End it and remove its containers."""
        if self._process is not None:
            self.kill(signal.SIGTERM)
        # as `sandbox-server gc`, without starting Python
        until(self._cleared, what="its containers gone")
        for volume in engine().volumes(filters={"label": f"sandbox.node={self.node}"})["Volumes"] or ():
            engine().remove_volume(volume["Name"], force=True)
        for network in engine().networks(filters={"label": f"sandbox.node={self.node}"}):
            engine().remove_network(network["Id"])
        end_orphan(self.folder / "data")
        self._http.close()

    def _cleared(self) -> bool:
        for container in self.containers():
            with contextlib.suppress(APIError):  # already being removed
                engine().remove_container(container, force=True, v=True)
        return not self.containers()

    def cli(self, *verb: str, code: int = 0) -> str:
        """Run a subcommand; return its output."""
        return _cli(self.environment, *verb, code=code)

    def entries(self, since: int = 0) -> list[dict[str, Any]]:
        """The log from that byte on, parsed; a line that is not JSON becomes an entry too."""
        entries = []
        for line in self.log.read_bytes()[since:].decode(errors="replace").splitlines():
            try:
                entries.append(json.loads(line))
            except ValueError:
                entries.append({"level": "error", "event": line})
        return entries

    def complaints(self, since: int = 0) -> list[dict[str, Any]]:
        """Log entries of warning and above, except those of the event loop watch (`test_loop.py`)."""
        entries = [entry for entry in self.entries(since) if entry["level"] not in ("info", "debug")]
        return [entry for entry in entries if entry["event"] != "event loop stood still"]

    def containers(self, *filters: str) -> list[str]:
        """Ids of this node's containers, e.g. those with `role=grade`."""
        return [found["Id"][:12] for found in self._listed(filters)]

    def _listed(self, filters: tuple[str, ...]) -> list[dict[str, Any]]:
        labels = [f"sandbox.{label}" for label in (f"node={self.node}", *filters)]
        found: list[dict[str, Any]] = engine().containers(all=True, filters={"label": labels})
        return found

    def in_use(self, *filters: str) -> list[str]:
        """As `containers`, without those that are parked in the pool or being created for it."""
        listed = {found["Id"][:12]: found["Labels"].get("sandbox.sid") for found in self._listed(filters)}
        # after the listing, so that containers created meanwhile are in neither
        parked = [sid for bucket in self.get("/v1/pool")["buckets"] for sid in bucket["sids"]]
        return [container for container, sid in listed.items() if sid not in parked]

    def runs(self, sid: str, command: str) -> bool:
        """Whether a process of the session's container has `command` in its command line."""
        top = engine().top(self.container(sid))
        return any(command in " ".join(process) for process in top["Processes"] or ())

    def in_sql(self, table: str, sid: str, where: str = "true") -> int:
        """The session's rows in the server's own database, which is written after the answers."""
        with contextlib.closing(sqlite3.connect(self.folder / "data" / "catalogue.sqlite3")) as database:
            query = f"select count(*) from {table} where sid = ? and {where}"
            return int(database.execute(query, (sid,)).fetchone()[0])

    def container(self, sid: str) -> str:
        """Id of the session's only container."""
        (found,) = self.containers(f"sid={sid}", "role=session")
        return found

    def redis(self) -> int:
        """Process id of the embedded Redis."""
        return int((self.folder / "data" / "redis" / "redis.pid").read_text())

    # ---- the protocol

    def post(
        self, path: str, body: object, *, timeout: float = 120, headers: dict[str, str] | None = None
    ) -> httpx.Response:
        """Send one request."""
        return self._http.post(path, json=body, timeout=timeout, headers=headers)

    def begin(self, instance: str = SCRIPTED) -> str:
        """Start a session; return its sid."""
        answer = self.post("/start_instance", {"instance_hash": instance}, timeout=300)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["sid"])

    def say(self, sid: object, content: str, key: str = "") -> dict[str, Any]:
        """Send an action; return the answer."""
        headers = {"Idempotency-Key": key} if key else None
        answer = self.post("/process_action", {"sid": sid, "content": content}, headers=headers)
        assert answer.status_code == 200, answer.text
        reply: dict[str, Any] = answer.json()
        assert isinstance(reply["content"], str)
        return reply

    def run(self, sid: str, command: str, key: str = "") -> str:
        """Run a shell command, which the service must accept; return the observation."""
        reply = self.say(sid, bash(command), key)
        assert "error" not in reply, reply
        return str(reply["content"])

    def call(self, sid: str, tool: str, **arguments: object) -> str:
        """Call a tool by MCP, which must not end in an error; return its text."""
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
        answer = self.post(f"/mcp/sessions/{sid}", call)
        result = answer.json()["result"]
        assert answer.status_code == 200 and not result["isError"], answer.text
        return str(result["content"][0]["text"])

    def finish(self, sid: object) -> dict[str, Any]:
        """Send /postprocess; return the answer."""
        answer = self.post("/postprocess", {"sid": sid}, timeout=300)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def reward(self, sid: object) -> dict[str, Any]:
        """Send /compute_reward; return the answer."""
        answer = self.post("/compute_reward", {"sid": sid}, timeout=300)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def get(self, path: str) -> dict[str, Any]:
        """GET a JSON object."""
        return dict(self._http.get(path, timeout=30).raise_for_status().json())

    def session(self, sid: str) -> dict[str, Any]:
        """GET /v1/sessions/<sid>."""
        return self.get(f"/v1/sessions/{sid}")

    def patch(self, sid: str) -> bytes:
        """The captured diff."""
        return self._http.get(f"/v1/sessions/{sid}/patch", timeout=30).raise_for_status().content

    def patch_refused(self, sid: str, status: int = 410) -> dict[str, Any]:
        """The refusal of GET /v1/sessions/<sid>/patch."""
        answer = self._http.get(f"/v1/sessions/{sid}/patch", timeout=30)
        assert answer.status_code == status, (answer.status_code, answer.text)
        return dict(answer.json())

    def actions(self, sid: str) -> list[dict[str, Any]]:
        """The journal."""
        return list(self._http.get(f"/v1/sessions/{sid}/actions", timeout=30).raise_for_status().json())

    def hang_up(self, path: str, body: object, after_s: float, when: Callable[[], object] = lambda: True) -> None:
        """Send a request and close the connection before the answer, after this time and once `when` is true."""
        text = json.dumps(body).encode()
        host, port = self.url.removeprefix("http://").split(":")
        head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(text)}\r\n\r\n"
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(head.encode() + text)
            time.sleep(after_s)
            until(when)


@contextmanager
def serving(folder: Path, rows: Path, **settings: object) -> Iterator[Server]:
    """Run a server; `settings` are SANDBOX_* settings without the prefix, in lower case."""
    server = Server(folder, rows, {f"SANDBOX_{name.upper()}": str(value) for name, value in settings.items()})
    try:
        server.start()
        yield server
    finally:
        server.close()
    assert not (told := server.secrets_in_log()), f"{len(told)} of the server's keys are in {server.log}"
