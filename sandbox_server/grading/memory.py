"""Why a process of a sandbox was killed, as the engine and its host tell it: its own limit, or the host's memory.

Nothing is asked inside the container: what runs there may have replaced any program, or faked any file.
"""

import time

from sandbox_server.errors import InfrastructureError
from sandbox_server.sandbox.outside import Outside


class MemoryWatch:
    """From its making on, of one container."""

    def __init__(self, outside: Outside, container_id: str) -> None:
        self._outside = outside
        self._container_id = container_id
        self._kills = outside.kills_on_host()
        self._since = time.time()  # the engine's host is this one where it tells of kills

    async def killed_at_limit(self) -> bool:
        """Whether the container's memory limit had a process of it killed; False also where the engine does not say.

        Raises:
            InfrastructureError: processes were killed on the host since then, and no container's at its own limit: the
                host ran out of memory. Where the engine is on another host, nobody can tell.
            SandboxLost, EngineUnavailable.

        """
        if await self._outside.hit_its_memory(self._container_id):
            return True
        now = self._outside.kills_on_host()
        killed = self._kills is not None and now is not None and now > self._kills
        # a neighbour that hits its own limit is counted there too
        if killed and not await self._outside.limits_hit(since=self._since):
            raise InfrastructureError("a process was killed for want of memory on the host while the tests ran")
        return False
