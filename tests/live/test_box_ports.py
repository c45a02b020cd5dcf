"""Ports of boxes by host name, through the box's own server and through another node."""

import hashlib
import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from .e2b import TEMPLATES, Control
from .fleet import fleet
from .serving import Server, docker, until

DOMAIN = "boxes.example"
PORT = 8001
PROGRAM = Path(__file__).with_name("port_program.py").read_text()
"""The server in the boxes; its argument is the port."""


@pytest.fixture(scope="module")
def servers(rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    """Two nodes of one fleet that require API keys."""
    settings = {
        "box_templates": TEMPLATES,
        "box_domain": DOMAIN,
        "box_port_idle_s": 3,
        "box_origins": "https://app.example",
        "box_port_connections": 3,
        "pool_size": 0,
        "max_body_mb": 1,
    }
    with fleet(tmp_path_factory.mktemp("ports"), rows, 2, **settings) as (servers, _):
        yield servers


class Box:
    """A box whose program listens on its loopback interface."""

    def __init__(self, servers: list[Server], **body: object) -> None:
        self.control = Control(servers[0])
        self.made = self.control.create(**{"timeout": 1800, **body})  # outlasts all tests of the file
        self.sid = str(self.made["sandboxID"])
        (self.own,) = [server for server in servers if server.containers(f"sid={self.sid}")]
        (self.container,) = self.own.containers(f"sid={self.sid}")
        docker("exec", "-d", self.container, "python3", "-c", PROGRAM, str(PORT))
        until(lambda: self.ask(self.own, "GET", "/").status_code == 200, 10, "its program")

    def host(self, port: object = PORT) -> str:
        """The host name of a port."""
        return f"{port}-{self.sid}.{DOMAIN}"

    def ask(self, server: Server, method: str, path: str, port: object = PORT, **options: Any) -> httpx.Response:
        """Send one request, without an API key."""
        headers = {"Host": self.host(port), **options.pop("headers", {})}
        return httpx.request(method, server.url + path, headers=headers, timeout=30, trust_env=False, **options)

    def stream(self, server: Server, path: str) -> Any:
        """Stream an answer."""
        return httpx.stream("GET", server.url + path, headers={"Host": self.host()}, timeout=30, trust_env=False)

    def tunnels(self) -> int:
        """Number of tunnel processes in the box."""
        return docker("exec", self.container, "ps", "-eo", "args").count("/dev/tcp")


@pytest.fixture(scope="module")
def box(servers: list[Server]) -> Iterator[Box]:
    """A box without a network."""
    box = Box(servers, allow_internet_access=False)
    yield box
    box.control.kill(box.sid)


@pytest.fixture(params=["own", "other"])
def server(request: pytest.FixtureRequest, servers: list[Server], box: Box) -> Server:
    """The box's own node, or the other."""
    return next(server for server in servers if (server is box.own) == (request.param == "own"))


def test_a_create_names_the_domain(box: Box) -> None:
    """Without a domain the SDK builds a host name of E2B's own service."""
    info = box.control.call("GET", f"/sandboxes/{box.sid}").json()
    again = box.control.call("POST", f"/sandboxes/{box.sid}/connect", {"timeout": 60}).json()
    assert box.made["domain"] == info["domain"] == again["domain"] == DOMAIN
    assert (
        box.made["trafficAccessToken"] == again["trafficAccessToken"] and info["network"]["allowPublicTraffic"] is True
    )


@pytest.mark.parametrize("method", ["GET", "PATCH"])
def test_a_request_arrives_as_it_was(server: Server, box: Box, method: str) -> None:
    """A path is decoded, a header of the service or a hop-by-hop header is passed on, or a cookie is lost."""
    sent = {"X-Own": "1", "Connection": "close, x-secret", "X-Secret": "2", "TE": "trailers", "X-API-KEY": "theirs"}
    answer = box.ask(server, method, "/v1/sessions/a%2Fb?q=%20", headers=sent)
    seen, path, items = answer.json()
    headers = {name.lower(): value for name, value in items}
    assert (seen, path) == (method, "/v1/sessions/a%2Fb?q=%20")
    assert headers["host"] == box.host() and headers["x-own"] == "1" and headers["x-api-key"] == "theirs"
    assert dict(items)["Host"] == box.host() and headers["connection"] == "close" and len(headers) == len(items)
    assert not headers.keys() & {"x-secret", "te", "sandbox-forwarded", "idempotency-key", "transfer-encoding"}
    assert answer.headers.get_list("set-cookie") == ["a=1", "b=2"]
    assert "x-hop" not in answer.headers and len(answer.headers.get_list("date")) == 1
    assert "BaseHTTP" in answer.headers["server"] and "uvicorn" not in answer.headers["server"]


def test_answers_without_a_body(server: Server, box: Box) -> None:
    """A client waits for a body that never comes."""
    assert box.ask(server, "HEAD", "/").headers["content-length"].isdigit()
    kept = box.ask(server, "GET", "/kept")
    assert (kept.status_code, kept.headers["etag"], kept.content) == (304, '"a"', b"")


def test_any_status_is_one_answer(server: Server, box: Box) -> None:
    """A program's 421 is taken for a node's, and its request sent again and again; one above 599 ends in a 500."""
    docker("exec", box.container, "rm", "-f", "/tmp/asked")
    for status, told in ((421, 421), (599, 599), (600, 502), (999, 502)):
        answer = box.ask(server, "GET", f"/status?{status}")
        assert answer.status_code == told, (status, answer.text)
        assert (answer.text == "said") is (status == told)
    assert docker("exec", box.container, "cat", "/tmp/asked").split() == ["421", "599", "600", "999"]
    assert not [entry for entry in server.entries() if entry["event"] == "unforeseen error"]


def test_large_bodies_flow(server: Server, box: Box) -> None:
    """The limit on bodies is applied to streams, or bytes are lost between chunks."""
    piece = bytes(range(256)) * 4096
    whole = hashlib.sha256(piece * 20).hexdigest()
    assert box.ask(server, "POST", "/", content=piece * 20).json() == [20 << 20, whole]
    assert box.ask(server, "POST", "/", content=iter([piece] * 20)).json() == [20 << 20, whole]
    with box.stream(server, f"/big?{20 << 20}") as answer:
        assert sum(map(len, answer.iter_raw())) == 20 << 20


def test_an_answer_flows_as_it_is_written(server: Server, box: Box) -> None:
    """An answer is buffered until it is complete, or a slow but active one is cut off."""
    began, came = time.monotonic(), []
    with box.stream(server, "/ticks?18") as answer:  # takes longer than the idle limit of a stream
        came += [time.monotonic() - began for _ in answer.iter_lines()]
    assert len(came) == 18 and came[-1] - came[0] > 1


def test_both_ways_at_once(box: Box) -> None:
    """An exchange in which each side waits for the other's data never ends."""
    address = httpx.URL(box.own.url)
    with socket.create_connection((address.host, address.port or 80), timeout=10) as wire:
        wire.sendall(f"POST /echo HTTP/1.1\r\nHost: {box.host()}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        seen = b""
        for word in (b"first", b"second"):
            wire.sendall(b"%x\r\n%s\r\n" % (len(word), word))
            while word not in seen:
                seen += wire.recv(1000) or pytest.fail(f"hung up after {seen!r}")
        wire.sendall(b"0\r\n\r\n")
        while not seen.endswith(b"\r\n0\r\n\r\n"):
            seen += wire.recv(1000) or pytest.fail(f"hung up after {seen!r}")


def test_an_answer_before_the_request_is_whole(box: Box) -> None:
    """A refusal is lost because nobody reads the rest of the upload."""
    address = httpx.URL(box.own.url)
    with socket.create_connection((address.host, address.port or 80), timeout=10) as wire:
        wire.sendall(f"POST /refused HTTP/1.1\r\nHost: {box.host()}\r\nContent-Length: 99\r\n\r\nx".encode())
        seen = b""
        while b"much" not in seen:
            seen += wire.recv(1000) or pytest.fail(f"hung up after {seen!r}")
    assert seen.startswith(b"HTTP/1.1 413")


def test_nothing_is_left_of_a_client_that_hung_up(server: Server, box: Box) -> None:
    """A program writes forever to a disconnected client, or tunnel processes pile up in the box."""
    docker("exec", box.container, "rm", "-f", "/tmp/left")
    with box.stream(server, "/ticks?1000") as answer:
        next(answer.iter_lines())
    until(lambda: "left" in docker("exec", box.container, "ls", "/tmp").split(), 10, "told that the client left")
    until(lambda: not box.tunnels(), 10, "no tunnel left")


def test_what_is_cut_off_does_not_look_whole(server: Server, box: Box) -> None:
    """A truncated answer is taken for a complete one."""
    with pytest.raises(httpx.RemoteProtocolError):
        box.ask(server, "GET", "/cut")


def test_refusals(server: Server, box: Box) -> None:
    """A client cannot distinguish a program that does not listen yet from a box that is gone."""
    closed = box.ask(server, "GET", "/", 8002)
    assert closed.status_code == 502
    text = "The sandbox is running but port is not open"
    assert closed.json() == {"sandboxId": box.sid, "message": text, "port": 8002, "code": 502}
    for host in (f"{PORT}-9999.{DOMAIN}", f"{PORT}-x{box.sid}.{DOMAIN}", f"{PORT}-9999.{DOMAIN.upper()}:443"):
        gone = httpx.get(server.url, headers={"Host": host}, trust_env=False)
        assert gone.status_code == 502 and gone.json()["message"] == "The sandbox was not found", host
    assert [box.ask(server, "GET", "/", port).status_code for port in (0, 65536, 10**9)] == [400] * 3
    assert httpx.get(f"{server.url}/", headers={"Host": DOMAIN}, trust_env=False).status_code == 404


def asks_for_a_websocket(server: Server, host: str, path: str) -> socket.socket:
    """A connection that has sent the head of a request for one."""
    address = httpx.URL(server.url)
    wire = socket.create_connection((address.host, address.port or 80), timeout=20)
    head = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
    wire.sendall(f"{head}Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode())
    return wire


def test_a_websocket_passes_through(server: Server, box: Box) -> None:
    """Programs that show themselves by websockets cannot be used; a silent one holds its tunnel forever."""
    with asks_for_a_websocket(server, box.host(), "/socket") as wire, wire.makefile("rb") as stream:
        head = list(iter(stream.readline, b"\r\n"))
        assert head[0].startswith(b"HTTP/1.1 101 ") and b"x-own: 1\r\n" in head, head
        assert b"upgrade: websocket\r\n" in head, head
        for piece in (b"\x81\x00", bytes(range(256)) * 8192):
            with ThreadPoolExecutor(1) as threads:  # both directions at once: neither side holds 2 MB
                sending = threads.submit(wire.sendall, piece)
                assert stream.read(len(piece)) == piece
                sending.result()
        began = time.monotonic()
        assert stream.read(1) == b"" and time.monotonic() - began > 2  # box_port_idle_s
    until(lambda: not box.tunnels(), 10, "no tunnel left")


def test_a_refused_websocket_is_an_answer(server: Server, box: Box) -> None:
    """What follows on the connection reaches the box past all checks, as if it were the websocket's bytes."""
    for host, path, status in ((box.host(), "/", 200), (box.host(8002), "/", 502), ("other.example", "/healthz", 200)):
        with asks_for_a_websocket(server, host, path) as wire:
            wire.sendall(f"GET /after HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            seen = b"".join(iter(lambda wire=wire: wire.recv(65536), b""))  # type: ignore[misc]
        assert seen.startswith(b"HTTP/1.1 %d" % status), seen
        assert seen.count(b"HTTP/1.1 ") == 1 and b"/after" not in seen, seen


def test_bounds(box: Box) -> None:
    """A program that never answers blocks its client forever, or many clients fill the box with tunnels."""
    silent = (
        "import socket, time; s = socket.create_server(('', 8003)); c = [s.accept() for _ in range(3)]; time.sleep(99)"
    )
    docker("exec", "-d", box.container, "timeout", "60", "python3", "-c", silent)
    until(lambda: ":1F43" in docker("exec", box.container, "cat", "/proc/net/tcp"), 10, "listening")
    with ThreadPoolExecutor(5) as threads:
        answers = list(threads.map(lambda _: box.ask(box.own, "GET", "/", 8003), range(5)))
    statuses = sorted(answer.status_code for answer in answers)
    assert statuses == [503, 503, 504, 504, 504], [answer.text for answer in answers]
    docker("exec", box.container, "pkill", "-f", "^python3.*s.accept")


def test_envd_by_its_own_name(server: Server, box: Box) -> None:
    """The SDK's newer releases and signed URLs name the box by the host alone."""
    token = {"X-Access-Token": box.made["envdAccessToken"]}
    assert box.ask(server, "GET", "/health", 49983, headers=token).status_code == 204
    assert box.ask(server, "GET", "/health", 49983, headers={"X-Access-Token": "wrong"}).status_code == 401
    docker("exec", box.container, "sh", "-c", f"echo {box.sid} > /tmp/name")
    path = {"params": {"path": "/tmp/name", "username": "root"}}
    assert box.ask(server, "GET", "/files", 49983, headers=token, **path).text == f"{box.sid}\n"


def test_the_traffic_token(servers: list[Server]) -> None:
    """A private box is open to everybody; or a box that dies during a request is not reported."""
    network = {"allowPublicTraffic": False, "maskRequestHost": "own.example:${PORT}"}
    made = Control(servers[0]).create(network=network)
    token, sid = made["trafficAccessToken"], made["sandboxID"]
    (container,) = [found for server in servers for found in server.containers(f"sid={sid}")]
    docker("exec", "-d", container, "python3", "-c", PROGRAM, str(PORT))

    def ask(server: Server, **headers: str) -> httpx.Response:
        named = {"Host": f"{PORT}-{sid}.{DOMAIN}", **{name.replace("_", "-"): text for name, text in headers.items()}}
        return httpx.get(server.url, headers=named, timeout=30, trust_env=False)

    until(lambda: ask(servers[0], e2b_traffic_access_token=token).status_code == 200, 10, "its program")
    for server in servers:
        assert "is missing" in ask(server).json()["message"] and ask(server).status_code == 403
        assert ask(server, e2b_traffic_access_token="wrong").status_code == 403
        headers = {name.lower(): text for name, text in ask(server, e2b_traffic_access_token=token).json()[2]}
        assert headers["host"] == f"own.example:{PORT}" and token not in json.dumps(headers)
    named = {"Host": f"{PORT}-{sid}.{DOMAIN}", "e2b-traffic-access-token": token}
    with httpx.stream("GET", servers[0].url + "/ticks?100", headers=named, timeout=30, trust_env=False) as answer:
        lines = answer.iter_lines()
        next(lines)
        Control(servers[0]).kill(sid)
        with pytest.raises(httpx.RemoteProtocolError):
            list(lines)
    for server in servers:
        gone = ask(server, e2b_traffic_access_token=token)
        assert gone.status_code == 502
        assert gone.json() == {"sandboxId": sid, "message": "The sandbox was not found", "code": 502}
    assert not [entry for server in servers for entry in server.entries() if entry["event"] == "unforeseen error"]


def test_a_paused_box(servers: list[Server]) -> None:
    """A request does not resume a paused box that was created to resume on traffic, or resumes one that was not."""
    for wakes, status in ((True, 200), (False, 502)):
        box = Box(servers, autoPause=True, autoResume={"enabled": wakes})
        assert box.control.call("POST", f"/sandboxes/{box.sid}/pause").status_code == 204
        for server in servers:
            assert box.ask(server, "GET", "/").status_code == status
        state = box.control.call("GET", f"/sandboxes/{box.sid}").json()["state"]
        assert state == ("running" if wakes else "paused")
        box.control.kill(box.sid)


def test_ports_by_headers(server: Server, box: Box) -> None:
    """Without wildcard DNS nothing reaches a port; or a stranger who guesses the id does; or the box sees its token."""
    named = {"E2b-Sandbox-Id": box.sid, "E2b-Sandbox-Port": str(PORT)}
    own = httpx.URL(server.url).netloc.decode()
    for token, status in (({}, 403), ({"X-Access-Token": "wrong"}, 403), ({"X-Access-Token": ""}, 403)):
        assert box.ask(server, "GET", "/", headers={"Host": own, **named, **token}).status_code == status
    token = {"X-Access-Token": box.made["envdAccessToken"]}
    answer = box.ask(server, "GET", "/a?b", headers={"Host": own, **named, **token})
    assert answer.status_code == 200 and answer.json()[1] == "/a?b", answer.text
    assert box.made["envdAccessToken"] not in answer.text and "e2b-sandbox" not in answer.text.lower()
    traffic = {"e2b-traffic-access-token": box.made["trafficAccessToken"]}
    answer = box.ask(server, "GET", "/a?b", headers={"Host": own, **named, **traffic})  # a code interpreter's contexts
    assert answer.status_code == 200 and box.made["trafficAccessToken"] not in answer.text
    envd = box.ask(
        server, "GET", "/files?path=/etc/hostname", headers={"Host": own, **traffic, "E2b-Sandbox-Id": box.sid}
    )
    assert envd.status_code == 401, "it opens more than ports"
    assert box.ask(server, "GET", "/").status_code == 200, "by name the port is public"
    closed = box.ask(server, "GET", "/", headers={"Host": own, **named, **token, "E2b-Sandbox-Port": "8002"})
    assert closed.status_code == 502 and closed.json()["port"] == 8002
    health = {"Host": own, **named, **token, "E2b-Sandbox-Port": "49983"}
    assert box.ask(server, "GET", "/health", headers=health).status_code == 204


def test_web_pages_of_named_origins(servers: list[Server], box: Box) -> None:
    """A browser keeps E2B's SDK from reading answers, or lets any page; or a program does not answer for itself."""
    asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-api-key,content-type"}

    def preflight(origin: str, **host: str) -> httpx.Response:
        headers = {"Origin": origin, **asks, **host}
        return httpx.options(f"{servers[0].url}/v2/sandboxes", headers=headers, timeout=30, trust_env=False)

    ours, other = preflight("https://app.example"), preflight("https://elsewhere.example")
    assert (ours.status_code, other.status_code) == (200, 400)
    assert ours.headers["access-control-allow-origin"] == "https://app.example"
    assert "x-api-key" in ours.headers["access-control-allow-headers"]
    assert "access-control-allow-origin" not in other.headers
    envd = preflight("https://app.example", Host=box.host(49983))
    assert envd.headers["access-control-allow-origin"] == "https://app.example"
    listed = box.control.call("GET", "/v2/sandboxes")
    assert "access-control-allow-origin" not in listed.headers  # no browser
    theirs = Control(servers[0], Origin="https://app.example").call("GET", "/v2/sandboxes")
    assert theirs.headers["access-control-allow-origin"] == "https://app.example"
    assert "X-Next-Token" in theirs.headers["access-control-expose-headers"]  # without it a list is its first page
    assert preflight("https://app.example", Host=box.host()).status_code == 501  # the program's own answer
