"""Services beside a sandbox at the edges: none comes up, and one whose sandbox may reach almost nothing else."""

import asyncio

import pytest

from sandbox_server.errors import ImageUnavailable
from sandbox_server.sandbox.docker.labels import GROUP, NODE
from sandbox_server.sandbox.egress import Egress, Target
from sandbox_server.sandbox.services import HealthCheck, ServiceBounds, ServiceSpec
from tests.waiting import eventually

from .backends import Backend, unlike_gvisor
from .specs import IMAGE, say, spec

SERVE = ("python3", "-m", "http.server", "80")
ASK = "python3 -c 'import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=3).status)' "


async def left(backend: Backend, node: str) -> int:
    """Containers, volumes and networks of services on the engine."""
    wanted = {"label": [GROUP, f"{NODE}={node}"]}
    containers = await backend.engine.call(lambda api: api.containers(all=True, filters=wanted))
    volumes = await backend.engine.call(lambda api: api.volumes(filters=wanted))
    networks = await backend.engine.call(lambda api: api.networks(filters=wanted))
    return len(containers) + len(volumes["Volumes"] or ()) + len(networks)


async def test_one_that_never_is_healthy_leaves_nothing(backend: Backend) -> None:
    """A start hangs, or what it waited for stays on the host, also when nobody waits any more."""
    if backend.name == "podman":
        pytest.skip("refused there")
    runtime = backend.runtime("test-services", services=ServiceBounds(start_s=8))
    sick = ServiceSpec("sick", IMAGE, command=("sleep", "60"), volumes=(("/d", "v"),), health=HealthCheck(("false",)))
    with pytest.raises(ImageUnavailable, match="waited for sick to be healthy"):
        await runtime.create(spec(services=(sick,)))
    assert not await left(backend, "test-services")
    given_up = asyncio.create_task(runtime.create(spec(services=(sick,))))

    async def some() -> bool:
        return bool(await left(backend, "test-services"))

    await eventually(some, 30)
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    # a call under way when it was cancelled may still make something

    async def none() -> bool:
        await runtime.remove_leftovers()
        return not await left(backend, "test-services")

    await eventually(none, 30)


@unlike_gvisor("has a network stack of its own, so that sandboxes with rules are refused")
async def test_rules_spare_services(backend: Backend) -> None:
    """A list of what sessions may reach cuts them off from their own services, or their services are a way round it."""
    if backend.name == "podman":
        pytest.skip("refused there")
    runtime = backend.runtime(egress=Egress((Target.parse("192.0.2.77"),)))
    web = ServiceSpec(
        "web", IMAGE, aliases=("other",), command=SERVE, health=HealthCheck(("bash", "-c", "</dev/tcp/web/80"))
    )
    sandbox = await runtime.create(spec(network="bridge", services=(web,)))
    try:
        for _ in range(2):
            assert await say(sandbox, ASK + "http://other/") == "200"
            assert "Errno 113" in await say(sandbox, ASK + "http://192.0.2.9/ 2>&1 | tail -1")
            assert "resolution" in await say(sandbox, ASK + "http://example.com/ 2>&1 | tail -1")
            await sandbox.restart()
        assert sandbox.container_id in await runtime.disk_usage(sandbox.container_id)
    finally:
        await runtime.remove(sandbox.container_id)
