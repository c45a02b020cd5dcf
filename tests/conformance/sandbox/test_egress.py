"""A restricted container keeps its rules while it runs, and has them before anything runs in it after a restart."""

import asyncio
import os
from dataclasses import replace

import pytest

from sandbox_server.errors import EgressUnavailable, MalformedRequest, ServiceError
from sandbox_server.sandbox.base import Role
from sandbox_server.sandbox.docker.refusals import Refusals
from sandbox_server.sandbox.docker.resolvers import Resolvers
from sandbox_server.sandbox.docker.runtime import DockerRuntime
from sandbox_server.sandbox.egress import Egress, NameServer, Target
from tests.deployment import bridge_gateway
from tests.live.wire import wired
from tests.waiting import eventually

from .backends import Backend, unlike_gvisor
from .specs import IMAGE, say, spec

pytestmark = unlike_gvisor("has a network stack of its own, so that sandboxes with rules are refused")

_OUTSIDE = "192.0.2.9"
_CONNECT = """python3 -c '
import socket, sys
try:
    socket.create_connection((sys.argv[1], 9), 1)
except OSError as error:
    print(error.errno)
' """
_UP = "grep -c eth0 /proc/net/dev"
_HOST_UNREACHABLE = "113"


async def test_rules_outlive_a_restart(runtime: DockerRuntime) -> None:
    """A policy that kills all processes of its container, including the shell, must not be unrestricted afterwards, nor
    must what it tried be forgotten."""
    sandbox = await runtime.create(spec(network="bridge", egress=Egress((Target.parse("192.0.2.1"),))))
    try:
        # what runs first after a restart is the agent's own
        spy = f"#!/usr/bin/python3\nimport os, socket, sys\n{_SPY}os.execv('/bin/bash.real', ['bash', *sys.argv[1:]])\n"
        await sandbox.write_file("/spy", spy.encode(), mode=0o755)
        assert await runtime.refused(sandbox.container_id) == 0
        assert await say(sandbox, _CONNECT + _OUTSIDE) == _HOST_UNREACHABLE
        assert await runtime.refused(sandbox.container_id) == 1
        await say(sandbox, "mv /bin/bash /bin/bash.real && cp /spy /bin/bash")
        await sandbox.restart()
        assert await say(sandbox, _CONNECT + _OUTSIDE) == _HOST_UNREACHABLE
        tried = (await say(sandbox, "cat /seen")).split()
        assert await runtime.refused(sandbox.container_id) == 2 + tried.count("1")
        assert await say(sandbox, _UP) == "1", "its network has not come back"
        seen = set((await say(sandbox, "cat /seen")).split())
        assert "101" in seen and seen <= {"101", "1"}, seen  # no network yet; then, refused by a rule
    finally:
        await runtime.remove(sandbox.container_id)


_SPY = f"""
probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
try:
    probe.connect(("{_OUTSIDE}", 9))
    probe.send(b"out")
    found = "sent"
except OSError as error:
    found = str(error.errno)
open("/seen", "a").write(found + "\\n")
"""


async def test_rules_change_while_it_runs(runtime: DockerRuntime) -> None:
    """A change replaces the earlier rules instead of adding to them."""
    host = bridge_gateway()  # answers at once, where rules let it be asked: refused
    sandbox = await runtime.create(spec(network="bridge", egress=Egress(()), with_shell=False))

    async def refused() -> bool:
        done = await sandbox.exec(["bash", "-c", _CONNECT + host], timeout_s=20)
        return done.stdout.text().strip() == _HOST_UNREACHABLE

    try:
        assert await refused()
        await runtime.restrict(sandbox.container_id, Egress((Target.parse(host),)))
        assert not await refused()
        assert await runtime.refused(sandbox.container_id) == 1
        await runtime.restrict(sandbox.container_id, Egress((), (Target.parse(host),), rest=True))
        assert await refused()
        with pytest.raises(EgressUnavailable, match=r"host\.invalid"):
            await runtime.restrict(sandbox.container_id, Egress((Target("host.invalid"),)))
        assert await refused()
        await runtime.restrict(sandbox.container_id, None)
        assert not await refused()
        assert await runtime.refused(sandbox.container_id) == 3
    finally:
        await runtime.remove(sandbox.container_id)


