"""Finds actions by the words in them, newest first. `catalogue.action_words` writes the index."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import ConfigDict
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from sandbox_server.catalogue.action_words import LONGEST_WORD, WORD, lowered
from sandbox_server.catalogue.database import Database
from sandbox_server.errors import CatalogueUnavailable, MalformedRequest
from sandbox_server.slices import sliced

_MOST_S = 10.0
"""Limit on the duration of one search."""
_READ = 24_000
"""Bytes read from each end of a text to find the matching line."""
_LINE = 200
_TERM = re.compile(rf"(?P<word>{WORD.pattern})(?P<prefix>\*?)")

_NEWEST = 200_000
"""Actions that PostgreSQL checks one by one, in 50 ms, before it collects all matches from the index."""

_FOUND = (
    "{collected}SELECT i.id, i.sid, i.seq, s.run, s.instance_id, a.tool, a.exit_code, a.started_at,"
    " substr(a.content, 1, :read), substr(a.observation, 1, :read), {tail} FROM {index}"
    " {join} JOIN sessions s ON s.sid = i.sid {join} JOIN actions a ON a.sid = i.sid AND a.seq = i.seq"
    " WHERE {match}{run}{before} ORDER BY {id} DESC LIMIT :most"
)
_SQLITE = {
    "collected": "",
    "tail": "substr(a.observation, -:read)",
    # CROSS: the index comes first, in its own order, so that a limit ends the search
    "index": "action_words w CROSS JOIN action_index i ON i.id = w.rowid",
    "join": "CROSS",
    "match": "w.action_words MATCH :words",
    "id": "w.rowid",
}
_POSTGRESQL = {
    "collected": "",
    "tail": "substr(a.observation, greatest(1, length(a.observation) - :read))",
    "index": "action_index i",
    "join": "",
    "match": "i.words @@ CAST(:words AS tsquery)",
    "id": "i.id",
}
# PostgreSQL does not know how rare a word is. It overestimates so much that it would rather read the newest actions one
# by one, at worst all 10,000,000, than use the index. So it has to read the `_NEWEST` first, and use the index then.
_NEWEST_FIRST = {
    **_POSTGRESQL,
    "match": _POSTGRESQL["match"] + " AND i.id >= coalesce(:before, (SELECT max(id) + 1 FROM action_index)) - :newest",
}
_COLLECTED = {
    **_POSTGRESQL,
    "collected": f"WITH i AS MATERIALIZED (SELECT * FROM action_index i WHERE {_POSTGRESQL['match']}{{before}}) ",
    "index": "i",
    "match": "true",
}


@dataclass(frozen=True, slots=True)
class Term:
    """A word of a query; `prefix`: matches all words that begin with it."""

    word: str
    prefix: bool


@dataclass(frozen=True, slots=True)
class FoundAction:
    """An action that has all the words, as the API answers it too."""

    __pydantic_config__: ClassVar = ConfigDict(use_attribute_docstrings=True)

    id: int
    """The cursor: grows with the time at which the action was written."""
    sid: str
    seq: int
    run: str
    instance_id: str
    tool: str
    exit_code: int | None
    started_at: float
    where: str
    """The text whose line is shown: `call` or `observation`."""
    line: str
    """The first line with one of the words, at most 200 characters."""


class ActionSearch:
    """Searches the actions of one run, or of all."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, query: str, *, run: str | None, before: int | None, limit: int) -> list[FoundAction]:
        """The actions that contain all words of the query, last written first.

        Raises:
            MalformedRequest: the query has no word. CatalogueUnavailable: also if it takes longer than 10 s.
        """
        terms = terms_of(query)
        if not terms:
            raise MalformedRequest(
                "the query has no word: words are made of letters, digits and _; `word*` finds words that begin so"
            )
        sqlite = self._database.is_sqlite
        given = {"words": _sqlite_query(terms) if sqlite else _postgresql_query(terms), "read": _READ, "most": limit}
        given |= {} if run is None else {"run": run}
        given |= {} if before is None else {"before": before}
        try:
            async with asyncio.timeout(_MOST_S), self._database.reading() as connection:
                if sqlite:
                    rows = await _rows(connection, _SQLITE, given)
                elif run is not None:  # PostgreSQL starts from the run's sessions
                    rows = await _rows(connection, _POSTGRESQL, given)
                else:
                    rows = await _rows(connection, _NEWEST_FIRST, given | {"before": before, "newest": _NEWEST})
                    if len(rows) < limit:
                        rows = await _rows(connection, _COLLECTED, given)
        except TimeoutError:
            why = f"the search took longer than {_MOST_S:g} s: ask for rarer words"
            raise CatalogueUnavailable(why) from None
        return await sliced(_hit(terms, row) for row in rows)  # 200 actions have up to 14 MB of text


async def _rows(connection: AsyncConnection, parts: Mapping[str, str], given: Mapping[str, Any]) -> Sequence[Any]:
    before = "" if given.get("before") is None else f" AND {parts['id']} < :before"
    run = "" if given.get("run") is None else " AND s.run = :run"
    known = {**parts, "collected": parts["collected"].format(before=before)}
    return (await connection.execute(text(_FOUND.format(**known, run=run, before=before)), given)).all()


def terms_of(query: str) -> list[Term]:
    """The words of a query: `money.py` is two words, `pars*` is a prefix."""
    found = dict.fromkeys(
        Term(match["word"][:LONGEST_WORD], bool(match["prefix"])) for match in _TERM.finditer(lowered(query))
    )
    return list(found)


def _sqlite_query(terms: Sequence[Term]) -> str:
    return " AND ".join(f'"{term.word}"{"*" if term.prefix else ""}' for term in terms)


def _postgresql_query(terms: Sequence[Term]) -> str:
    return " & ".join(f"'{term.word}'{':*' if term.prefix else ''}" for term in terms)


def _hit(terms: Sequence[Term], row: Any) -> FoundAction:
    number, sid, seq, run, instance_id, tool, exit_code, started_at, *texts = row
    where, line = _line(terms, *texts)
    return FoundAction(number, sid, seq, run, instance_id, tool, exit_code, started_at, where, line)


def _line(terms: Sequence[Term], call: bytes, head: bytes, tail: bytes) -> tuple[str, str]:
    """(where, line)"""
    for where, raw in (("call", call), ("observation", head), ("observation", tail)):
        for line in bytes(raw).decode("utf-8", "replace").split("\n"):
            words = {match[0][:LONGEST_WORD] for match in WORD.finditer(lowered(line))}
            if any(term.word in words or (term.prefix and _begun(term.word, words)) for term in terms):
                return where, line.strip()[:_LINE]
    return "call", ""


def _begun(word: str, words: set[str]) -> bool:
    return any(one.startswith(word) for one in words)
