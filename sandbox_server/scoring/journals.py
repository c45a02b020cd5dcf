"""A session's actions, from wherever they are: Redis has the recent ones at once, SQL all of them soon and for good."""

from sandbox_server.catalogue.history import History
from sandbox_server.errors import StateUnavailable
from sandbox_server.records import ActionRecord, SessionRecord
from sandbox_server.state.store import Store

EXEC = "exec"
"""`ActionRecord.tool` of a batch of commands that the trainer sent."""
FILE, COMMAND, COMMAND_END = "file", "command", "command_end"
"""`ActionRecord.tool` of what was done through the API of boxes."""
NO_TEXTS = frozenset((EXEC, FILE, COMMAND, COMMAND_END))
"""Tools whose actions are not text of a policy."""


class Journals:
    """Reads journals."""

    def __init__(self, store: Store, history: History) -> None:
        self._store = store
        self._history = history

    async def of(self, record: SessionRecord) -> list[ActionRecord]:
        """What there is, oldest first. Raises StateUnavailable, CatalogueUnavailable."""
        recent = await self._store.actions(record.sid)
        if recent and len(recent) >= record.actions:
            return recent
        # the record may be older than the journal: SQL has it as it was at the start until the session's end
        kept = await self._history.actions(record.sid)
        return max(recent, kept, key=len)

    async def part(self, record: SessionRecord, *, after: int, limit: int) -> list[ActionRecord]:
        """As `of`, from the one past number `after` on, `limit` at most."""
        if record.ended_at == 0 and after >= record.actions > 0:
            return []  # nothing new: whoever follows a session asks often
        recent = await self._store.actions(record.sid, after=after, limit=limit)
        if recent and recent[0].seq == after + 1:  # Redis has all of them, or none of the first
            return recent
        return await self._history.actions(record.sid, after=after, limit=limit)

    async def complete(self, record: SessionRecord) -> list[ActionRecord]:
        """As `of`, and all of it.

        Raises:
            StateUnavailable: acknowledged actions are in neither of both. CatalogueUnavailable.

        """
        actions = await self.of(record)
        if len(actions) < record.actions:
            raise StateUnavailable(
                f"{len(actions)} of the {record.actions} actions of session {record.sid} are there; ask again later"
            )
        return actions
