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
            InfrastructureError: the host ran out of memory, and a process of the container was killed for that; or,
                where the container's own counter cannot be read, more were killed on the host since then than
                containers hit their limits. Where the engine is on another host, nobody can tell.
            SandboxLost, EngineUnavailable.

        """
        if await self._outside.hit_its_memory(self._container_id):
            return True
        own = await self._outside.kills_in(self._container_id)
        if own or (own is None and await self._more_than_limits()):
            raise InfrastructureError("a process was killed for want of memory on the host while the tests ran")
        return False

    async def _more_than_limits(self) -> bool:
        """Neighbours that hit their own limits are counted with the host's kills too."""
        now = self._outside.kills_on_host()
        if self._kills is None or now is None or now <= self._kills:
            return False
        return now - self._kills > await self._outside.kills_at_limits(since=self._since)
