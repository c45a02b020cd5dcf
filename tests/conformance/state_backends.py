"""Where the state tests find a Redis: the embedded one, and a second real server that knows nothing of us."""

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError

from sandbox_server.state.embedded import EmbeddedRedis, find_binary


@contextlib.contextmanager
def embedded(folder: Path) -> Iterator[str]:
    redis = EmbeddedRedis(folder)
    try:
        yield redis.start()
    finally:
        assert redis.stop()


@contextlib.contextmanager
def external(folder: Path) -> Iterator[str]:
    socket = folder / "external.sock"
    command = [find_binary(), "--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            client = Redis(unix_socket_path=str(socket))
            for _ in range(500):
                with contextlib.suppress(RedisError):
                    if client.ping():
                        break
                time.sleep(0.01)
            client.close()
            yield f"unix://{socket}"
        finally:
            process.kill()
