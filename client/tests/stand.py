"""A small real HTTP server that speaks the swedev protocol, with delays and faults on order."""

from __future__ import annotations

import json
import re
import socket
import struct
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

REWARD_FIELDS: dict[str, Any] = {
    "f2p_count": 2,
    "f2p_total": 2,
    "p2p_count": 3,
    "p2p_total": 3,
    "resolved": True,
    "patch_is_None": False,
    "patch_exists": True,
    "patch_successfully_applied": True,
    "patch_succesfully_applied": True,
    "mask": False,
    "cause": "all tests that had to pass did",
    "receipt": "r-1",
}


@dataclass
class Fault:
    """What happens in place of the next answer. `after_work`: the work is done and only its answer is lost."""

    status: int = 0
    """An HTTP status, or 0 to reset the connection."""
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)
    after_work: bool = False


@dataclass
class Seen:
    path: str
    body: dict[str, Any]
    headers: dict[str, str]


class Stand:
    """Sessions in a dict. An action's text comes back with `$((a+b))` computed; one with "solve" earns reward 1.0."""

    def __init__(self, prefix: str = "", port: int = 0, *, solved: Iterable[str] = ()) -> None:
        self.prefix = prefix
        self.delay_s = 0.0
        self.together: dict[str, threading.Barrier] = {}
        """Path -> where its requests wait for each other before they are answered."""
        self.held: dict[str, threading.Event] = {}
        """Path -> the answers to it wait for this event."""
        self.key: str = ""
        self.faults: dict[str, deque[Fault]] = {}
        self.answers: dict[str, deque[dict[str, Any]]] = {}
        self.seen: list[Seen] = []
        self.runs: list[tuple[str, str]] = []
        self.solved: dict[str, bool] = dict.fromkeys(solved, True)
        self.ended: Counter[str] = Counter()
        self.most_at_once: Counter[str] = Counter()
        """Path -> most of its requests that were under way at the same time."""
        self._at_once: Counter[str] = Counter()
        self._by_key: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()
        stand = self

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 256

            def handle_error(self, request: Any, client_address: Any) -> None:
                """Clients that hang up are part of the tests."""

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 1 << 16  # head and body in one packet, else each answer waits 40 ms for an acknowledgement

            def do_GET(self) -> None:
                self._send(200 if self.path == f"{stand.prefix}/healthz" else 404, b"{}", {})

            def do_POST(self) -> None:
                stand._serve(self)

            do_PUT = do_DELETE = do_POST

            def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
                self.send_response(status)
                for name, value in {"Content-Type": "application/json", **headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def _reset(self) -> None:
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RD)
                self.connection.close()

            def log_message(self, format: str, *args: Any) -> None:
                """Silent."""

        self._server = Server(("127.0.0.1", port), Handler)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}{prefix}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def fail(self, path: str, *faults: Fault) -> None:
        self.faults.setdefault(path, deque()).extend(faults)

    def answer(self, path: str, *answers: dict[str, Any]) -> None:
        self.answers.setdefault(path, deque()).extend(answers)

    def hold(self, path: str) -> threading.Event:
        """Answer no request to `path` until the event is set."""
        return self.held.setdefault(path, threading.Event())

    def until_seen(self, path: str, times: int = 1, within_s: float = 60.0) -> None:
        """Wait until so many requests to `path` have arrived."""
        end = time.monotonic() + within_s
        while (seen := len(self.bodies(path))) < times:
            assert time.monotonic() < end, f"{seen} of {times} requests to {path} within {within_s:g} s"
            time.sleep(0.01)

    def bodies(self, path: str) -> list[dict[str, Any]]:
        return [seen.body for seen in self.seen if seen.path == path]

    def _serve(self, handler: Any) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        path = handler.path.removeprefix(self.prefix)
        with self._lock:
            self.seen.append(
                Seen(
                    path,
                    body,
                    {"method": handler.command} | {name.lower(): value for name, value in handler.headers.items()},
                )
            )
            self._at_once[path] += 1
            self.most_at_once[path] = max(self.most_at_once[path], self._at_once[path])
            fault = self.faults[path].popleft() if self.faults.get(path) else None
        try:
            if path in self.together:
                with suppress(threading.BrokenBarrierError):
                    self.together[path].wait(60)
            if fault is None or fault.after_work:
                time.sleep(self.delay_s)
                if (let_go := self.held.get(path)) is not None:
                    let_go.wait(60)  # a caller that blocks gets its answer, and the test fails
                status, answer = self._work(path, body, handler.headers)
        finally:  # before its client can send another one
            with self._lock:
                self._at_once[path] -= 1
        if fault is None:
            handler._send(status, json.dumps(answer).encode(), {})
        elif fault.status:
            handler._send(fault.status, fault.body, fault.headers)
        else:
            handler._reset()

    def _work(self, path: str, body: dict[str, Any], headers: Any) -> tuple[int, dict[str, Any]]:
        with self._lock:
            if self.key and self.key not in headers.get("Authorization", ""):
                return 401, {"code": "unauthorized", "detail": "no key of ours", "retryable": False}
            if self.answers.get(path):
                return 200, self.answers[path].popleft()
            if path.startswith("/v1/"):
                return 200, {"run": "x", "ended": [], "ending": [], "ends_at": 0.0, "released": True, "results": []}
            if path == "/start_instance":
                return self._start(body, headers.get("Idempotency-Key"))
            sid = str(body["sid"])
            if path == "/process_action":
                key = headers.get("Idempotency-Key")
                if key and key in self._by_key:
                    return 200, self._by_key[key]
                answer = self._act(sid, body["content"])
                if key:
                    self._by_key[key] = answer
                return 200, answer
            if path == "/postprocess":
                self.ended[sid] += 1
                return 200, {}
            if sid not in self.solved:
                unknown = {"reward": 0.0, "verdict": "unknown_session", "mask": True, "cause": "no such session"}
                return 200, {**REWARD_FIELDS, **unknown}
            solved = self.solved[sid]
            graded = {"reward": float(solved), "verdict": "resolved" if solved else "empty_patch", "resolved": solved}
            return 200, {**REWARD_FIELDS, **graded}

    def _start(self, body: dict[str, Any], key: str | None) -> tuple[int, dict[str, Any]]:
        if body["instance_hash"] == 404:
            return 404, {"code": "unknown_instance", "detail": "no such instance", "retryable": False}
        if key and key in self._by_key:
            return 200, self._by_key[key]
        sid = str(5_671_949_450_826_943 + len(self.solved))
        self.solved[sid] = False
        if key:
            self._by_key[key] = {"sid": sid}
        return 200, {"sid": sid}

    def _act(self, sid: str, content: str) -> dict[str, Any]:
        if sid not in self.solved:
            return {"content": "ERROR: no such session", "error": {"code": "unknown_session", "detail": "no such sid"}}
        self.runs.append((sid, content))
        self.solved[sid] |= "solve" in content
        return {"content": re.sub(r"\$\(\((\d+)\+(\d+)\)\)", lambda sum: str(int(sum[1]) + int(sum[2])), content)}