async def test_a_remote_engine_counts_too(backend: Backend) -> None:
    """A server in a container, or one without root, cannot enter a namespace either: the engine's helper lists."""
    with wired(backend.engine.url.removeprefix("unix://")) as wire:
        remote = replace(backend, engine=type(backend.engine)(wire.url, timeout_s=60), fifos=None)
        runtime = remote.runtime()
        sandbox = await runtime.create(spec(network="bridge", egress=Egress(())))
        assert not remote.engine.local
        assert await runtime.refused(sandbox.container_id) == 0
        assert await say(sandbox, _CONNECT + _OUTSIDE) == _HOST_UNREACHABLE
        assert await runtime.refused(sandbox.container_id) == 1
        await runtime.restrict(sandbox.container_id, Egress((Target.parse("192.0.2.1"),)))
        assert await say(sandbox, _CONNECT + _OUTSIDE) == _HOST_UNREACHABLE
        assert await runtime.refused(sandbox.container_id) == 2
        await sandbox.restart()  # its namespace goes, with what was counted there since the change
        assert await runtime.refused(sandbox.container_id) == 1
        await runtime.remove(sandbox.container_id)
        assert await runtime.refused(sandbox.container_id) is None


@pytest.mark.parametrize("pid", [0, 2**22 + 1, os.getpid()], ids=["unseen", "nobodys", "anothers"])
async def test_a_server_in_a_container_asks_the_helper(pid: int) -> None:
    """A process number of the engine's host means no process there, or another one: a count of its rules is wrong."""

    async def listed(container_id: str) -> int | None:
        return {"with rules": 3}.get(container_id)

    refusals = Refusals(listed)
    assert await refusals.count("with rules") is None, "nothing restricts it yet"
    await refusals.follow("with rules", pid, before=2)
    await refusals.follow("without", pid)
    assert (await refusals.count("with rules"), await refusals.count("without")) == (5, None)


