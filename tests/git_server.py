"""Git over HTTP as real servers do it, by `git http-backend`, and as they fail: the tests' remote repositories."""

import contextlib
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class GitServer(ThreadingHTTPServer):
    """Serves the repositories below `root`; `fault` says how it fails."""

    daemon_threads = True

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.root = root
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.fault = ""
        """stall: half of the objects, then nothing; cut: half of them, then the end; deny: 401; old: protocol 0."""
        self.busy = 0
        """Number of requests that are answered with 503 first."""
        self.fetches: list[str] = []
        """Path of each fetch's first request."""
        self.told: list[str] = []
        """Credentials that clients sent: values of Authorization and Cookie."""
        self.ended = threading.Event()

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing: the tests make clients disconnect."""


class _Handler(BaseHTTPRequestHandler):
    server: GitServer
    protocol_version = "HTTP/1.0"

    def do_GET(self) -> None:
        self.server.fetches.append(self.path)
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers["Content-Length"])))

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _answer(self, body: bytes) -> None:
        server = self.server
        server.told += [value for name, value in self.headers.items() if name.lower() in ("authorization", "cookie")]
        if server.fault == "deny":
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="tests"')
            self.end_headers()
            return
        if server.busy:
            server.busy -= 1
            self.send_error(503)
            return
        head, answer = self._backend(body)
        self.wfile.write(head)
        if server.fault in ("stall", "cut") and b"command=fetch" in body:
            self.wfile.write(answer[: len(answer) // 2])
            self.wfile.flush()
            if server.fault == "stall":
                server.ended.wait(60)
            return
        with contextlib.suppress(ConnectionError):
            self.wfile.write(answer)

    def _backend(self, body: bytes) -> tuple[bytes, bytes]:
        path, _, query = self.path.partition("?")
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.server.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "REMOTE_ADDR": "127.0.0.1",
        }
        if self.server.fault != "old":
            environment["GIT_PROTOCOL"] = self.headers.get("Git-Protocol", "")
        done = subprocess.run(["git", "http-backend"], input=body, env=environment, capture_output=True, check=False)
        head, _, answer = done.stdout.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        status = next((line[8:] for line in lines if line.startswith(b"Status: ")), b"200 OK")
        kept = [line for line in lines if not line.startswith(b"Status: ")]
        kept += [b"Content-Length: %d" % len(answer)]
        return b"HTTP/1.0 " + b"\r\n".join([status, *kept]) + b"\r\n\r\n", answer


@contextmanager
def serving_git(root: Path) -> Iterator[GitServer]:
    """A server on a port of its own."""
    server = GitServer(root)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.ended.set()
        server.shutdown()
        thread.join()
        server.server_close()
