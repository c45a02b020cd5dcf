"""A server in a box, for `test_box_ports.py`: its answers are what proxies tend to change. Its argument is the port."""

import hashlib
import http.server
import json
import sys
import time


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *words):
        pass

    def pieces(self):
        if "chunked" in self.headers.get("transfer-encoding", ""):
            while size := int(self.rfile.readline(), 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            left = int(self.headers.get("content-length", 0))
            while left:
                data = self.rfile.read(min(left, 65536))
                left -= len(data)
                yield data

    def begin(self, *headers, status=200):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()

    def tell(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def do_POST(self):
        if self.path == "/refused":
            self.begin(("content-length", "4"), ("connection", "close"), status=413)
            self.wfile.write(b"much")
            self.close_connection = True
            return
        if self.path == "/echo":
            self.begin(("transfer-encoding", "chunked"))
            for piece in self.pieces():
                self.tell(piece)
            self.wfile.write(b"0\r\n\r\n")
            return
        digest, size = hashlib.sha256(), 0
        for piece in self.pieces():
            digest.update(piece)
            size += len(piece)
        text = json.dumps([size, digest.hexdigest()]).encode()
        self.begin(("content-length", str(len(text))))
        self.wfile.write(text)

    def do_GET(self):  # noqa: C901 -- a branch for each odd answer
        path, _, query = self.path.partition("?")
        if path == "/ticks":
            self.begin(("content-type", "text/event-stream"))
            try:
                for number in range(int(query)):
                    self.wfile.write(b"%d\n" % number)
                    self.wfile.flush()
                    time.sleep(0.2)
            except OSError:
                open("/tmp/left", "w").close()
            self.close_connection = True
        elif path == "/cut":
            self.begin(("content-length", "1000"))
            self.wfile.write(b"x")
            self.close_connection = True
        elif path == "/big":
            self.begin(("content-length", query))
            for _ in range(int(query) >> 20):
                self.wfile.write(bytes(1 << 20))
        elif path == "/socket" and self.headers.get("upgrade") == "websocket":
            self.begin(("upgrade", "websocket"), ("connection", "Upgrade"), ("x-own", "1"), status=101)
            while data := self.rfile.read1(65536):
                self.wfile.write(data)
            self.close_connection = True
        elif path == "/status":
            with open("/tmp/asked", "a") as asked:
                asked.write(query + "\n")
            self.begin(("content-length", "4"), status=int(query))
            self.wfile.write(b"said")
        elif path == "/kept":
            self.begin(("content-length", "7"), ("etag", '"a"'), status=304)
        else:
            text = json.dumps([self.command, self.path, self.headers.items()]).encode()
            self.begin(
                ("content-length", str(len(text))),
                ("connection", "x-hop"),
                ("x-hop", "1"),
                ("set-cookie", "a=1"),
                ("set-cookie", "b=2"),
            )
            if self.command != "HEAD":
                self.wfile.write(text)

    do_HEAD = do_PATCH = do_GET


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
