"""Puts back what Redis lacks of a box because it came back with an older copy of its data.

Redis and SQL count the changes of each box, and each server remembers the number of its own last change. Another node
may have moved a box's end since. So SQL is asked before a box is ended at its deadline, and before a container is
removed that Redis does not name as the box's.
"""

from dataclasses import replace

from sandbox_server import clock, telemetry
from sandbox_server.catalogue.boxes import BoxHistory
from sandbox_server.lifecycle import OVER, SessionState
from sandbox_server.records import SessionRecord
from sandbox_server.sessions.data import SessionData
from sandbox_server.starts.log import SessionLog
from sandbox_server.state.boxes import BoxFacts

log = telemetry.logger(__name__)


class BoxRedisReconciler:
    """Compares what Redis has of a box with SQL. Every method raises StateUnavailable, CatalogueUnavailable."""

    def __init__(self, data: SessionData, facts: BoxFacts, boxes: BoxHistory, log: SessionLog) -> None:
        self._data = data
        self._facts = facts
        self._boxes = boxes
        self._log = log

    async def is_behind(self, record: SessionRecord) -> bool:
        """Whether `record`, from Redis, lacks changes by this server, or after the box's deadline by any server."""
        if self._facts.is_behind(record):
            return True
        if record.state != SessionState.LIVE or clock.now() < record.deadline:
            return False
        known = await self._data.history.session(record.sid)
        return known is not None and known.changes > record.changes

    async def reconcile(self, sid: str) -> bool:
        """Put back what Redis lacks of the box; returns whether it lacked anything. The caller holds the box's lock."""
        await self._log.drain()
        present, _ = await self._facts.with_session(sid)
        known = await self._data.history.session(sid)
        if present is None or present.state != SessionState.LIVE or known is None:
            return False
        if known.changes <= present.changes and known.state not in OVER:
            self._facts.settle(present)
            return False
        log.warning("Redis lacked the last changes of a box; put back", sid=sid, had=present.changes, has=known.changes)
        if box := await self._boxes.get(sid):
            await self._facts.put(box, known.deadline)
        # the idle time is unknown, so it starts again at 0
        await self._data.store.put_session(known if known.state in OVER else replace(known, touched_at=clock.now()))
        self._facts.settle(known)
        return True
