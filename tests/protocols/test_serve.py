"""`serve` as a process: where it may listen, how it starts and ends, how many connections it accepts."""

import asyncio
import contextlib
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import httpx
import pytest

from tests.live.forking import forker
from tests.live.serving import until

from .stub_service import HASH, read_answer

SERVE = """
import asyncio, contextlib, os, resource, threading, time
from sandbox_server.app import Parts
from sandbox_server.errors import StateUnavailable
from sandbox_server.cli import serve
from sandbox_server.settings import load
from tests.protocols.stub_service import MemorySessions, small_catalogue

@contextlib.asynccontextmanager
async def build(settings):
    if "BROKEN" in os.environ:
        raise StateUnavailable("No redis-server on PATH.")
    async with small_catalogue() as (_, history, instances, _):
        yield Parts(MemorySessions(), history, instances, {})
    if "HANGS" in os.environ:
        threading.Thread(target=time.sleep, args=(3600,), name="an engine's").start()
        await asyncio.sleep(3600)
    print("closed", flush=True)

if "MANY" in os.environ:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
serve._TICK_S = 3600.0  # an end must not wait for it
serve.run(load(), build)
"""


class Process:
    """One server, forked from a process that has done the imports, and what it writes."""

    def __init__(self, out: IO[bytes], err: IO[bytes], environment: dict[str, str]) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("SANDBOX_")}
        self._out, self._err = out, err
        environment = clean | {"SANDBOX_LOG_FORMAT": "json"} | environment
        self._forked = forker().start(["-c", SERVE], environment, out.fileno(), err.fileno())
        self.send_signal = self._forked.send_signal

    def waits(self) -> int:
        """How often its main thread has gone to sleep."""
        status = Path(f"/proc/{self._forked.pid}/status").read_text()
        return int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", status, re.M)[1])  # type: ignore[index] # it is there

    def ready(self) -> int:
        """Wait until it is; return its port."""
        until(lambda: "ready" in self._entries() or self._forked.poll() is not None, what="ready")
        assert "ready" in self._entries(), self._read(self._err)
        return int(next(entry["port"] for entry in self._entries().values() if "port" in entry))

    def _entries(self) -> dict[str, dict[str, Any]]:
        whole = [line for line in self._read(self._err).splitlines(keepends=True) if line.endswith(b"\n")]
        return {entry["event"]: entry for entry in map(json.loads, whole)}

    def ended(self) -> tuple[int, str, str]:
        """Wait for its end; return its exit status, stdout and stderr."""
        status = self._forked.wait(120)
        return status, self._read(self._out).decode(), self._read(self._err).decode()

    @staticmethod
    def _read(stream: IO[bytes]) -> bytes:
        return os.pread(stream.fileno(), 1 << 24, 0)  # its position is that of the process


@contextlib.contextmanager
def command(**environment: str) -> Iterator[Process]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = Process(out, err, environment)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)


@contextlib.contextmanager
def running(**environment: str) -> Iterator[tuple[Process, int]]:
    """Run the process; yield it and its port once it is ready."""
    with command(SANDBOX_PORT="0", **environment) as process:
        port = process.ready()
        for _ in range(500):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.01)
        yield process, port


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "no.such.host.invalid"])
def test_it_refuses_the_network_without_keys(host: str) -> None:
    """Without keys it does not listen to the network: anyone could run code in the containers."""
    with command(SANDBOX_HOST=host, SANDBOX_PORT="0") as process:
        status, _, said = process.ended()
    assert status == 2
    assert "SANDBOX_API_KEYS" in said and "SANDBOX_ALLOW_INSECURE=1" in said and "Traceback" not in said


@pytest.mark.parametrize("allowed", [{"SANDBOX_API_KEYS": "k"}, {"SANDBOX_ALLOW_INSECURE": "1"}], ids=str)
def test_it_listens_to_the_network_when_told_how(allowed: dict[str, str]) -> None:
    """With SANDBOX_ALLOW_INSECURE it does, for a load balancer in front of it."""
    with running(SANDBOX_HOST="0.0.0.0", **allowed) as (_, port):
        answer = httpx.get(f"http://127.0.0.1:{port}/v1/sessions", headers={"X-API-Key": "k"})
        assert answer.status_code == 200


