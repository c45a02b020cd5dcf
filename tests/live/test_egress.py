"""Egress rules: a box reaches only what it may, whichever user tries, and whatever happens to its container."""

import json
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from tests.deployment import bridge_gateway
from tests.names import names

from .e2b import TEMPLATES, Control, sdk
from .serving import Server, docker, serving, until

IMAGE = "sandbox-egress:latest"
FAR = f"198.18.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"
"""An address of this host that stands for one of the Internet; dnsmasq refuses answers with private ones."""
DOMAIN = "far.test"
_ASK = """
import socket, sys
def ask(host, port):
    try:
        with socket.create_connection((host, port), 3) as connection:
            connection.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
            with connection.makefile() as answer:
                return answer.read()[-2:]
    except TimeoutError:
        return ""
    except OSError as error:
        return "OSError %d" % error.errno
for place in sys.argv[1:]:
    host, _, port = place.rpartition(":")
    for _ in range(10):  # a bridge that takes another address loses its containers for a while
        said = ask(host, int(port))
        if said:
            break
    print(said or "no answer")
"""


class _Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hi")

    def log_message(self, format: str, *args: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture(scope="module")
def ports() -> Iterator[tuple[int, int]]:
    """Ports of two HTTP servers on all addresses of this host."""
    with ExitStack() as stack:
        found = []
        for _ in range(2):
            http = stack.enter_context(ThreadingHTTPServer(("0.0.0.0", 0), _Answer))
            threading.Thread(target=http.serve_forever, daemon=True).start()
            stack.callback(http.shutdown)
            found.append(http.server_port)
        yield found[0], found[1]


@pytest.fixture(scope="module")
def gateway() -> str:
    """This host's address on the network of boxes."""
    return bridge_gateway()


@pytest.fixture(scope="module")
def elsewhere() -> str:
    """Another address of this host that boxes can reach."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing
        return str(probe.getsockname()[0])


@pytest.fixture(scope="module")
def name_server(gateway: str) -> Iterator[str]:
    """A name server that boxes can reach: what is below DOMAIN is FAR, but for a name with a private address."""
    subprocess.run(["ip", "address", "add", f"{FAR}/32", "dev", "lo"], check=True, timeout=10)
    try:
        answer = {f"private.{DOMAIN}": gateway}
        with names(gateway, DOMAIN, port=0, answer=lambda name: answer.get(name, FAR)) as port:
            yield f"{gateway}:{port}"
    finally:
        subprocess.run(["ip", "address", "del", f"{FAR}/32", "dev", "lo"], check=True, timeout=10)


@pytest.fixture(scope="module")
def server(
    rows: Path, tmp_path_factory: pytest.TempPathFactory, gateway: str, ports: tuple[int, int], name_server: str
) -> Iterator[Server]:
    settings = {
        "box_templates": TEMPLATES,
        "reaper_period_s": 0.5,
        "pool_size": 0,
        "box_egress": f"{gateway}:{ports[0]},*.{DOMAIN}:{ports[0]}",
        "egress_dns": name_server,
    }
    with serving(tmp_path_factory.mktemp("egress"), rows, **settings) as server:
        yield server


def container_of(server: Server, sid: str) -> str:
    (container,) = server.containers(f"sid={sid}")
    return container


def asked(container: str, *places: str) -> list[str]:
    """Output of root's request to each address, sent from the container."""
    return docker("exec", container, "python3", "-c", _ASK, *places).splitlines()


def test_a_box_reaches_what_it_may_and_nothing_else(
    server: Server, control: Control, gateway: str, elsewhere: str, ports: tuple[int, int]
) -> None:
    """An agent fetches the solution from the network or sends data out; or root removes the rules."""
    allowed, other = ports
    places = (f"{gateway}:{allowed}", f"{gateway}:{other}", f"{elsewhere}:{allowed}")
    open_to_all = docker("run", "-d", "--rm", "sandbox-samples/base:latest", "sleep", "60").strip()
    try:
        assert asked(open_to_all, *places) == ["hi"] * 3, "the addresses tell nothing on this host"
    finally:
        docker("rm", "-f", open_to_all)
    box = container_of(server, control.create()["sandboxID"])
    closed = ["hi", "OSError 113", "OSError 113"]
    assert asked(box, *places) == closed
    resolving = subprocess.run(["docker", "exec", box, "getent", "hosts", "example.org"], timeout=60, check=False)
    assert resolving.returncode, "names are resolved: a way out"

    helper = docker("create", IMAGE).strip()
    try:
        tools = subprocess.run(["docker", "export", helper], capture_output=True, timeout=60, check=True).stdout
    finally:
        docker("rm", helper)
    docker("exec", box, "mkdir", "/nft")
    subprocess.run(["docker", "exec", "-i", box, "tar", "-C", "/nft", "-x"], input=tools, timeout=60, check=True)
    for words in (["flush", "ruleset"], ["list", "ruleset"]):
        undo = subprocess.run(
            ["docker", "exec", box, "chroot", "/nft", "/usr/sbin/nft", *words],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert "Operation not permitted" in undo.stderr, undo
    assert asked(box, *places) == closed


def test_a_request_gets_less_never_more(server: Server, control: Control, gateway: str, ports: tuple[int, int]) -> None:
    """Rules are accepted but not enforced, or open what the operator closed; also while the box runs."""
    places = [f"{gateway}:{port}" for port in ports]
    wide = control.create(network={"allowOut": ["0.0.0.0/0", "::/0"]})["sandboxID"]
    box = container_of(server, wide)
    assert asked(box, *places) == ["hi", "OSError 113"]
    for body, first in (
        ({"denyOut": [gateway]}, "OSError 113"),
        ({"allowOut": [f"{gateway}:{ports[0]}"], "denyOut": ["0.0.0.0/0"]}, "hi"),
        ({"allowOut": ["192.0.2.7"]}, "OSError 113"),
        ({"allow_internet_access": False}, "OSError 101"),
        ({}, "hi"),
    ):
        answer = control.call("PUT", f"/sandboxes/{wide}/network", body)
        assert answer.status_code == 204, answer.text
        assert asked(box, *places)[0] == first, body
        told = control.call("GET", f"/sandboxes/{wide}").json()["network"]
        assert (told["allowOut"], told["denyOut"]) == (body.get("allowOut", []), body.get("denyOut", []))
    assert asked(box, *places) == ["hi", "OSError 113"]
    for some in ({"allowOut": ["*.*.org"]}, {"denyOut": ["example.org"]}, {"denyOut": ["*.example.org"]}):
        assert control.call("POST", "/sandboxes", {"network": some}).status_code == 400


def test_rules_as_the_sdk_sends_them(server: Server, control: Control, gateway: str, ports: tuple[int, int]) -> None:
    """The SDK's rules are interpreted differently here."""
    allowed = ports[0]
    result = sdk(
        server,
        "newest",
        f"""
from e2b import ALL_TRAFFIC, Sandbox
box = Sandbox.create(timeout=60, network={{"allow_out": ["{gateway}"], "deny_out": [ALL_TRAFFIC]}})
ask = "timeout 5 bash -c 'exec 3<>/dev/tcp/{gateway}/{allowed}' && echo open || echo closed"
result = [box.commands.run(ask).stdout]
for rules in ({{"deny_out": ["{gateway}/32"]}}, {{"allow_out": lambda ctx: [ctx.all_traffic]}}):
    box.update_network(rules)
    result.append(box.commands.run(ask).stdout)
box.kill()
""",
    )
    assert result == ["open\n", "closed\n", "open\n"]


def test_a_box_that_others_start_again_is_ended(server: Server, control: Control) -> None:
    """When the engine restarts a container, it gets its network back but not its rules."""
    sid = control.create()["sandboxID"]
    box = container_of(server, sid)
    docker("restart", "-t", "0", box)
    until(lambda: docker("inspect", "-f", "{{.State.Running}}", box).strip() == "false", 10, "ended")
    until(lambda: "without egress rules" in server.log.read_text(), what="said in the log")


_QUERY = """
import socket, sys
host, _, port = sys.argv[1].rpartition(":")
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as wire:
    try:
        wire.sendto(b"data", (host, int(port)))
    except PermissionError:
        print("refused")
"""


def test_names_below_a_domain(server: Server, control: Control, ports: tuple[int, int], name_server: str) -> None:
    """An address is open that nobody was told, or not the one that was; queries carry data to others."""
    port, other = ports
    sid = control.create()["sandboxID"]
    box = container_of(server, sid)
    closed, unknown = "OSError 113", "OSError -3"
    names = (f"{FAR}:{port}", f"a.{DOMAIN}:{port}", f"{FAR}:{port}", f"a.{DOMAIN}:{other}", f"a.elsewhere.test:{port}")
    assert asked(box, *names) == [closed, "hi", "hi", closed, unknown]
    assert asked(box, f"private.{DOMAIN}:{port}") == ["OSError -5"], "a domain's owner opens a private address"
    assert docker("exec", box, "python3", "-c", _QUERY, name_server).strip() == "refused"

    path = f"/sandboxes/{sid}/network"
    assert control.call("PUT", path, {"allowOut": [f"*.b.{DOMAIN}"]}).status_code == 204
    assert asked(box, f"{FAR}:{port}", f"a.{DOMAIN}:{port}", f"a.b.{DOMAIN}:{port}") == [closed, closed, "hi"]
    assert control.call("PUT", path, {"allowOut": [name_server.partition(":")[0]]}).status_code == 204
    assert asked(box, f"a.{DOMAIN}:{port}") == [closed], "a rule of the operator's alone opens it"
    control.kill(sid)
    until(lambda: not docker("ps", "-aq", "--filter", f"label=sandbox.resolver={box}"), 10, "its name server is gone")


def test_what_was_refused_is_counted(server: Server, rows: Path, ports: tuple[int, int]) -> None:
    """Nobody learns that a policy looks for the solution on the network; or it hides that by going back."""
    row = next(row for row in map(json.loads, rows.read_text().splitlines()) if "__timespan" in row["instance_id"])
    path = server.folder / "open.jsonl"
    sandbox = {**row["sandbox"], "network": "bridge"}
    path.write_text(json.dumps({**row, "instance_id": "samples__open-1", "sandbox": sandbox}))
    server.cli("instances", "import", str(path))
    sid = server.begin("samples__open-1")
    ask = f"timeout 9 bash -c 'exec 3<>/dev/tcp/{FAR}/{ports[1]}'"
    server.run(sid, f"{ask}; {ask}")
    answer = httpx.post(f"{server.url}/v1/sessions/{sid}/rollback", json={"to": 0}, timeout=60)
    assert answer.status_code == 200, answer.text
    server.run(sid, f"{ask}; getent hosts elsewhere.test")
    server.finish(sid)
    receipt = server.get(f"/v1/receipts/{server.reward(sid)['receipt']}")
    assert receipt["tripwires"].keys() == {"egress:refused"}
    refused = receipt["tripwires"]["egress:refused"]
    assert refused >= 4, "two before it went back, one after it, and a name"
    assert server.session(sid)["egress_refused"] == refused
    overview = server.get("/v1/overview")
    assert (overview["tripwires"], overview["tripped"]) == ({"egress:refused": 1}, {"egress:refused": [sid]})
    link = f'egress:refused in 1 session: <a href="/ui/sessions/{sid}">'
    assert link in httpx.get(f"{server.url}/ui", timeout=60).text
    assert 'sandbox_tripwires_total{sign="egress:refused"} 1.0' in httpx.get(f"{server.url}/metrics", timeout=60).text
