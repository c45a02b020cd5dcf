"""deploy/swarm/stack.yml on a swarm of this machine: rollouts through the balancer, and a rolling restart under one."""

import asyncio
import ipaddress
import secrets
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest
import yaml
from sandbox_client import SandboxClient

from tests.deployment import BUILD_TIMEOUT_S, ROOT, output

KEY = secrets.token_hex(8)
PASSWORD = "p@ss:w/rd%?#"
"""Characters that a URL must quote."""
POOL = "198.18.0.0/16"
"""Addresses that no host has; the default pool begins in 10.0.0.0/8."""

pytestmark = pytest.mark.timeout(BUILD_TIMEOUT_S)


def docker(*words: str, timeout_s: float = 120) -> str:
    return output("docker", *words, timeout_s=timeout_s).strip()


def gone(what: str, *listing: str, timeout_s: float = 90) -> None:
    """Wait until a list of ids is empty."""
    end = time.monotonic() + timeout_s
    while left := docker(*listing):
        assert time.monotonic() < end, f"{what} still there after {timeout_s:g} s: {left}"
        time.sleep(0.5)


@pytest.fixture(scope="module")
def swarm(engine, missing) -> Iterator[str]:
    """The machine's node id in a swarm of its own. One that exists is somebody's, and is left alone."""
    if (state := engine.info()["Swarm"]["LocalNodeState"]) != "inactive":
        missing(f"a machine that is in no swarm (this one is {state})")
    before = set(docker("network", "ls", "--format", "{{.Name}}").split())
    pool = ("--default-addr-pool", POOL, "--default-addr-pool-mask-length", "24")
    docker("swarm", "init", "--advertise-addr", "127.0.0.1", "--listen-addr", "127.0.0.1:2377", *pool)
    try:
        yield engine.info()["Swarm"]["NodeID"]
    finally:
        docker("swarm", "leave", "--force")
        if "docker_gwbridge" not in before:
            docker("network", "rm", "docker_gwbridge")


@dataclass(frozen=True)
class Stack:
    """A deployed stack."""

    name: str
    url: str
    node: str
    """The server's SANDBOX_NODE_ID."""

    def container(self, service: str) -> str:
        """Id of the running container of a service."""
        (found,) = docker("ps", "-q", "--filter", f"label=com.docker.swarm.service.name={self.name}_{service}").split()
        return found

    def ready(self) -> bool:
        """Whether the balancer has a server."""
        try:
            return httpx.get(f"{self.url}/readyz", headers={"X-API-Key": KEY}, timeout=10).is_success
        except httpx.TransportError:
            return False

    def report(self) -> str:
        """What became of its tasks."""
        return docker("stack", "ps", "--no-trunc", self.name) + docker("service", "logs", f"{self.name}_server")[-3000:]


@pytest.fixture(scope="module")
def stack(swarm, deployed_images, tmp_path_factory) -> Iterator[Stack]:
    """The stack as its file says, on this machine; all that it made goes again."""
    name = f"sandbox-test-{secrets.token_hex(4)}"
    node = f"{name}-{{{{.Node.Hostname}}}}"
    folder = tmp_path_factory.mktemp("stack")
    more = {
        "version": "3.8",
        "services": {"server": {"environment": {"SANDBOX_NODE_ID": node, "SANDBOX_PULL": "never"}}},
    }
    (folder / "more.yml").write_text(yaml.safe_dump(more))
    for secret, value in (("sandbox_api_keys", f"{KEY}, another"), ("sandbox_database_password", PASSWORD)):
        (folder / secret).write_text(value)
        docker("secret", "create", secret, str(folder / secret))
    docker("node", "update", "--label-add", "sandbox=true", "--label-add", "sandbox.state=true", swarm)
    with socket.create_server(("", 0)) as free:
        port = free.getsockname()[1]
    files = ("-c", "deploy/swarm/stack.yml", "-c", str(folder / "more.yml"))
    stack = Stack(name, f"http://127.0.0.1:{port}", node.replace("{{.Node.Hostname}}", socket.gethostname()))
    of_stack = f"label=com.docker.stack.namespace={name}"
    try:
        output("docker", "stack", "deploy", "--resolve-image", "never", *files, name, SANDBOX_PORT=str(port))
        end = time.monotonic() + 120
        while not stack.ready():
            assert time.monotonic() < end, stack.report()
            time.sleep(0.5)
        server = stack.container("server")
        docker("cp", str(ROOT / "examples" / "instances.jsonl"), f"{server}:/tmp/instances.jsonl")
        docker("exec", server, "sandbox-server", "instances", "import", "/tmp/instances.jsonl")
        yield stack
    finally:
        docker("stack", "rm", name)
        gone("containers", "ps", "-aq", "--filter", of_stack)
        gone("networks", "network", "ls", "-q", "--filter", of_stack)
        if sandboxes := docker("ps", "-aq", "--filter", f"label=sandbox.node={stack.node}").split():
            docker("rm", "-f", "-v", *sandboxes)
        if volumes := docker("volume", "ls", "-q", "--filter", of_stack).split():
            docker("volume", "rm", *volumes)


