"""Actions found by their words, on each database."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_server.catalogue.action_words import WORD, indexed, words_of
from sandbox_server.catalogue.database import Database
from sandbox_server.catalogue.history import History
from sandbox_server.catalogue.insight.search import ActionSearch, terms_of
from sandbox_server.errors import MalformedRequest
from sandbox_server.records import ActionRecord, SessionRecord

LONG = "x" * 40_000 + " needle_at_the_end"


def action(sid: str, seq: int, content: str, observation: str) -> ActionRecord:
    return ActionRecord(
        sid=sid,
        seq=seq,
        content=content,
        observation=observation,
        tool="execute_bash",
        outcome="ok",
        exit_code=0,
        started_at=float(seq),
        duration_s=0.1,
        idempotency_key="",
    )


ACTIONS = [
    action("1", 1, "git log --all", "commit deadbeef\nAuthor: Ärger Müller"),
    action("1", 2, "cat ledger/money.py", "def round_half_even(x):\n    return x\0\ud800"),
    action("2", 1, "pytest -q", "FAILED tests/money.py::round - assert 1 == 2"),
    action("2", 2, "'; DROP TABLE actions; -- \" ' \\", LONG),
]
FOUND = [
    ("money", None, ["2/1", "1/2"]),
    ("money", "a", ["1/2"]),
    ("LEDGER/money.py", None, ["1/2"]),
    ("round*", None, ["2/1", "1/2"]),
    ("round", None, ["2/1"]),
    ("log deadbeef", None, ["1/1"]),
    ("Ärger", None, ["1/1"]),
    ("needle_at_the_end", None, ["2/2"]),
    ("' OR \" drop* \\", None, []),
    ("'drop*'\"", None, ["2/2"]),
]


@pytest.fixture
async def search(database: Database) -> ActionSearch:
    history = History(database, searched=True)
    for sid, run in (("1", "a"), ("2", "b")):
        await history.save_session(SessionRecord(sid, "live", "x-1", "n1", "c", 1.0, 2.0, 3.0, run=run))
    await history.add_actions([*ACTIONS[:2], ACTIONS[0]])
    await history.add_actions(ACTIONS)  # as a server does that was killed before Redis heard of the commit
    return ActionSearch(database)


async def test_actions_are_found_by_their_words(search: ActionSearch) -> None:
    """All words must be there, in whatever order and case; what a policy wrote is no query."""
    for query, run, expected in FOUND:
        hits = await search.find(query, run=run, before=None, limit=10)
        assert [f"{hit.sid}/{hit.seq}" for hit in hits] == expected, query
    (hit,) = await search.find("half* round_half_even def", run="a", before=None, limit=10) or [None]
    assert hit is None  # `half` begins no word of it
    (hit,) = await search.find("round_half*", run="a", before=None, limit=10)
    assert (hit.where, hit.line, hit.tool, hit.instance_id) == (
        "observation",
        "def round_half_even(x):",
        "execute_bash",
        "x-1",
    )
    for query in ("", " -- ", "*"):
        with pytest.raises(MalformedRequest):
            await search.find(query, run=None, before=None, limit=10)


async def test_pages(search: ActionSearch) -> None:
    (first,) = await search.find("money", run=None, before=None, limit=1)
    (second,) = await search.find("money", run=None, before=first.id, limit=1)
    assert (first.sid, second.sid) == ("2", "1")
    assert await search.find("money", run=None, before=second.id, limit=1) == []


@given(st.text(max_size=40) | st.text(string.printable, max_size=40))
def test_whatever_is_indexed_can_be_asked_for(text: str) -> None:
    """A word that the query splits otherwise than the index would never be found."""
    words = indexed(action("1", 1, text, text))
    assert words == words_of(text) and all(WORD.fullmatch(word) for word in words)
    assert [term.word for term in terms_of(" ".join(words))] == words
    assert [term.word for term in terms_of(text)] == words
