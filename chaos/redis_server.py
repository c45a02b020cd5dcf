"""The shared Redis: a real process, append-only as in docker-compose.yml, on its own file system."""

import shutil
import signal
from pathlib import Path

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from chaos.processes import Process, until
from sandbox_server.state.embedded import find_binary

_START_S = 30.0
_ANSWER_S = 1.0


class RedisServer:
    """A Redis that faults can stop, kill and empty."""

    def __init__(self, folder: Path, log: Path, address: str, port: int) -> None:
        """`folder` is its whole file system; `address` is where other hosts reach it."""
        self.folder = folder
        self.data = folder / "data"
        self.port = port
        self.address = address
        self.url = f"redis://{address}:{port}/0"
        options = {
            "bind": f"127.0.0.1 {address}",
            "port": str(port),
            "protected-mode": "no",
            "dir": str(self.data),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "auto-aof-rewrite-min-size": "16mb",
            "save": "",
            "maxmemory-policy": "noeviction",
        }
        words = [word for name, value in options.items() for word in (f"--{name}", *(value.split() or [""]))]
        self.process = Process("Redis", [find_binary(), *words], log)

    def start(self) -> None:
        """Start it with the data in its folder, and wait until it answers."""
        self.data.mkdir(exist_ok=True)
        self.process.start()
        until(self.answers, _START_S, "Redis answers", part=self.process)

    def stop(self, sign: signal.Signals = signal.SIGTERM) -> None:
        """End it; its data stays."""
        self.process.end(sign)

    def forget(self) -> None:
        """Delete all its data; call it while it is stopped."""
        shutil.rmtree(self.data)

    def answers(self) -> bool:
        """Whether it answers within a second."""
        try:
            with self.client() as client:
                return bool(client.ping())
        except RedisError:
            return False

    def client(self) -> Redis:
        """A connection for the harness."""
        return Redis(
            port=self.port,
            socket_timeout=_ANSWER_S,
            socket_connect_timeout=_ANSWER_S,
            retry=Retry(NoBackoff(), 0),
            decode_responses=True,
        )
