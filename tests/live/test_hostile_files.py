"""Files that a policy creates to harm their readers or writers: links, pipes, devices, holes, arbitrary names."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from .serving import Server, docker, until

IMAGE = "sandbox-samples/ledger:latest"
MOST_KB = 96 << 10
"""Limit on the growth of the server's memory by a single file."""

LAY_OUT = r"""
cd /tmp; ln -s /dev/zero zero; ln -s loop loop; ln -s /etc out; ln -s /tmp/../../../etc/passwd up
mkfifo pipe; truncate -s 9G hole; truncate -s 10T terabytes
python3 - <<'END'
import os, socket
os.mkdir(b'/tmp/names')
for name in (b'\xff\xfe', b'a\nb', b'\x1b[31m', b' ', b'-rf', 'ü'.encode(), b'x' * 255, b'\\', b'"'):
    open(b'/tmp/names/' + name, 'w').write('whole')
socket.socket(socket.AF_UNIX).bind('/tmp/socket')
END
nohup sh -c 'while :; do ln -sfn /etc race 2>/dev/null; rm -rf race; mkdir -p race; done' > /dev/null 2>&1 &
"""


class Box:
    """One box, with access to its files."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.http = httpx.Client(base_url=server.url, timeout=120)
        wanted = {"image": IMAGE, "user": "root", "lifetime_s": 600, "network": "none"}
        self.sid = str(self.http.post("/v1/boxes", json=wanted, timeout=120).raise_for_status().json()["sid"])
        self.files = f"/v1/boxes/{self.sid}/files"
        self.container = server.containers(f"sid={self.sid}")[0]

    def run(self, cmd: str) -> str:
        body = {"cmd": cmd, "wait_s": 60, "timeout_s": 60}
        return str(self.http.post(f"/v1/boxes/{self.sid}/commands", json=body, timeout=90).json()["stdout"])

    def first(self, path: str, most: int = 1 << 20) -> tuple[int, bytes]:
        """Return the status and first bytes of a download, then disconnect."""
        with self.http.stream("GET", self.files, params={"path": path}) as answer:
            came = b""
            for chunk in answer.iter_bytes():
                came += chunk
                if len(came) >= most:
                    break
            return answer.status_code, came[:most]

    def processes(self) -> int:
        return len(docker("top", self.container).splitlines())


def resident_kb(server: Server) -> int:
    assert server._process is not None
    return int(Path(f"/proc/{server._process.pid}/status").read_text().split("VmRSS:")[1].split()[0])


@pytest.fixture(scope="module")
def box(live: Server) -> Iterator[Box]:
    box = Box(live)
    box.run(LAY_OUT)
    box.first("/etc/passwd")  # exec channels that stay are opened now
    box.http.put(box.files, params={"path": "/tmp/first"}, content=b"text")
    yield box
    box.http.delete(f"/v1/boxes/{box.sid}")
    box.http.close()


def test_what_is_no_file_is_refused_and_read_by_nobody(box: Box) -> None:
    """A pipe or a device would be read forever, in the container or in the server."""
    before, memory = box.processes(), resident_kb(box.server)
    for path in ("/tmp/pipe", "/tmp/socket", "/dev/zero", "/tmp/zero", "/tmp/loop", "/tmp", "/tmp/out", "/dev/tty"):
        status, came = box.first(path)
        assert status in (400, 404, 409, 422), (path, status, came[:100])
        answer = box.http.put(box.files, params={"path": path}, content=b"text")
        swallows = path.endswith("zero")  # a device that takes what is written, and keeps nothing
        assert answer.status_code == 200 if swallows else answer.status_code in (400, 404, 409, 422), (
            path,
            answer.text,
        )
    until(lambda: box.processes() <= before, 60, "what read or wrote them is gone")
    assert resident_kb(box.server) - memory < MOST_KB


def test_a_hole_costs_nothing(box: Box) -> None:
    """A download would fill the server's memory, or continue after its client disconnected."""
    assert box.run("stat -c %s /tmp/terabytes") in ("", "0\n"), "past SANDBOX_DISK_MB"
    before, memory = box.processes(), resident_kb(box.server)
    for _ in range(3):
        status, came = box.first("/tmp/hole", 8 << 20)
        assert (status, came) == (200, bytes(8 << 20))
    until(lambda: box.processes() <= before, 60, "the readers of clients that hung up are gone")
    assert resident_kb(box.server) - memory < MOST_KB


def test_an_upload_that_breaks_off_leaves_no_process(box: Box) -> None:
    """Each would occupy one of the box's few processes."""
    before = box.processes()
    host, port = box.server.url.removeprefix("http://").split(":")
    for number in range(6):
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            head = f"PUT {box.files}?path=/tmp/half{number} HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n"
            connection.sendall(head.encode() + b"x" * 100_000)
    until(lambda: box.processes() <= before, 60, "the writers are gone")
    assert box.http.put(box.files, params={"path": "/tmp/whole"}, content=b"whole").status_code == 200


def test_links_lead_only_within_the_box(box: Box) -> None:
    """A policy could make a path lead to the host."""
    assert box.first("/tmp/up") == box.first("/etc/passwd") and b"root:x:0" in box.first("/tmp/up")[1]
    answers = [box.http.put(box.files, params={"path": f"/tmp/race/f{n}"}, content=b"x").status_code for n in range(12)]
    assert set(answers) <= {200, 400, 404, 409, 422, 500, 503} and not Path("/etc/f0").exists()
    assert not [n for n in range(12) if Path(f"/etc/f{n}").exists()]


def test_names_of_any_bytes(box: Box, live: Server) -> None:
    """One name with invalid UTF-8 made E2B's list of the whole folder fail."""
    made = live.post("/sandboxes", {"templateID": "base", "metadata": {"image": IMAGE}, "timeout": 300}).json()
    headers = {"E2b-Sandbox-Id": made["sandboxID"], "X-Access-Token": made["envdAccessToken"]}
    try:
        script = LAY_OUT.split("<<'END'\n")[1].split("END\n")[0]
        body: dict[str, Any] = {"argv": ["python3", "-c", script], "wait_s": 60}
        assert live.post(f"/v1/boxes/{made['sandboxID']}/commands", body).json()["exit_code"] == 0
        answer = live.post("/filesystem.Filesystem/ListDir", {"path": "/tmp/names", "depth": 1}, headers=headers)
        assert answer.status_code == 200, answer.text
        entries = answer.json()["entries"]
        assert len(entries) == 9 and {"ü", "a\nb", "-rf", " ", "\ufffd\ufffd"} <= {entry["name"] for entry in entries}
    finally:
        httpx.delete(f"{live.url}/sandboxes/{made['sandboxID']}", timeout=60)
    for name in ("a\nb", "\x1b[31m", " ", "-rf", "ü", "x" * 255, "\\", '"'):
        assert box.first(f"/tmp/names/{name}") == (200, b"whole"), name
        assert box.http.put(box.files, params={"path": f"/tmp/names/{name}"}, content=b"whole").status_code == 200, name
    raw = httpx.get(f"{live.url}{box.files}?path=/tmp/names/%FF%FE", timeout=30)
    assert raw.status_code in (200, 404, 422), raw.text
