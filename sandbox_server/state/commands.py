"""Which commands of boxes were begun, so that one that is sent twice runs once, whatever server it reaches."""

from sandbox_server.state.connection import Connection
from sandbox_server.state.keys import Keys


class BegunCommands:
    """Every method raises StateUnavailable when Redis does not answer."""

    def __init__(self, connection: Connection, keys: Keys) -> None:
        self._connection = connection
        self._keys = keys

    async def begin(self, sid: str, command: str, *, kept_s: float) -> bool:
        """Write down, for `kept_s`, that it begins; False: it was begun before."""
        key = self._keys.box_command(sid, command)
        return await self._connection.send("SET", key, b"1", "NX", "PX", max(1, round(1000 * kept_s))) is not None

    async def begun(self, sid: str, command: str) -> bool:
        """Whether it was."""
        return bool(await self._connection.send("EXISTS", self._keys.box_command(sid, command)))

    async def undo(self, sid: str, command: str) -> None:
        """It could not be begun after all, and may be sent again."""
        await self._connection.send("DEL", self._keys.box_command(sid, command))
