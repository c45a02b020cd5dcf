"""Prices over HTTP: GET /NAME reads one, PUT /NAME changes it."""

from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path


class Prices(BaseHTTPRequestHandler):
    def _answer(self, status, body=b""):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        file = Path("/srv/prices", Path(self.path).name)
        self._answer(200, file.read_bytes()) if file.is_file() else self._answer(404)

    def do_PUT(self):
        length = int(self.headers["Content-Length"])
        Path("/srv/prices", Path(self.path).name).write_bytes(self.rfile.read(length))
        self._answer(200)


HTTPServer(("", 8080), Prices).serve_forever()
