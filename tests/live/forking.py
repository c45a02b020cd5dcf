"""Start the server's command without the 3 s of CPU for its imports, by forking a process that has done them.

`python -m tests.live.forking FD` is that process. The test processes of a run share it; each has its own connection to
the listening socket FD. After the imports everything is as in a start from the shell: arguments, environment, output,
signals, exit. In place of the command it runs a program: the arguments `-c`, its text and its own arguments.
"""

import atexit
import contextlib
import errno
import functools
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
from httpx._transports import default as transports

from sandbox_server import plugins, protocols
from sandbox_server.actions import dialects, tools
from sandbox_server.grading import graders, rewards
from sandbox_server.grading.localization import composition

_ROOT = Path(__file__).resolve().parents[2]
_MOST = 1 << 17  # longest message in bytes
_START_S = 120.0  # for its imports, on a busy machine
_CLOSE_S = 30.0  # for the end of what it started for one test process
_END_S = 250.0  # for a command that runs to its end; below pytest's timeout of a test
_IMPORTS = (
    "sandbox_server.cli.serve",
    "sandbox_server.cli.instances",
    "sandbox_server.catalogue.importers",
    "sandbox_server.state.embedded",
    "sqlalchemy.dialects.sqlite.aiosqlite",
    "aiosqlite",
    "httptools",
    "uvloop",
    "uvicorn.loops.uvloop",
    "uvicorn.lifespan.on",
    "uvicorn.protocols.http.httptools_impl",
    "httpcore",
    "anyio._backends._asyncio",
)
_FIRST = threading.Lock()  # threads that ask at once get the same one
_PLUGINS = ((protocols, "ROUTER"), (dialects, "DIALECT"), (tools, "TOOL"), (graders, "GRADER"), (rewards, "REWARD"))


class Forked:
    """One forked process, with the part of `subprocess.Popen` that tests use."""

    def __init__(self, forker: "_Forker", pid: int) -> None:
        self.pid = pid
        self._forker = forker

    def poll(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        return self._forker.status(self.pid)

    def wait(self, timeout_s: float) -> int:
        """Wait for the exit status. Raises TimeoutError."""
        end = time.monotonic() + timeout_s
        while (status := self.poll()) is None:
            if time.monotonic() > end:
                raise TimeoutError(f"process {self.pid} has not ended within {timeout_s:g} s")
            time.sleep(0.01)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal; does nothing if the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)


class _Forker:
    """The test process's end of its connection."""

    def __init__(self) -> None:
        self._socket = _connected()
        self._turn = threading.Lock()
        self._ended: dict[int, int] = {}

    def start(
        self, words: Sequence[str], environment: Mapping[str, str], out: int, err: int, given: int | None = None
    ) -> Forked:
        """`out`, `err`, `given`: descriptors of its output and input."""
        request = json.dumps({"words": list(words), "environment": dict(environment)})
        with self._turn:
            streams = [out, err] if given is None else [out, err, given]
            socket.send_fds(self._socket, [request.encode()], streams)
            while (pid := self._read()) is None:
                pass
        return Forked(self, pid)

    def close(self) -> None:
        """End all that it started for this process, and itself if no other test process is left."""
        self._socket.shutdown(socket.SHUT_WR)
        self._socket.settimeout(_CLOSE_S)
        while self._socket.recv(_MOST):
            pass
        self._socket.close()

    def status(self, pid: int) -> int | None:
        with self._turn:
            while select.select([self._socket], [], [], 0)[0]:
                self._read()
            return self._ended.get(pid)

    def _read(self) -> int | None:
        """Read one message: return the started process, or record the exit of another one."""
        said = self._socket.recv(_MOST)
        assert said, "the process that forks has ended"
        told: dict[str, int] = json.loads(said)
        if "status" not in told:
            self._ended.pop(told["pid"], None)  # the status of an earlier process that had the same number
            return told["pid"]
        self._ended[told["pid"]] = told["status"]
        return None


