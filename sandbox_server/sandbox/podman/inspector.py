"""Inspects containers from outside where Podman's API does not suffice."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from sandbox_server.sandbox.docker.inspector import DockerInspector
from sandbox_server.sandbox.inspector import ContainerDetails

_CGROUPS = Path("/sys/fs/cgroup")


class PodmanInspector(DockerInspector):
    """Like Docker's, but reads from the control group, on this host, whether a running container ran out of memory."""

    async def inspect(self, container_id: str) -> ContainerDetails:
        """See `ContainerInspector.inspect`. Podman tells some limits in another way than it was given them."""
        return replace(await super().inspect(container_id), limits=None)

    async def hit_memory_limit(self, container_id: str) -> bool:
        """See `ContainerInspector.hit_memory_limit`. Podman reports it only after the end, and not by an event."""
        state = (await self._inspect(container_id))["State"]
        if state["OOMKilled"]:
            return True
        return bool(state["Pid"]) and self._engine.local and await asyncio.to_thread(_killed_for_memory, state["Pid"])


def _killed_for_memory(pid: int) -> bool:
    """Whether the kernel killed a process in this process's control group at the group's limit."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if "memory" in controllers.split(","):  # version 1
                counts = _CGROUPS / "memory" / path.lstrip("/") / "memory.oom_control"
            elif not controllers:
                counts = _CGROUPS / path.lstrip("/") / "memory.events"
            else:
                continue
            with suppress(OSError):
                for count in counts.read_text().splitlines():
                    name, _, number = count.partition(" ")
                    if name == "oom_kill" and number != "0":
                        return True
    return False
