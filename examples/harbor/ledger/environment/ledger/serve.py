"""A ledger in memory over HTTP: PUT /NAME enters an amount, GET / shows all, sorted."""

import time
from http.server import BaseHTTPRequestHandler, HTTPServer

entries = {}


class Ledger(BaseHTTPRequestHandler):
    def _answer(self, body=b""):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self._answer("".join(f"{name} {amount}\n" for name, amount in sorted(entries.items())).encode())

    def do_PUT(self):
        entries[self.path.strip("/")] = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self._answer()


time.sleep(1)
HTTPServer(("", 8080), Ledger).serve_forever()
