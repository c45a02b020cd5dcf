"""A real server that speaks S3: moto's, in its own environment and process."""

import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from .conftest import ROOT

BUCKET = "sandboxes"
PYTHON = ROOT / ".cache" / "sdk" / "s3" / "bin" / "python"


@dataclass
class Bucket:
    """A bucket, and what a client needs to reach it."""

    url: str
    environment: dict[str, str]
    stop: Callable[[], None] = field(repr=False)
    """Kill its server."""


@contextmanager
def bucket(missing: Callable[[str], None]) -> Iterator[Bucket]:
    """Start a server with an empty bucket."""
    if not PYTHON.exists():
        missing("the environment of s3 (scripts/environments.sh sdk .cache/sdk s3)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [PYTHON, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def stop() -> None:
        process.kill()
        process.wait(20)

    endpoint = f"http://127.0.0.1:{port}"
    environment = {
        "AWS_ENDPOINT": endpoint,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
    try:
        ends = time.monotonic() + 60
        while not _asked(endpoint, "GET"):
            assert process.poll() is None and time.monotonic() < ends, "moto does not start"
            time.sleep(0.1)
        assert _asked(f"{endpoint}/{BUCKET}", "PUT")
        yield Bucket(f"s3://{BUCKET}/run", environment, stop)
    finally:
        stop()


def _asked(url: str, method: str) -> bool:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