def test_a_taken_port_ends_it_before_it_touches_anything() -> None:
    """A second server started by mistake does not touch the first one's sessions and locks."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with command(SANDBOX_PORT=str(taken.getsockname()[1])) as process:
            status, out, said = process.ended()
    assert status == 3 and "already in use" in said
    assert "closed" not in out and '"ready"' not in said


def test_a_part_that_does_not_open_ends_it_with_the_reason() -> None:
    """Somebody without Docker or Redis has to find the reason in 250 lines of stack."""
    with command(SANDBOX_PORT="0", BROKEN="1") as process:
        status, _, said = process.ended()
    assert status == 3 and "The server does not start: No redis-server on PATH." in said
    assert "Traceback" not in said and "sandbox-server doctor" in said


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(sign: signal.Signals) -> None:
    """SIGTERM saves the embedded Redis and lets running actions finish. It does not wait 10 s for pages."""
    with running() as (process, port):
        url = f"http://127.0.0.1:{port}"
        sid = httpx.post(f"{url}/start_instance", json={"instance_hash": HASH}).json()["sid"]
        raw = json.dumps({"sid": sid, "content": "slow"}).encode()
        page = httpx.stream("GET", f"{url}/ui/sessions/{sid}/live", timeout=60)
        with socket.create_connection(("127.0.0.1", port)) as s, page as events:
            pieces = events.iter_text()
            assert next(pieces).startswith("retry: ")
            s.sendall(b"POST /process_action HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(raw) + raw)
            httpx.get(f"{url}/v1/sessions", timeout=60)  # a later request was answered, so the action has arrived
            process.send_signal(sign)
            assert b"saw 4" in read_answer(s)
            assert "event: over" not in "".join(pieces), "the session goes on"
        _, out, said = process.ended()
        assert out == "closed\n" and "Traceback" not in said and "error" not in said
        assert re.search('"event": "shutting down"', said)


def test_an_idle_server_rests() -> None:
    """With hundreds of idle sessions, what a server does ten times a second is most of its CPU."""
    with running() as (process, _):
        time.sleep(1.5)  # the watch of the loop comes to rest within 0.6 s
        before = process.waits()
        time.sleep(3)
        assert process.waits() - before < 30, "uvicorn's own clock makes 30, and the watch at its former pace 37"
        process.send_signal(signal.SIGTERM)


def test_a_request_that_the_end_cuts_off_can_be_sent_again() -> None:
    """It would be a 500 without a word, and a stack of 100 lines in the log."""
    with running(SANDBOX_STOP_S="2") as (process, port):
        url = f"http://127.0.0.1:{port}"
        sid = httpx.post(f"{url}/start_instance", json={"instance_hash": HASH}).json()["sid"]
        raw = json.dumps({"sid": sid, "content": "for a minute"}).encode()
        with socket.create_connection(("127.0.0.1", port)) as s:
            s.sendall(b"POST /process_action HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(raw) + raw)
            httpx.get(f"{url}/v1/sessions", timeout=60)
            process.send_signal(signal.SIGTERM)
            answer = read_answer(s)
        assert b" 503 " in answer and b"retry-after" in answer and b'"code": "stopping", ' in answer
        _, _, said = process.ended()
        assert "Traceback" not in said


def test_a_server_that_cannot_put_away_everything_ends_all_the_same() -> None:
    """It would hang until the orchestrator kills it, or for ever, and nobody would know what it waits for."""
    with running(HANGS="1", SANDBOX_STOP_S="1") as (process, _):
        process.send_signal(signal.SIGTERM)
        status, _, said = process.ended()
    last = json.loads(said.splitlines()[-1])
    assert status == 1 and "SANDBOX_STOP_S" in last["event"]
    assert any("asyncio/tasks.py" in task for task in last["tasks"]) and "an engine's" in last["threads"]


def test_a_thousand_connections_at_once_are_all_served() -> None:
    """Trainers open one connection per call, all at the same moment."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    async def one(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        raw = b'{"sid": null, "content": "x"}'
        writer.write(b"POST /process_action HTTP/1.1\r\nHost: x\r\nConnection: close\r\n")
        writer.write(b"Content-Length: %d\r\n\r\n" % len(raw) + raw)
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return answer

    async def all_at_once(port: int) -> list[bytes]:
        return await asyncio.gather(*(one(port) for _ in range(1000)))

    try:
        with running(MANY="1") as (_, port):
            answers = asyncio.run(all_at_once(port))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert sum(b"200 OK" in answer and b"unknown_session" in answer for answer in answers) == 1000


def test_large_bodies_leave_no_memory_behind() -> None:
    """After sixteen bodies of 32 MB at once the server kept up to a gigabyte, in holes between other blocks."""
    script = """
import re
from sandbox_server.cli.serve import return_memory
return_memory()
others = []
for _ in range(3):
    pieces = []
    for _ in range(1000):
        pieces.append(bytes(200_000))
        others.append(bytes(2_000))
del pieces
print(re.search(r"VmRSS:\\s*(\\d+)", open("/proc/self/status").read())[1])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=True)
    assert int(done.stdout) < 200 << 10
