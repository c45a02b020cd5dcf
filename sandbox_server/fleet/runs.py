"""Operations on a whole run: ending its sessions, its owner, and its lease."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from sandbox_server import clock, telemetry
from sandbox_server.errors import RunOfAnother
from sandbox_server.lifecycle import OVER
from sandbox_server.records import SessionRecord
from sandbox_server.state.nodes import Nodes
from sandbox_server.state.runs import RunState
from sandbox_server.state.store import Store

log = telemetry.logger(__name__)

_LOOK_EVERY_S = 0.2
_TOLD = 10_000  # remembered (run, key) pairs that need no claim; bounded because clients choose the names of runs


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The result of ending a run's sessions."""

    ended: tuple[str, ...]
    ending: tuple[str, ...]
    """Sessions whose end is still in progress."""


class Runs:
    """Ends runs, and records their owners and leases."""

    def __init__(
        self,
        store: Store,
        state: RunState,
        nodes: Nodes,
        *,
        node: str,
        end_detached: Callable[[str, str], asyncio.Task[SessionRecord | None]],
    ) -> None:
        """`end_detached(sid, reason)` ends a session of this node in a task of its own."""
        self._store = store
        self._state = state
        self._nodes = nodes
        self._node = node
        self._end_detached = end_detached
        self._told: set[tuple[str, str]] = set()

    async def started(self, run: str, key: str) -> None:
        """Record a start for `run` with the API key named `key`; the first key to do so owns the run.

        A run with the same name as the key always belongs to the key.

        Raises:
            RunOfAnother: a key with a name cannot start anything for a run of another owner.
        """
        if (run, key) in self._told:
            return
        if key:
            await self.check(run, key)
        else:
            await self._state.claim(run, key)
        if len(self._told) >= _TOLD:
            self._told.clear()
        self._told.add((run, key))

    async def check(self, run: str, key: str) -> None:
        """Check that the key may act on the run: a key with a name only on its own runs, one without on any.

        Raises:
            RunOfAnother.
        """
        if key and await self._state.claim(run, key, anew=run == key) != key:
            raise RunOfAnother(
                f"The run {run!r} was not started with the API key {key!r}; use its own key, or one without a name."
            )

    async def keep(self, run: str, ttl_s: float) -> float:
        """Extend the run's lease to `ttl_s` seconds from now; returns the Unix time at which it expires."""
        return await self._state.keep(run, ttl_s)

    async def release(self, run: str) -> bool:
        """Remove the run's lease, so that only their own limits end its sessions; False if it had none."""
        return await self._state.release(run)

    async def end(self, run: str, *, owner: str = "", wait_s: float) -> RunEnd:
        """End all sessions and boxes that the run has now; waits at most `wait_s` seconds.

        `owner`: only sessions that the key of this name started, whatever owner Redis has for the run; "": all.

        Sessions started later are not ended. Sessions of dead nodes hold no slot, and are left to the reaper.
        """
        asked_at = clock.now()
        records = [
            one
            for one in await self._store.live()
            if one.run == run and one.created_at <= asked_at and owner in ("", one.owner)
        ]
        log.info("run ended", run=run, sessions=len(records))
        theirs: dict[str, list[str]] = {}
        for record in records:
            if record.node == self._node:
                self._end_detached(record.sid, "run_ended")
            else:
                theirs.setdefault(record.node, []).append(record.sid)
        alive = {node.node for node in await self._nodes.alive()} if theirs else set()
        for node in theirs.keys() & alive:
            await self._state.ask_to_end(node, theirs[node])
        sids = [one.sid for one in records if one.node == self._node or one.node in alive]
        return await self._wait(sids, asyncio.get_running_loop().time() + wait_s)

    async def end_requested(self) -> None:
        """End the sessions of this node whose end other nodes have requested."""
        for sid in await self._state.take_end_requests():
            self._end_detached(sid, "run_ended")

    async def _wait(self, sids: list[str], until: float) -> RunEnd:
        ending = list(sids)
        while True:
            records = await asyncio.gather(*map(self._store.session, ending))
            ending = [one.sid for one in records if one is not None and one.state not in OVER]
            if not ending or asyncio.get_running_loop().time() > until:
                return RunEnd(tuple(sid for sid in sids if sid not in ending), tuple(ending))
            await asyncio.sleep(_LOOK_EVERY_S)