def run(
    words: Sequence[str], environment: Mapping[str, str], text: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the server's command, or a program, to its end, with its output captured as UTF-8. Raises TimeoutError.

    `text` is its stdin: at most what a pipe holds.
    """
    with ExitStack() as stack:
        out, err = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(2))
        given = None
        if text is not None:
            given, writing = os.pipe2(os.O_CLOEXEC)
            stack.callback(os.close, given)
            with open(writing, "w") as pipe:
                pipe.write(text)
        status = forker().start(words, environment, out.fileno(), err.fileno(), given).wait(_END_S)
        said, faults = (os.pread(stream.fileno(), 1 << 24, 0).decode() for stream in (out, err))
    return subprocess.CompletedProcess(list(words), status, said, faults)


def forker() -> _Forker:
    """This test process's connection; when it closes, every process that was started over it ends."""
    with _FIRST:
        return _forker()


@functools.cache
def _forker() -> _Forker:
    made = _Forker()
    atexit.register(made.close)  # otherwise Python warns of the socket at each worker's end
    return made


def _connected() -> socket.socket:
    """A connection to the process of this run that forks; the first test process to ask starts it."""
    address = f"\0sandbox-forking-{os.environ.get('PYTEST_XDIST_TESTRUNUID', os.getpid())}"
    end = time.monotonic() + _START_S
    while time.monotonic() < end:
        connection = _seqpacket()
        # refused or reset: there is none, or one that is just ending; in use: another test process is starting it
        with contextlib.suppress(OSError):
            if connection.connect_ex(address) == errno.ECONNREFUSED:
                with _seqpacket() as listener:
                    listener.bind(address)
                    listener.listen()
                    connection.connect(address)  # before it starts, so that it never waits for a first one
                    _start(listener)
            if connection.recv(_MOST):
                return connection
        connection.close()
        time.sleep(0.01)
    raise TimeoutError(f"the process that forks has not started within {_START_S:g} s; its error is on stderr")


def _seqpacket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def _start(listener: socket.socket) -> None:
    # no child of this test process, which may end before others
    words = ["setsid", "--fork", sys.executable, "-m", "tests.live.forking", str(listener.fileno())]
    subprocess.run(words, cwd=_ROOT, pass_fds=[listener.fileno()], check=True)


def _serve(listener: socket.socket) -> list[str]:
    """Fork on request until the last connection closes. Returns only in a forked process, with its arguments."""
    ended, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken)
    running: dict[int, socket.socket] = {}
    connections: set[socket.socket] = set()
    while True:
        ready, _, _ = select.select([listener, ended, *connections], [], [])
        if ended in ready:
            os.read(ended, 4096)
            _tell_ended(running)
        if listener in ready:
            connection, _ = listener.accept()
            connections.add(connection)
            _tell(connection, {})
        for connection in connections.intersection(ready):
            said, streams = _received(connection)
            if not said:
                _end_all(running, connection)
                connections.remove(connection)
                connection.close()
                if not connections:
                    raise SystemExit
                continue
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for one in (listener, *connections):
                    one.close()
                os.close(ended)
                os.close(woken)
                return _become(json.loads(said), streams)
            for stream in streams:
                os.close(stream)
            running[pid] = connection
            _tell(connection, {"pid": pid})


def _received(connection: socket.socket) -> tuple[bytes, list[int]]:
    with contextlib.suppress(ConnectionResetError):  # a test process that was killed
        said, streams, _, _ = socket.recv_fds(connection, _MOST, 3)
        return said, streams
    return b"", []


def _tell_ended(running: dict[int, socket.socket]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        _tell(running.pop(pid), {"pid": pid, "status": os.waitstatus_to_exitcode(status)})


def _end_all(running: dict[int, socket.socket], connection: socket.socket) -> None:
    """End what was started over `connection`."""
    for pid in [pid for pid, owner in running.items() if owner is connection]:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        del running[pid]


def _tell(connection: socket.socket, said: Mapping[str, int]) -> None:
    with contextlib.suppress(BrokenPipeError):  # likewise
        connection.send(json.dumps(said).encode())


def _become(request: dict[str, Any], streams: Sequence[int]) -> list[str]:
    out, err, *rest = streams
    given = rest[0] if rest else os.open(os.devnull, os.O_RDONLY)
    for stream, number in ((given, 0), (out, 1), (err, 2)):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request["environment"])
    words: list[str] = request["words"]
    return words


def main() -> None:
    """Import, then serve fork requests; in a forked process run the command."""
    for name in _IMPORTS:
        importlib.import_module(name)
    for package, attribute in _PLUGINS:
        plugins.discover(package, attribute)
    composition.rewards()
    for guarded in (False, True):
        importlib.import_module("sandbox_server.app.factory").built_routes(guarded=guarded)
    # the first client of a server reads the CA certificates, for 25 ms of CPU; kept as in the conftest.py at the root
    transports.create_ssl_context = functools.cache(transports.create_ssl_context)  # type: ignore[attr-defined]
    httpx.AsyncClient(trust_env=False)
    assert threading.active_count() == 1, "a fork would lose the other threads"
    gc.freeze()  # garbage collection in a fork would copy shared pages
    words = _serve(socket.socket(fileno=int(sys.argv[1])))
    if words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        exec(compile(words[1], "<program>", "exec"), {"__name__": "__main__"})
        return
    sys.argv[1:] = words
    importlib.import_module("sandbox_server.cli").main()


if __name__ == "__main__":
    main()
