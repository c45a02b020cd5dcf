"""Tokens of sessions in SQL: an agent may hold one instead of an API key. Only their hashes are stored."""

import hashlib
import hmac
import re
import secrets

from sqlalchemy import select

from sandbox_server.catalogue.database import Database
from sandbox_server.catalogue.tables import SessionTokenRow

_BEGINS = "sst_"
_BYTES = 32
_FORM = re.compile(_BEGINS + r"[A-Za-z0-9_-]{43}")


def is_token(text: str) -> bool:
    """Whether `text` has the form of a session's token; no API key that was made at random has it."""
    return _FORM.fullmatch(text) is not None


class SessionTokens:
    """A session has at most one. Every method raises CatalogueUnavailable if SQL does not answer."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def issue(self, sid: str) -> str:
        """Make a new token of the session; the former one is no longer valid."""
        token = _BEGINS + secrets.token_urlsafe(_BYTES)
        statement = self._database.insert(SessionTokenRow).values(sid=sid, sha256=_digest(token))
        statement = statement.on_conflict_do_update(
            index_elements=["sid"], set_={"sha256": statement.excluded["sha256"]}
        )
        async with self._database.writing() as connection:
            await connection.execute(statement)
        return token

    async def opens(self, sid: str, token: str) -> bool:
        """Whether `token` is the session's."""
        async with self._database.reading() as connection:
            found = select(SessionTokenRow.sha256).where(SessionTokenRow.sid == sid)
            own = (await connection.execute(found)).scalar_one_or_none()
        return own is not None and hmac.compare_digest(own, _digest(token))


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
