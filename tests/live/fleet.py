"""Several servers on one Redis and one database; the Redis survives the servers."""

import contextlib
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError

from sandbox_server.state.embedded import find_binary

from .serving import SCRIPTED, Server, until

TTL_S = 4
"""Default of node_ttl_s in tests: seconds without a heartbeat after which a node is dead."""


def on(server: Server, instance: str = SCRIPTED) -> str:
    """Start sessions until one is on `server`; return it. The others live on, which costs less than their ends."""
    for _ in range(8):
        sid = server.begin(instance)
        if server.session(sid)["node"] == server.node:
            return sid
    raise AssertionError(f"no session was placed on {server.node}")


class SharedRedis:
    """A real Redis with an append-only file; can be killed and started again, with its data or empty."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "redis.sock"
        self.url = f"unix://{self.socket}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *, empty: bool = False) -> None:
        """Start it, with its data unless `empty`."""
        folder = self.folder / (f"empty-{secrets.token_hex(4)}" if empty else "data")
        folder.mkdir(exist_ok=True)
        words = [find_binary(), "--port", "0", "--unixsocket", str(self.socket), "--dir", str(folder)]
        self.process = subprocess.Popen(
            [*words, "--save", "", "--appendonly", "yes", "--appendfsync", "everysec"], stdout=subprocess.DEVNULL
        )
        until(self._answers, 20, "Redis")

    def _answers(self) -> bool:
        with contextlib.suppress(RedisError), Redis(unix_socket_path=str(self.socket)) as client:
            return bool(client.ping())
        return False

    def kill(self) -> None:
        """kill -9."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(20)
            self.process = None


@contextmanager
def fleet(folder: Path, rows: Path, count: int, **settings: object) -> Iterator[tuple[list[Server], SharedRedis]]:
    """Run `count` servers: separate nodes on this machine's engine."""
    redis = SharedRedis(folder)
    redis.start()
    shared = {
        "redis_url": redis.url,
        "database_url": f"sqlite:///{folder / 'catalogue.sqlite3'}",
        "node_ttl_s": TTL_S,
        "node_beat_s": 0.5,
        "reaper_period_s": 1,
        **settings,
    }
    named = {f"SANDBOX_{name.upper()}": str(value) for name, value in shared.items()}
    with ExitStack() as stack:
        stack.callback(redis.kill)
        servers = []
        for number in range(count):
            own = folder / f"node-{number}"
            own.mkdir()
            server = Server(own, rows, named)
            stack.callback(server.close)
            servers.append(server)
        for server in servers:
            server.start()
        yield servers, redis
