"""Writes started sessions to SQL, in batches, soon after their starts were acknowledged.

A start is acknowledged once its session is in Redis. It is written to SQL here, some 10 ms later, because a commit
waits for the disk, and starts should not wait for it one after the other. If a server is killed, its successor writes
the missing sessions from Redis.
"""

import asyncio

from sandbox_server.catalogue.boxes import BoxHistory
from sandbox_server.catalogue.history import History
from sandbox_server.records import BoxRecord, SessionRecord


class SessionLog:
    """Buffer of started sessions that are not in SQL yet."""

    def __init__(self, history: History, boxes: BoxHistory) -> None:
        self._history = history
        self._boxes = boxes
        self._unwritten: dict[str, SessionRecord] = {}
        self._unwritten_boxes: dict[str, BoxRecord] = {}
        self._added = asyncio.Event()

    def add(self, record: SessionRecord, box: BoxRecord | None = None) -> None:
        """Queue the session to be written; `box`: the box's own record, if it is a box."""
        if box is not None:
            self._unwritten_boxes[record.sid] = box
        self._unwritten[record.sid] = record
        self._added.set()

    async def write(self) -> None:
        """Wait for a session and write it. Raises CatalogueUnavailable; the session then stays queued."""
        await self._added.wait()
        await self.drain()

    async def drain(self) -> None:
        """Write all queued sessions. Raises CatalogueUnavailable; those not written stay queued."""
        while self._unwritten:
            batch, boxes = list(self._unwritten.values()), list(self._unwritten_boxes.values())
            await self._boxes.save(boxes)  # first: a box's session in SQL cannot be rebuilt without its box record
            for box in boxes:
                if self._unwritten_boxes.get(box.sid) is box:
                    del self._unwritten_boxes[box.sid]
            await self._history.save_sessions(batch)
            for record in batch:
                if self._unwritten.get(record.sid) is record:
                    del self._unwritten[record.sid]
        self._added.clear()