def bash(command: str) -> str:
    return f"<function=execute_bash>\n<parameter=command>\n{command}\n</parameter>\n</function>"


@pytest.mark.parametrize("answer, verdict", [("gold", "resolved"), ("wrong", "unresolved")])
async def test_a_rollout_through_the_balancer(stack, answer, verdict):
    """What a trainer does, by the port that the stack publishes."""
    patch = (ROOT / "examples" / "ledger" / f"{answer}.patch").read_text()
    async with SandboxClient(stack.url, api_key=KEY) as client, client.session("samples__ledger-12") as session:
        await session.act(bash(f"cat > /tmp/answer.patch <<'END_OF_PATCH'\n{patch}END_OF_PATCH"))
        applied = await session.act(bash("git apply /tmp/answer.patch && echo applied-$((3*7))"))
        assert "applied-21" in applied.content
        await session.finish()
        reward = await session.reward()
    assert (reward.verdict, reward.mask) == (verdict, False), reward.cause


def test_the_keys_are_the_secret(stack):
    """A stack that came up without its keys would be open to the network."""
    assert httpx.get(f"{stack.url}/readyz", timeout=10).status_code == 401
    assert httpx.get(f"{stack.url}/readyz", headers={"X-API-Key": "another"}, timeout=10).status_code == 200
    assert KEY not in docker("inspect", stack.container("server"), stack.container("balancer"))


def test_a_server_is_reached_at_its_node_url(stack):
    """An address that only the server itself can reach would make every forwarded request fail."""
    (node,) = httpx.get(f"{stack.url}/v1/nodes", headers={"X-API-Key": KEY}, timeout=10).json()
    assert node["node"] == stack.node
    host, port = node["url"].removeprefix("http://").split(":")
    assert ipaddress.ip_address(host) in ipaddress.ip_network(POOL)
    docker("exec", stack.container("balancer"), "bash", "-c", f"exec 3<>/dev/tcp/{host}/{port}")


async def test_a_rolling_restart_loses_nothing(stack):
    """Each action counts on in the shell: one lost, or one run twice, and the numbers no longer agree."""
    former = stack.container("server")
    async with SandboxClient(stack.url, api_key=KEY) as client, client.session("samples__ledger-12") as session:
        await session.act(bash("n=0"))
        update = asyncio.create_task(
            asyncio.to_thread(
                docker, "service", "update", "--force", "--quiet", "--detach=false", f"{stack.name}_server"
            )
        )
        done, longest = 0, 0.0
        while not update.done() or done < 10:
            begun = time.monotonic()
            observation = await session.act(bash("n=$((n+1)); echo counted-$n-"))
            longest = max(longest, time.monotonic() - begun)
            done += 1
            assert observation.error is None and f"counted-{done}-" in observation.content, observation
            await asyncio.sleep(0.1)
        await update
        assert stack.container("server") != former, "nothing was restarted"
        print(f"{done} actions, the longest {longest:.1f} s")
        await session.finish()
        assert (await session.reward()).verdict == "empty_patch"
