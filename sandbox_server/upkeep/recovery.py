"""Takes over the sessions of the previous server of this node, before this server takes requests."""

import asyncio

from sandbox_server.lifecycle import SessionState
from sandbox_server.scoring.rewards import Rewards
from sandbox_server.sessions.data import SessionData
from sandbox_server.sessions.kinds import Kinds
from sandbox_server.starts.starts import Starts
from sandbox_server.upkeep.expiry import TOGETHER, Expiry
from sandbox_server.upkeep.reaper import Reaper
from sandbox_server.upkeep.rebuilding import Rebuilding


class Recovery:
    """Takes over live sessions, and finishes the ends and gradings that were interrupted."""

    def __init__(
        self,
        data: SessionData,
        kinds: Kinds,
        starts: Starts,
        rewards: Rewards,
        rebuilding: Rebuilding,
        expiry: Expiry,
        reaper: Reaper,
        *,
        node: str,
    ) -> None:
        self._data = data
        self._kinds = kinds
        self._starts = starts
        self._rewards = rewards
        self._rebuilding = rebuilding
        self._expiry = expiry
        self._reaper = reaper
        self._node = node

    async def recover(self) -> None:
        """Recover from a server that died: sessions missing in Redis, unfinished ends and gradings."""
        await self._rebuilding.rebuild()
        live = await self._data.store.live(self._node)
        await self._starts.adopt(live)
        for kind in self._kinds.values():
            await kind.save(live)
        await self._data.history.save_sessions(live)  # some starts may have been acknowledged before they were in SQL
        gate = asyncio.Semaphore(TOGETHER)
        halfway = [record for record in live if record.state == SessionState.ENDING]
        await asyncio.gather(*(self._expiry.finish(gate, record, record.end_reason) for record in halfway))
        await self._reaper.sweep()
        for sid in await self._data.history.ungraded(self._node):
            if record := await self._data.session(sid):
                self._rewards.begin(record)
