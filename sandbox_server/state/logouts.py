"""Logins to the pages that were ended before they expired, so that a copied cookie is no longer valid either."""

import hashlib
import math

from sandbox_server.state.connection import Connection
from sandbox_server.state.keys import Keys


class Logouts:
    """The ended logins of all servers. Every method raises StateUnavailable if Redis does not answer."""

    def __init__(self, connection: Connection, keys: Keys) -> None:
        self._connection = connection
        self._keys = keys

    async def add(self, login: str, *, left_s: float) -> None:
        """End the login, which would be valid for another `left_s` seconds."""
        await self._connection.send("SET", self._key(login), b"1", "EX", max(1, math.ceil(left_s)))

    async def has(self, login: str) -> bool:
        """Whether the login was ended."""
        return bool(await self._connection.send("EXISTS", self._key(login)))

    def _key(self, login: str) -> str:
        return self._keys.logout(hashlib.sha256(login.encode()).hexdigest())
