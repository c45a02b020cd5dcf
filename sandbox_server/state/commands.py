"""Records which box commands were started, so that a retried one runs once, whichever server it reaches."""

from sandbox_server.state.connection import Connection
from sandbox_server.state.keys import Keys


class BegunCommands:
    """The started commands. Every method raises StateUnavailable if Redis does not answer."""

    def __init__(self, connection: Connection, keys: Keys) -> None:
        self._connection = connection
        self._keys = keys

    async def begin(self, sid: str, command: str, *, kept_s: float) -> bool:
        """Record for `kept_s` seconds that the command starts; False: it was started before."""
        key = self._keys.box_command(sid, command)
        return await self._connection.send("SET", key, b"1", "NX", "PX", max(1, round(1000 * kept_s))) is not None

    async def begun(self, sid: str, command: str) -> bool:
        """Whether the command was started."""
        return bool(await self._connection.send("EXISTS", self._keys.box_command(sid, command)))

    async def undo(self, sid: str, command: str) -> None:
        """Forget the command: it could not be started and may be sent again."""
        await self._connection.send("DEL", self._keys.box_command(sid, command))
