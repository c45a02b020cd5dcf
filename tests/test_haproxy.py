"""The balancer, before stand-ins that can be sick, deaf or dying: what it may do to a request and what not."""

import json
import re
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from sandbox_server.settings import Settings
from tests.deployment import BALANCER_IMAGE, BASE_IMAGE, BUILD_TIMEOUT_S, ROOT

CONFIGURATION = ROOT / "deploy" / "haproxy" / "haproxy.cfg"
BACKEND = ROOT / "tests" / "haproxy_backend.py"
KEY = "first-key"

pytestmark = pytest.mark.timeout(BUILD_TIMEOUT_S)


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
            environment={"SANDBOX_SERVERS": "server:5000", "SANDBOX_API_KEYS": f"{KEY} , second-key"},
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
        return httpx.post(self.url + path, content=b"{}", timeout=30)

    def who(self, n: int = 20) -> Counter[str]:
        """How many of `n` requests each server answered; all are answered."""
        answers = [httpx.get(f"{self.url}/who", timeout=30) for _ in range(n)]
        assert [answer.status_code for answer in answers] == [200] * n
        return Counter(answer.text.split()[0] for answer in answers)

    def up(self) -> set[str]:
        """Addresses' slots that are in rotation, as /metrics says."""
        text = httpx.get(f"{self.operations}/metrics", timeout=10).text
        return set(re.findall(r'haproxy_server_status\{proxy="servers",server="(\w+)",state="UP"\} 1', text))

    def wait_for(self, servers: int, timeout_s: float = 30) -> None:
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            try:
                if len(self.up()) == servers:
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
        time.sleep(0.5)
        sick = rotation.post("/sicken").text.split()[0]
        rotation.wait_for(1)
        assert not any(request.done() for request in slow), "the check came too late to show anything"
        assert set(rotation.who()) == {"one", "two"} - {sick}
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
    assert httpx.get(f"{rotation.operations}/healthz", timeout=10).status_code == 503
