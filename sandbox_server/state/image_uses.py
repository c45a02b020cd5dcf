"""When each image of a node was last used, so that a restarted server knows which to remove first."""

from collections.abc import Iterable, Mapping

from sandbox_server.state.connection import Connection
from sandbox_server.state.keys import Keys


class ImageUses:
    """Image name -> Unix seconds, for one node. Every method raises StateUnavailable if Redis does not answer."""

    def __init__(self, connection: Connection, keys: Keys, *, node: str) -> None:
        self._connection = connection
        self._key = keys.image_uses(node)

    async def note(self, uses: Mapping[str, float]) -> None:
        """Record the times of last use."""
        if uses:
            await self._connection.send("HSET", self._key, *(word for use in uses.items() for word in map(str, use)))

    async def all(self) -> dict[str, float]:
        """All recorded images with their time of last use."""
        parts = iter(await self._connection.send("HGETALL", self._key))
        return {name.decode(): float(at) for name, at in zip(parts, parts, strict=True)}

    async def forget(self, names: Iterable[str]) -> None:
        """Drop images that are no longer on the engine."""
        if words := list(names):
            await self._connection.send("HDEL", self._key, *words)
