"""A full disk below the data folder: writes are refused with the reason, acknowledged data stays."""

import contextlib
import hashlib
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from .overview import leads, says
from .serving import Server, bash, docker, serving, until

MB = 1 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, rows: Path) -> Iterator[Server]:
    """A server whose data folder is a file system of 64 MB."""
    if os.geteuid():
        pytest.skip("needs root, to mount a small file system")
    folder = tmp_path_factory.mktemp("full")
    data = folder / "data"
    data.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m,mode=755", "tmpfs", data], check=True)
    try:
        with serving(folder, rows, data_min_free_mb=8, disk_period_s=0.2, start_timeout_s=10) as server:
            yield server
    finally:
        subprocess.run(["umount", "-l", data], check=True)


def fill(server: Server, free: int) -> Path:
    """Fill the disk until only this many bytes are free."""
    filler = server.folder / "data" / "filler"
    disk = os.statvfs(server.folder / "data")
    with filler.open("wb", buffering=0) as stream, contextlib.suppress(OSError):
        os.posix_fallocate(stream.fileno(), 0, max(1, disk.f_bavail * disk.f_frsize - max(free, MB)))
        while not free:
            stream.seek(0, os.SEEK_END)
            stream.write(bytes(4096))
    return filler


def put(server: Server, data: bytes) -> httpx.Response:
    return httpx.put(f"{server.url}/v1/blobs/{hashlib.sha256(data).hexdigest()}", content=data, timeout=30)


def test_a_full_disk(server: Server) -> None:
    """PUT /v1/blobs failed with a bare OSError that did not say that the folder was full."""
    sid = server.begin()
    assert "0" in server.run(sid, "echo 0", "key-0")
    assert put(server, b"small").status_code < 300

    filler = fill(server, 4 * MB)  # too little for anything new, enough for what is under way
    until(lambda: httpx.get(f"{server.url}/readyz").status_code == 503, 10, "not ready")
    assert "SANDBOX_DATA_MIN_FREE_MB=8" in httpx.get(f"{server.url}/readyz").json()["parts"]["data"]
    assert "SANDBOX_DATA_MIN_FREE_MB=8" in server.cli("doctor", code=1)
    says(server, None, "infrastructure", "node_fault")
    leads(server, None, to="SANDBOX_DATA_MIN_FREE_MB=8")
    refused = put(server, b"x" * MB)
    assert (refused.status_code, refused.json()["code"]) == (507, "data_disk_full")
    started = server.post("/start_instance", {"instance_hash": "samples__ledger-12"})
    assert (started.status_code, started.json()["reason"]) == (503, "data")
    assert "1" in server.run(sid, "echo 1", "key-1")

    filler.unlink()
    filler = fill(server, 0)
    told = [server.say(sid, bash(f"echo {number} >> /tmp/ran"), f"key-{number}") for number in range(2, 8)]
    parts = httpx.get(f"{server.url}/readyz").json()["parts"]
    assert parts["data"] != "ok"
    assert not list((server.folder / "data" / "blobs").glob("*.part"))

    filler.unlink()
    until(lambda: httpx.get(f"{server.url}/readyz").is_success, 20, "ready by itself")
    # what was not acknowledged is sent again; what was is not run again
    for number, answer in enumerate(told, start=2):
        again = server.say(sid, bash(f"echo {number} >> /tmp/ran"), f"key-{number}")
        assert "error" not in again, again
        if "error" not in answer:
            assert again == answer
    assert put(server, b"x" * MB).status_code < 300
    server.restart()
    until(lambda: len(server.actions(sid)) == 8, 20, "each action once")
    contents = [action["content"] for action in server.actions(sid)]
    assert len(set(contents)) == len(contents)
    container = server.container(sid)
    ran = docker("exec", container, "cat", "/tmp/ran").split()
    assert sorted(set(ran)) == [str(number) for number in range(2, 8)]
    assert len(ran) <= len(set(ran)) + sum("error" in answer for answer in told), "an acknowledged one ran twice"


def test_the_data_folder_is_its_users_alone(server: Server) -> None:
    """The folder had mode 0755 and its files 0644, so every local user could read hidden tests and tokens."""
    data = server.folder / "data"
    server.begin()
    put(server, b"small")
    for path in [data, *data.rglob("*")]:
        assert not stat.S_IMODE(path.lstat().st_mode) & 0o077, path
