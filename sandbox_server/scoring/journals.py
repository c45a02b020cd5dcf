"""A session's actions: the recent ones from Redis; all of them, slightly later but permanently, from SQL."""

from collections.abc import Iterable

from sandbox_server.catalogue.history import History
from sandbox_server.errors import StateUnavailable
from sandbox_server.records import ActionRecord, SessionRecord
from sandbox_server.state.store import Store

EXEC = "exec"
"""`ActionRecord.tool` of a batch of commands that the trainer sent."""
FILE, COMMAND, COMMAND_END = "file", "command", "command_end"
"""`ActionRecord.tool` of actions through the boxes API."""
ROLLBACK = "rollback"
"""`ActionRecord.tool` of a return to an earlier action."""
NO_TEXTS = frozenset((EXEC, FILE, COMMAND, COMMAND_END, ROLLBACK))
"""Tools whose actions are not policy text."""


def undone_ranges(undone: str) -> list[tuple[int, int]]:
    """`SessionRecord.undone` as (first, last) numbers."""
    return [(int(first), int(last)) for first, _, last in (text.partition("-") for text in undone.split())]


def undone_at(undone: str, seq: int) -> str:
    """The value that `SessionRecord.undone` had after action `seq`."""
    return " ".join(f"{first}-{last}" for first, last in undone_ranges(undone) if last <= seq)


def effective_actions(actions: Iterable[ActionRecord], undone: str) -> list[ActionRecord]:
    """The actions that led to the session's present state, without those that rollbacks undid."""
    ranges = undone_ranges(undone)
    return [action for action in actions if not any(first <= action.seq <= last for first, last in ranges)]


class Journals:
    """Reads journals."""

    def __init__(self, store: Store, history: History) -> None:
        self._store = store
        self._history = history

    async def of(self, record: SessionRecord) -> list[ActionRecord]:
        """The available actions, oldest first. Raises StateUnavailable, CatalogueUnavailable."""
        recent = await self._store.actions(record.sid)
        if recent and len(recent) >= record.actions:
            return recent
        # A session's record in SQL is the one written at its start until the session ends, so its count of actions may
        # be lower than the journal's.
        kept = await self._history.actions(record.sid)
        return max(recent, kept, key=len)

    async def part(self, record: SessionRecord, *, after: int, limit: int) -> list[ActionRecord]:
        """Like `of`, but at most `limit` actions, starting after number `after`."""
        if record.ended_at == 0 and after >= record.actions > 0:
            return []  # nothing new; clients that follow a session poll often
        recent = await self._store.actions(record.sid, after=after, limit=limit)
        if recent and recent[0].seq == after + 1:  # Redis may have dropped the first actions
            return recent
        return await self._history.actions(record.sid, after=after, limit=limit)

    async def complete(self, record: SessionRecord) -> list[ActionRecord]:
        """Like `of`, but complete.

        Raises:
            StateUnavailable: acknowledged actions are in neither store. CatalogueUnavailable.

        """
        actions = await self.of(record)
        if len(actions) < record.actions:
            raise StateUnavailable(
                f"{len(actions)} of the {record.actions} actions of session {record.sid} are there; ask again later"
            )
        return actions
