"""From a start into SQL: every session that began, soon after it was answered for, together with others.

A start is acknowledged once Redis has its session. SQL gets it here, some 10 ms later: a commit waits for the disk,
and starts need not wait for it one after the other. What a killed server leaves unwritten its successor writes, from
Redis.
"""

import asyncio

from sandbox_server.catalogue.boxes import BoxHistory
from sandbox_server.catalogue.history import History
from sandbox_server.records import BoxRecord, SessionRecord


class SessionLog:
    """Begun sessions on their way to SQL."""

    def __init__(self, history: History, boxes: BoxHistory) -> None:
        self._history = history
        self._boxes = boxes
        self._unwritten: dict[str, SessionRecord] = {}
        self._unwritten_boxes: dict[str, BoxRecord] = {}
        self._added = asyncio.Event()

    def add(self, record: SessionRecord, box: BoxRecord | None = None) -> None:
        """Write it soon; `box`: what it is beyond a session."""
        if box is not None:
            self._unwritten_boxes[record.sid] = box
        self._unwritten[record.sid] = record
        self._added.set()

    async def write(self) -> None:
        """Wait until a session has begun, and write it. Raises CatalogueUnavailable: it is still to be written."""
        await self._added.wait()
        await self.drain()

    async def drain(self) -> None:
        """Write all that is there. Raises CatalogueUnavailable: it is still to be written."""
        while self._unwritten:
            batch, boxes = list(self._unwritten.values()), list(self._unwritten_boxes.values())
            await self._boxes.save(boxes)  # first: a session of SQL whose box is not there could not be rebuilt
            for box in boxes:
                if self._unwritten_boxes.get(box.sid) is box:
                    del self._unwritten_boxes[box.sid]
            await self._history.save_sessions(batch)
            for record in batch:
                if self._unwritten.get(record.sid) is record:
                    del self._unwritten[record.sid]
        self._added.clear()
