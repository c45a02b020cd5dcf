"""The balancer, before stand-ins that can be sick, deaf or dying: what it may do to a request and what not."""

import io
import json
import re
import secrets
import tarfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from sandbox_server.settings import Settings
from tests.deployment import BALANCER_IMAGE, BASE_IMAGE, BUILD_TIMEOUT_S, ROOT
from tests.live.e2b import TEMPLATES, sdk_process
from tests.live.serving import free_port, serving, until

CONFIGURATION = ROOT / "deploy" / "haproxy" / "haproxy.cfg"
BACKEND = ROOT / "tests" / "haproxy_backend.py"
KEY = "first-key"

pytestmark = pytest.mark.timeout(BUILD_TIMEOUT_S)


def in_rotation(operations: str) -> set[str]:
    """Slots of servers that pass the check, as /metrics says."""
    text = httpx.get(f"{operations}/metrics", timeout=10).text
    return set(re.findall(r'haproxy_server_status\{proxy="servers",server="(server\d+)",state="UP"\} 1', text))


class Rotation:
    """A balancer and its two servers on a network of their own."""

    def __init__(self, engine) -> None:
        self.network = engine.networks.create(f"sandbox-test-{secrets.token_hex(4)}")
        self.containers = []
        aliases = engine.api.create_endpoint_config(aliases=["server"])
        for name in ("one", "two"):
            self.containers.append(
                engine.containers.create(
                    BASE_IMAGE,
                    ["python3", "-c", BACKEND.read_text()],
                    hostname=name,
                    environment={"KEY": KEY},
                    network=self.network.name,
                    networking_config={self.network.name: aliases},
                )
            )
        self.balancer = engine.containers.create(
            BALANCER_IMAGE,
            environment={
                "SANDBOX_SERVERS": "server:5000",
                "SANDBOX_API_KEYS": f"{KEY} , second-key",
                "SANDBOX_BALANCER_RETRIES": "3",  # so that the test without servers need not wait for 30
            },
            network=self.network.name,
            ports={"5000/tcp": ("127.0.0.1", None), "8404/tcp": ("127.0.0.1", None)},
        )
        self.containers.append(self.balancer)
        for container in self.containers:
            container.start()
        self.balancer.reload()
        ports = self.balancer.attrs["NetworkSettings"]["Ports"]
        self.url, self.operations = (
            f"http://127.0.0.1:{ports[port][0]['HostPort']}" for port in ("5000/tcp", "8404/tcp")
        )

    def close(self) -> None:
        for container in self.containers:
            container.remove(force=True, v=True)
        self.network.remove()

    def post(self, path: str) -> httpx.Response:
        return httpx.post(self.url + path, content=b"{}", timeout=120)

    def who(self, n: int = 20) -> Counter[str]:
        """How many of `n` requests each server answered; all are answered."""
        answers = [httpx.get(f"{self.url}/who", timeout=30) for _ in range(n)]
        assert [answer.status_code for answer in answers] == [200] * n
        return Counter(answer.text.split()[0] for answer in answers)

    def wait_for(self, servers: int, timeout_s: float = 120) -> None:
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            try:
                if len(in_rotation(self.operations)) == servers:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.1)
        pytest.fail(f"not {servers} in rotation after {timeout_s:g} s: {self.balancer.logs(tail=20).decode()}")


@pytest.fixture
def rotation(engine, deployed_images) -> Iterator[Rotation]:
    rotation = Rotation(engine)
    try:
        rotation.wait_for(2)
        yield rotation
    finally:
        rotation.close()


def test_the_configuration_is_one(engine, deployed_images):
    """A misspelt line would show only when the balancer is started on a host."""
    said = engine.containers.run(
        BALANCER_IMAGE,
        ["haproxy", "-c", "-f", "/etc/haproxy/haproxy.cfg"],
        network_mode="none",
        remove=True,
        stderr=True,
    ).decode()
    assert "Configuration file is valid" in said and "WARNING" not in said, said


def test_it_waits_longer_than_the_servers_do():
    """A balancer that gives up first turns an honest answer into a lost start, and a verdict into nothing."""
    limits = {name: int(value) for name, value in re.findall(r"timeout (\w+) +(\d+)s", CONFIGURATION.read_text())}
    settings = Settings(_env_file=None)
    longest = max(
        settings.start_timeout_s,
        settings.reward_wait_s,
        settings.postprocess_timeout_s,
        settings.command_timeout_s + settings.action_wait_s,
    )
    assert limits["server"] >= longest + 2 * 30 and limits["client"] >= limits["server"]


def test_both_serve_and_nobody_forges_a_forwarding(rotation):
    """A request that says it was passed on already would be answered by a server that has not got the session."""
    assert set(rotation.who()) == {"one", "two"}
    answer = httpx.get(f"{rotation.url}/who", headers={"Sandbox-Forwarded": "two"}, timeout=10)
    assert answer.text.split()[2] == "-"
    assert httpx.get(f"{rotation.operations}/healthz", timeout=10).status_code == 200


