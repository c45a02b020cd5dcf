"""The words of each action, indexed for search; written in the transaction that writes the action.

A row of `action_index` gives an action a number. SQLite keeps the words in an FTS5 table without content, keyed by that
number; PostgreSQL keeps a tsvector in the row, under a GIN index. Both store which words occur, not where; that takes a
tenth of the texts' size. Texts and queries are split here, so that both databases agree on what a word is.
"""

import json
import re
from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, text

from sandbox_server.records import ActionRecord

WORD = re.compile("[a-z0-9_\x80-\U0010ffff]+")
LONGEST_WORD = 60
"""Characters of a word. Longer words, such as base64, are cut, in texts and in queries."""
_PART = 6_000
"""Characters indexed of each of three parts: a call, the beginning of its observation, and the end of it."""
_WORDS = 1_000
"""Limit on the words of one action; a tsvector has at most 1 MB."""
_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}  # as SQLite's tokenizer: only ASCII

_NUMBERED = text(
    "INSERT INTO action_index (sid, seq) SELECT value ->> 0, value ->> 1 FROM json_each(:keys) WHERE true"
    " ON CONFLICT (sid, seq) DO NOTHING RETURNING id, sid, seq"
)
_SQLITE = text("INSERT INTO action_words (rowid, words) VALUES (:id, :words)")
_POSTGRESQL = text(
    "INSERT INTO action_index (sid, seq, words) SELECT u.sid, u.seq, array_to_tsvector(string_to_array(u.words, ' '))"
    " FROM unnest(CAST(:sids AS text[]), CAST(:seqs AS bigint[]), CAST(:words AS text[])) AS u (sid, seq, words)"
    " ON CONFLICT (sid, seq) DO NOTHING"
).bindparams(bindparam("sids"), bindparam("seqs"), bindparam("words"))


def words_of(*texts: str) -> list[str]:
    """The different words of the texts, in order of their first appearance."""
    found: dict[str, None] = {}
    for one in texts:
        for match in WORD.finditer(lowered(one)):
            found[match[0][:LONGEST_WORD]] = None
            if len(found) >= _WORDS:
                return list(found)
    return list(found)


def lowered(given: str) -> str:
    """The text in the form in which it is split: ASCII letters in lower case, without what a database refuses."""
    if given.isascii():
        return given.lower()
    return given.translate(_LOWER).encode("utf-8", "replace").decode()


def indexed(record: ActionRecord) -> list[str]:
    """The words that an action is found by."""
    seen = record.observation
    tail = seen[max(_PART, len(seen) - _PART) :]
    return words_of(record.content[:_PART], seen[:_PART], tail)


def index(connection: Connection, records: Sequence[ActionRecord]) -> None:
    """Index the actions; those that are indexed already are skipped."""
    if connection.dialect.name != "sqlite":
        columns = {
            "sids": [one.sid for one in records],
            "seqs": [one.seq for one in records],
            "words": [" ".join(indexed(one)) for one in records],
        }
        connection.execute(_POSTGRESQL, columns)
        return
    keys = json.dumps([[one.sid, one.seq] for one in records])
    numbers = {(sid, seq): number for number, sid, seq in connection.execute(_NUMBERED, {"keys": keys})}
    rows = [
        {"id": numbers.pop((one.sid, one.seq)), "words": " ".join(indexed(one))}
        for one in records
        if (one.sid, one.seq) in numbers
    ]
    if rows:
        connection.execute(_SQLITE, rows)