async def test_no_helper_looks_where_nothing_is_restricted(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each end of a session without a network would take 0.2 s longer, for a count that does not exist."""
    runtime = backend.runtime(egress=Egress(()))
    sandbox = await runtime.create(spec(network="none", with_shell=False))
    asked = []
    monkeypatch.setattr(runtime._guard, "_nft", lambda *what: asked.append(what))
    try:
        assert await runtime.refused(sandbox.container_id) is None
        assert not asked
    finally:
        await runtime.remove(sandbox.container_id)


async def test_names_are_found_without_a_name_server(runtime: DockerRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    """An allowed name that cannot be looked up would be of no use."""

    async def known(name: str) -> list[str]:
        return ["192.0.2.1", "192.0.2.2"]

    monkeypatch.setattr("sandbox_server.sandbox.docker.egress._addresses", known)
    rules = Egress((Target.parse("trainer.example:8000"),))
    sandbox = await runtime.create(spec(network="bridge", egress=rules, with_shell=False))
    try:
        done = await sandbox.exec(["getent", "ahostsv4", "trainer.example"], timeout_s=20)
        assert {line.split()[0] for line in done.stdout.text().splitlines()} == {"192.0.2.1", "192.0.2.2"}
    finally:
        await runtime.remove(sandbox.container_id)


async def test_a_name_server_goes_with_its_container(backend: Backend) -> None:
    """After a restart or its own end the names of a domain are not found any more; or name servers are left behind."""
    rules = Egress((Target.parse("*.example.com"),))
    runtime = backend.runtime(egress=rules, egress_dns=NameServer("192.0.2.1", 53))
    sandbox = await runtime.create(spec(network="bridge"))
    later = backend.runtime(node=runtime._config.node, egress=rules)

    async def resolvers() -> list[str]:
        wanted = {"label": f"sandbox.resolver={sandbox.container_id}", "status": "running"}
        found = await backend.engine.call(lambda api: api.containers(filters=wanted))
        return [one["Id"] for one in found]

    async def gone() -> bool:
        return not await resolvers()

    try:
        (first,) = await resolvers()
        await sandbox.restart()
        (second,) = await resolvers()
        assert first != second
        await backend.engine.call(lambda api: api.kill(second))
        await eventually(gone)
        await runtime.list()  # as the reaper
        await eventually(resolvers)
        assert await resolvers() == [second]
        assert "127.0.0.53" in await say(sandbox, "cat /etc/resolv.conf")
        before = await runtime.refused(sandbox.container_id)
        await say(sandbox, "getent hosts elsewhere.test")
        after = await runtime.refused(sandbox.container_id)
        assert before is not None and after is not None and after > before
        assert await later.refused(sandbox.container_id) == after, "the next server of the node does not count"
    finally:
        await later.remove(sandbox.container_id)
    await later.list()  # as its reaper
    await eventually(gone)
    await runtime.remove(sandbox.container_id)
    with pytest.raises(EgressUnavailable, match="SANDBOX_EGRESS_DNS"):
        await backend.runtime(egress=rules).create(spec(network="bridge"))


async def test_a_container_made_without_domains_gets_none(backend: Backend) -> None:
    """It would ask another name server, which its rules do not let it reach; or its rules could not be lifted."""
    runtime = backend.runtime(egress_dns=NameServer("192.0.2.1", 53))
    sandbox = await runtime.create(spec(network="bridge", with_shell=False))
    try:
        with pytest.raises(MalformedRequest, match="make another box"):
            await runtime.restrict(sandbox.container_id, Egress((Target.parse("*.example.com"),)))
        await runtime.restrict(sandbox.container_id, None)
        older = Resolvers(backend.engine, image=IMAGE, node="test")
        with pytest.raises(EgressUnavailable, match="images build egress"):
            await older.run(sandbox.container_id, ["--port=53"])
        await older.remove(sandbox.container_id)
    finally:
        await runtime.remove(sandbox.container_id)


async def test_rules_that_a_runtime_would_pass_by_are_refused(backend: Backend, runtime: DockerRuntime) -> None:
    """gVisor's packets reach what the rules forbid: its own network stack sends them."""
    gvisor = backend.runtime(node=runtime._config.node, oci_runtime="runsc", egress=Egress(()))
    with pytest.raises(EgressUnavailable, match="runsc has a network stack of its own"):
        await gvisor.create(spec(network="bridge"))
    sandbox = await runtime.create(spec(network="bridge", with_shell=False))
    try:
        assert len(await gvisor.list()) == 1
        with pytest.raises(EgressUnavailable, match="SANDBOX_RUNTIME"):
            await gvisor.restrict(sandbox.container_id, None)
    finally:
        await runtime.remove(sandbox.container_id)


async def test_nothing_starts_where_no_rules_can_be_set(backend: Backend) -> None:
    """A box without its rules must not run, if the helper cannot be created."""
    runtime = backend.runtime(egress=Egress(()), egress_image="sandbox-test/none:1")
    for with_shell in (True, False):
        with pytest.raises(EgressUnavailable, match="SANDBOX_EGRESS_IMAGE"):
            await runtime.create(spec(network="bridge", with_shell=with_shell))
    assert await runtime.list() == []
    for unrestricted in (spec(with_shell=False), spec(network="bridge", role=Role.GRADE, with_shell=False)):
        await runtime.remove((await runtime.create(unrestricted)).container_id)


async def test_an_image_without_nft_starts_nothing(backend: Backend) -> None:
    """A helper that never ran must not be taken for one that worked."""
    runtime = backend.runtime(egress=Egress(()), egress_image=IMAGE)
    with pytest.raises(ServiceError, match="nft"):
        await runtime.create(spec(network="bridge", with_shell=False))
    await _all_gone(runtime)


async def test_refused_rules_are_not_taken_for_set(backend: Backend) -> None:
    """If the helper ran and did nothing, the unrestricted container must not run."""
    runtime = backend.runtime()
    sandbox = await runtime.create(spec(network="bridge", with_shell=False))
    await backend.engine.call(lambda api: api.kill(sandbox.container_id))
    with pytest.raises(EgressUnavailable, match="ended with 1: "):
        runtime._guard.keep(sandbox.container_id, "no rules")
        await runtime._guard.start(sandbox.container_id)
    (ended,) = [info for info in await runtime.list() if info.container_id == sandbox.container_id]
    assert not ended.running
    await runtime.remove(sandbox.container_id)
    await _all_gone(runtime)


async def _all_gone(runtime: DockerRuntime) -> None:
    """Wait until nothing of a failed start is left."""
    for _ in range(300):
        if not (left := await runtime.list()):
            return
        await asyncio.sleep(0.1)
    pytest.fail(f"{left} left behind")