def test_a_sick_server_gets_nothing_new_and_ends_what_it_has(rotation):
    """A drain that cuts the rollouts it waits for is a kill."""
    with ThreadPoolExecutor(4) as pool:
        slow = [pool.submit(rotation.post, "/slow") for _ in range(4)]  # at least one on each
        try:
            until(lambda: waiting(rotation.operations) >= 4, what="all four wait")
            sick = rotation.post("/sicken").text.split()[0]
            rotation.wait_for(1)
            assert set(rotation.who()) == {"one", "two"} - {sick}
        finally:
            for container in rotation.containers[:2]:
                container.exec_run(["touch", "/tmp/released"])
        answers = [request.result() for request in slow]
    assert [answer.status_code for answer in answers] == [200] * 4
    assert sick in {answer.text.split()[0] for answer in answers}


def test_a_refused_connection_is_tried_elsewhere(rotation):
    """Between a server's end and the check that sees it, a request would fail for nothing."""
    deaf = rotation.post("/deafen").text.split()[0]
    assert set(rotation.who()) == {"one", "two"} - {deaf}


def test_what_a_server_took_is_never_sent_again(rotation):
    """An action run twice is worse than one that failed."""
    lost = rotation.post("/take")
    assert (lost.status_code, lost.json()["code"], lost.json()["retryable"]) == (502, "server_lost", True)
    taken = {answer[0]: int(answer[1]) for answer in (rotation.post("/who").text.split() for _ in range(10))}
    assert sorted(taken.values()) == [0, 1]


def test_with_no_server_it_says_so_as_the_servers_would(rotation):
    """Clients read errors in one way, and wait as long as they are told."""
    for container in rotation.containers[:2]:
        container.kill()
    rotation.wait_for(0)
    none = rotation.post("/start_instance")
    assert (none.status_code, none.headers["Retry-After"]) == (503, "2")
    assert json.loads(none.content) == none.json() and none.json()["code"] == "no_server"
    until(lambda: httpx.get(f"{rotation.operations}/healthz", timeout=10).status_code == 503, what="not healthy")


AWAY = """
import sys
from concurrent.futures import ThreadPoolExecutor
from e2b import Sandbox
box = Sandbox.create(timeout=600)
box.files.write('/tmp/before', 'kept')
print('ready', flush=True)
sys.stdin.readline()  # the server has been killed
calls = [
    lambda: Sandbox.create(timeout=600).kill(),
    lambda: box.files.read('/tmp/before'),
    lambda: box.files.write('/tmp/after', 'x' * 300_000).path,
    lambda: box.commands.run('echo once >> /tmp/runs; cat /tmp/before').stdout,
    lambda: Sandbox.connect(box.sandbox_id).is_running(),
]
with ThreadPoolExecutor(len(calls)) as pool:
    done = [call.result() for call in [pool.submit(call) for call in calls]]
result = [*done, box.commands.run('cat /tmp/runs; wc -c < /tmp/after').stdout, box.kill()]
"""


def test_the_sdk_does_not_notice_a_server_that_is_killed_and_restarts(engine, deployed_images, tmp_path):
    """A server's restart lost every rollout whose client asked for something meanwhile, and its box kept its slot."""
    ports = {name: free_port() for name in ("5000", "8404")}
    with serving(tmp_path, ROOT / "examples" / "instances.jsonl", box_templates=TEMPLATES) as server:
        # the shipped configuration but for its ports, and one address without DNS in place of a hundred by name
        text = CONFIGURATION.read_text().replace(' 100 "${SANDBOX_SERVERS}"', ' 1 "${SANDBOX_SERVERS}"')
        for name, port in ports.items():
            text = text.replace(f"bind :{name}\n", f"bind 127.0.0.1:{port}\n")
        balancer = engine.containers.create(
            BALANCER_IMAGE,
            environment={"SANDBOX_SERVERS": server.url.removeprefix("http://")},
            network_mode="host",
        )
        try:
            balancer.put_archive("/etc/haproxy", archive("haproxy.cfg", text.encode()))
            balancer.start()
            operations = f"http://127.0.0.1:{ports['8404']}"
            until(lambda: reachable(operations) and in_rotation(operations), what="in rotation")
            with sdk_process(f"http://127.0.0.1:{ports['5000']}", "newest", AWAY) as client:
                assert client.stdout.readline() == "ready\n"
                server.kill()
                client.stdin.write("\n")
                client.stdin.flush()
                until(lambda: waiting(operations) >= 5, what="all calls wait for the server")
                until(lambda: not in_rotation(operations), what="the check has seen the end")
                assert client.poll() is None
                server.start()
                out, err = client.communicate(timeout=120)
            assert client.returncode == 0, (err[-3000:], balancer.logs(tail=20).decode())
            assert json.loads(out) == [True, "kept", "/tmp/after", "kept", True, "once\n300000\n", True]
        finally:
            balancer.remove(force=True, v=True)


def archive(name: str, content: bytes) -> bytes:
    """A tar archive of one file that all may read."""
    packed, entry = io.BytesIO(), tarfile.TarInfo(name)
    entry.size = len(content)
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def reachable(operations: str) -> bool:
    """Whether the balancer listens."""
    try:
        return httpx.get(f"{operations}/metrics", timeout=10).is_success
    except httpx.TransportError:
        return False


def waiting(operations: str) -> int:
    """Requests at the balancer that have no answer yet."""
    text = httpx.get(f"{operations}/metrics", timeout=10).text
    return int(re.findall(r'haproxy_backend_current_sessions\{proxy="servers"\} (\d+)', text)[0])
