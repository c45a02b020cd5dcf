"""Containers looked at from outside, where Podman's API does not tell it."""

import asyncio
from contextlib import suppress
from pathlib import Path

from sandbox_server.sandbox.docker.outside import DockerOutside

_CGROUPS = Path("/sys/fs/cgroup")


class PodmanOutside(DockerOutside):
    """Docker's; that memory ran out while a container lives is read from its control group, on this host."""

    async def hit_its_memory(self, container_id: str) -> bool:
        """See `sandbox.outside.Outside.hit_its_memory`. Podman notes it at the container's end and has no event."""
        state = (await self._inspect(container_id))["State"]
        if state["OOMKilled"]:
            return True
        return bool(state["Pid"]) and self._engine.local and await asyncio.to_thread(_killed_for_memory, state["Pid"])


def _killed_for_memory(pid: int) -> bool:
    """Whether the kernel killed a process of this one's control group at the group's limit."""
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
