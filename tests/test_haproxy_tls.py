"""E2B's SDK as its users have it, with a domain alone: names and TLS by the shipped balancer, an authority of ours."""

import json
import os
import secrets
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.deployment import BALANCER_IMAGE, BUILD_TIMEOUT_S, ROOT
from tests.live.e2b import KEY, SDKS, TEMPLATES
from tests.live.serving import free_port, serving, until
from tests.names import balancer, certificate, names
from tests.test_haproxy import archive, in_rotation, reachable

DOMAIN = "boxes.test"
PROGRAM = r"""
import base64, hashlib, http.server

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.headers.get("upgrade") != "websocket":
            self.send_response(200)
            self.send_header("content-length", "5")
            self.end_headers()
            self.wfile.write(b"hello")
            return
        key = self.headers["sec-websocket-key"].encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("upgrade", "websocket")
        self.send_header("connection", "Upgrade")
        self.send_header("sec-websocket-accept", base64.b64encode(hashlib.sha1(key).digest()).decode())
        self.end_headers()
        while head := self.rfile.read(2):  # short frames only
            mask, size = self.rfile.read(4), head[1] & 127
            data = bytes(byte ^ mask[at & 3] for at, byte in enumerate(self.rfile.read(size)))
            self.wfile.write(bytes([head[0], size]) + data)
            if head[0] & 15 == 8:
                break
        self.close_connection = True
    def log_message(self, *words): pass

http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
"""
SCRIPT = """
import json, os, sys, time
import httpx
from e2b import Sandbox, Template
from websockets.sync.client import connect

os.chdir(sys.argv[1])
Template.build(Template().from_template("base").copy("note.txt", "/srv/"), "noted", cpu_count=1, memory_mb=512)
box = Sandbox.create("noted", timeout=600)
box.files.write("/tmp/program.py", open("program.py").read())
program = box.commands.run("python3 /tmp/program.py", background=True)
host, tries = box.get_host(8000), 0
while (answer := httpx.get(f"https://{host}")).status_code == 502 and tries < 50:
    tries += 1
    time.sleep(0.2)
with connect(f"wss://{host}/", compression=None, open_timeout=60) as socket:
    socket.send("over TLS")
    echo = socket.recv()
signed = httpx.get(box.download_url("/srv/note.txt", user="root"))
listed = [one.sandbox_id for one in Sandbox.list().next_items()] == [box.sandbox_id]
domain = host.partition(".")[2]
print(json.dumps({
    "host": domain, "said": box.commands.run("cat /srv/note.txt").stdout, "answer": answer.text, "echo": echo,
    "signed": signed.text, "listed": listed, "killed": box.kill(),
    "deleted": httpx.delete(
        f"https://api.{domain}/templates/noted", headers={"X-API-Key": os.environ["E2B_API_KEY"]}
    ).status_code,
}))
"""


@pytest.mark.timeout(BUILD_TIMEOUT_S)
def test_the_sdk_needs_a_domain_alone(
    engine: Any, deployed_images: None, tmp_path: Path, missing: Callable[[str], None]
) -> None:
    """A link over plain HTTP, a name that leads nowhere, a header that the balancer eats."""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        missing("root and unshare, for a name server of the test's own")
    address, ports = f"127.{secrets.randbelow(200) + 20}.7.7", {name: free_port() for name in ("5000", "8404")}
    (data := tmp_path / "data").mkdir()
    authority, pem = certificate(tmp_path, DOMAIN)
    (tmp_path / "resolv.conf").write_text(f"nameserver {address}\n")
    (tmp_path / "note.txt").write_text("copied\n")
    (tmp_path / "program.py").write_text(PROGRAM)
    rows = ROOT / "examples" / "instances.jsonl"
    with serving(data, rows, box_templates=TEMPLATES, box_domain=DOMAIN) as server, names(address, DOMAIN):
        text, tls = balancer(address, ports)
        haproxy = engine.containers.create(
            BALANCER_IMAGE,
            ["haproxy", "-W", "-db", "-f", "/etc/haproxy/haproxy.cfg", "-f", "/etc/haproxy/boxes.cfg"],
            environment={"SANDBOX_SERVERS": server.url.removeprefix("http://"), "SANDBOX_BOX_DOMAIN": DOMAIN},
            network_mode="host",
            user="root",  # the port is below 1024, on the host's own network here
        )
        try:
            for name, content in (("haproxy.cfg", text), ("boxes.cfg", tls), ("certificates/boxes.pem", pem)):
                haproxy.put_archive("/etc/haproxy", archive(name, content.encode()))
            haproxy.start()
            operations = f"http://{address}:{ports['8404']}"
            until(lambda: reachable(operations) and in_rotation(operations), what=f"in rotation: {haproxy.logs()}")
            done = subprocess.run(
                [
                    *("unshare", "-m", "sh", "-c", 'mount --bind "$0" /etc/resolv.conf && exec "$@"'),
                    *(str(tmp_path / "resolv.conf"), str(SDKS / "e2b-newest" / "bin" / "python"), "-c", SCRIPT),
                    str(tmp_path),
                ],
                env={"PATH": os.environ["PATH"], "E2B_DOMAIN": DOMAIN, "E2B_API_KEY": KEY, "no_proxy": "*"}
                | {"SSL_CERT_FILE": str(authority), "HOME": str(tmp_path)},
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert done.returncode == 0, (done.stderr[-3000:], haproxy.logs(tail=20).decode())
            assert json.loads(done.stdout.splitlines()[-1]) == {
                "host": DOMAIN,
                "said": "copied\n",
                "answer": "hello",
                "echo": "over TLS",
                "signed": "copied\n",
                "listed": True,
                "killed": True,
                "deleted": 204,
            }
        finally:
            haproxy.remove(force=True, v=True)
