"""The CPU time of sandboxes is counted, and those that compute give way on a full host."""

import asyncio
from typing import Any

import pytest

from sandbox_server.sandbox.docker import cgroup
from sandbox_server.sandbox.docker.weights import HostTime

from .backends import OCI_RUNTIME, Backend, unlike_gvisor
from .specs import say, spec


@unlike_gvisor("tells no CPU time with --ignore-cgroups")
async def test_cpu_time_counts_what_ended_too(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that computes in short processes, or ends its sessions at once, would use nothing of its quota."""
    runtime = backend.runtime(meter_cpu=True)
    one = await runtime.create(spec(sid="71"))
    try:
        before = (await runtime.cpu_times([one.container_id, "0" * 64]))[one.container_id]
        await say(one, "for i in {1..200}; do /bin/true; done; (s=$SECONDS; while ((SECONDS < s + 2)); do :; done)")
        after = (await runtime.cpu_times([one.container_id]))[one.container_id]
        assert 0.2 < after - before < 20
        monkeypatch.setattr(cgroup, "cpu_file", lambda *_: None)  # as on another host
        monkeypatch.setattr(cgroup, "default_cpu_file", lambda *_: None)
        other = backend.runtime()
        asked = (await other.cpu_times([one.container_id]))[one.container_id]
        assert after <= asked < after + 5
        assert runtime.take_last_cpu_times() == []
    finally:
        await runtime.remove(one.container_id)
    (last,) = runtime.take_last_cpu_times()
    assert (last.container_id, last.sid) == (one.container_id, "71") and last.cpu_s >= after
    assert runtime.take_last_cpu_times() == [] and await runtime.cpu_times([one.container_id]) == {}


async def test_a_sandbox_that_computes_on_a_full_host_gives_way(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside eight that compute, a command of some milliseconds waits for a CPU twenty times as long as it takes."""
    if backend.name == "podman" or OCI_RUNTIME == "runsc":
        pytest.skip("it cannot change a running container, or shows no control group")
    runtime = backend.runtime(busy_cpu_shares=256)
    one, other = await asyncio.gather(runtime.create(spec()), runtime.create(spec()))

    async def weights() -> tuple[object, object]:
        """Of each container: `idle` for the idle class, else the weight that the engine knows of."""
        found = []
        for each in (one, other):
            file = runtime._cpu.idle_file(each.container_id)
            told = await backend.engine.call(lambda api, of=each.container_id: api.inspect_container(of))
            idle = file is not None and file.read_text().strip() == "1"
            found.append("idle" if idle else told["HostConfig"]["CpuShares"])
        return found[0], found[1]

    async def until(by: Any, expected: object) -> None:
        """On a host that others use it may look idle for a time."""
        async with asyncio.timeout(30):
            while await weights() != (expected, 0):
                await by.weigh()
                await asyncio.sleep(0.3)

    try:
        await say(one, "while :; do :; done &")
        await runtime.weigh()
        await asyncio.sleep(0.5)
        monkeypatch.setattr(HostTime, "used_since", lambda *_: 0.4)
        await runtime.weigh()
        assert await weights() == (0, 0), "there is a CPU left"
        monkeypatch.setattr(HostTime, "used_since", lambda *_: 0.99)
        monkeypatch.setattr("sandbox_server.sandbox.docker.weights._IDLE_SHARE", 0.0)
        await until(runtime, "idle")
        await runtime.pause(one.container_id)
        assert await weights() == (0, 0), "on a full host it would not be frozen for minutes"
        await runtime.unpause(one.container_id)
        await until(runtime, "idle")
        # others want most of the host: in the idle class it would get next to nothing
        monkeypatch.setattr("sandbox_server.sandbox.docker.weights._IDLE_SHARE", 2.0)
        await until(runtime, 256)
        monkeypatch.setattr("sandbox_server.sandbox.docker.weights._IDLE_SHARE", 0.0)
        await asyncio.sleep(0.5)
        await runtime.weigh()
        assert await weights() == (256, 0), "it may return to the idle class after ten looks"
        await say(one, "kill $!")
        await until(runtime, 1024)
        # a server that was killed has left both behind; the next one lowers nothing, but restores it
        file = runtime._cpu.idle_file(one.container_id)
        assert file is not None
        await backend.engine.call(lambda api: api.update_container(one.container_id, cpu_shares=256))
        file.write_text("1")
        later = backend.runtime(runtime._config.node)
        await later.attach(one.container_id)
        await until(later, 1024)
        assert file.read_text() == "0\n"
        # a server that may not write there
        monkeypatch.setattr(cgroup, "write_idle", lambda *_, **__: False)
        await say(one, "while :; do :; done &")
        await until(runtime, 256)
    finally:
        for each in (one, other):
            await runtime.remove(each.container_id)
