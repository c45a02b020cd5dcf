"""Tells whether a process of a container was killed by the container's memory limit or for lack of host memory.

It asks the engine and its host only: what runs in the container may have replaced any program or faked any file.
"""

import time

from sandbox_server.errors import InfrastructureError
from sandbox_server.sandbox.inspector import ContainerInspector


class MemoryWatch:
    """Watches one container from construction on."""

    def __init__(self, inspector: ContainerInspector, container_id: str) -> None:
        self._inspector = inspector
        self._container_id = container_id
        self._kills = inspector.kills_on_host()
        self._since = time.time()  # the engine runs on this host if it reports kills

    async def killed_at_limit(self) -> bool:
        """Whether the container hit its memory limit and lost a process; False also if the engine does not say.

        Raises:
            InfrastructureError: the host ran out of memory and a process of the container was killed. If the
                container's own counter cannot be read: more processes were killed on the host since construction
                than containers hit their limits. With an engine on another host this cannot be detected.
            SandboxLost, EngineUnavailable.

        """
        if await self._inspector.hit_memory_limit(self._container_id):
            return True
        own = await self._inspector.kills_in(self._container_id)
        if own or (own is None and await self._more_than_limits()):
            raise InfrastructureError("a process was killed because the host ran out of memory while the tests ran")
        return False

    async def check_host(self) -> None:
        """Check that no process of the container was killed because the host ran out of memory.

        A process killed at the container's own limit is no error, nor is a counter that cannot be read.

        Raises:
            InfrastructureError: the host ran out of memory and a process of the container was killed.
            SandboxLost, EngineUnavailable.

        """
        if await self._inspector.kills_in(self._container_id):
            await self.killed_at_limit()

    async def _more_than_limits(self) -> bool:
        """Whether the host itself lacked memory: it killed more than containers at their limits explain."""
        now = self._inspector.kills_on_host()
        if self._kills is None or now is None or now <= self._kills:
            return False
        return now - self._kills > await self._inspector.kills_at_limits(since=self._since)
