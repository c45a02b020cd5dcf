"""A proxy in front of a server that injects the faults of bad networks, proxies and hosts."""

import contextlib
import http.client
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FAULTS = ("gateway", "page", "reset", "cut", "hang")
"""502 with a page; 200 with a page; a reset in the middle of the body; a truncated body as if complete; no answer."""


class Faulty:
    """Each request to `path` consumes one fault of `plan`; other requests pass unchanged."""

    def __init__(self, port: int, path: str, plan: Sequence[str]) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.path, self.plan, self.met = path, list(plan), list[str]()
        self.frozen = threading.Event()
        """Set at the end to release hanging requests."""
        self._lock = threading.Lock()

    def next_fault(self, path: str) -> str:
        """ "": none."""
        with self._lock:
            fault = self.plan.pop(0) if path == self.path and self.plan else ""
            self.met += [fault] if fault else []
            return fault


@contextlib.contextmanager
def faulty(upstream: str, path: str, plan: Sequence[str]) -> Iterator[Faulty]:
    """Run a proxy in front of `upstream`, a URL without a path."""
    where = upstream.removeprefix("http://")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            fault = told.next_fault(self.path)
            if fault == "hang":
                told.frozen.wait()
                self.close_connection = True
                return
            if fault in ("gateway", "page"):
                self._answer(502 if fault == "gateway" else 200, b"<html>Bad Gateway</html>", "text/html")
                return
            asking = http.client.HTTPConnection(where, timeout=300)
            try:
                asking.request(self.command, self.path, body, {"Content-Type": "application/json"})
                answer = asking.getresponse()
                content = answer.read()
            except OSError:  # the server is down
                self._answer(502, b"", "text/html")
                return
            finally:
                asking.close()
            if fault == "cut":
                content = content[: len(content) // 2]
            self._answer(answer.status, content, "application/json", breaks=fault == "reset")

        do_GET = do_POST

        def _answer(self, status: int, content: bytes, kind: str, *, breaks: bool = False) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if breaks else content)
            if breaks:
                self.wfile.flush()
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # an RST
                self.connection.close()
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            """Nothing."""

    class Proxy(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Ignore errors: disconnected clients and reset sockets are intended here."""

    with Proxy(("127.0.0.1", 0), Handler) as serving:
        told = Faulty(serving.server_address[1], path, plan)
        thread = threading.Thread(target=serving.serve_forever, daemon=True)
        thread.start()
        try:
            yield told
        finally:
            told.frozen.set()
            serving.shutdown()
            thread.join()
