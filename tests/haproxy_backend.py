"""Stands for a server behind the balancer: can be sick, slow, deaf, or die with a request in its hands."""

import os
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

NAME = socket.gethostname()
state = {"sick": False, "taken": 0}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/readyz":
            key = self.headers["X-API-Key"]
            self.answer(401 if key != os.environ["KEY"] else 503 if state["sick"] else 200)
        else:
            self.answer(200)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/sicken":
            state["sick"] = True
        elif self.path == "/slow":
            while not os.path.exists("/tmp/released"):
                time.sleep(0.05)
        elif self.path == "/take":  # and never answer
            state["taken"] += 1
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        elif self.path == "/deafen":
            server.socket.shutdown(socket.SHUT_RDWR)  # closed it would listen on until the poll under way returns
        self.answer(200)

    def answer(self, status: int) -> None:
        body = f"{NAME} {state['taken']} {self.headers.get('Sandbox-Forwarded', '-')}".encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


server = ThreadingHTTPServer(("", 5000), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
threading.Event().wait()
