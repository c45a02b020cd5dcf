"""Decides which gradings this node takes: its own, a dead node's, and those that another node cannot begin yet.

A patch is graded by the node that took it, which has the image and a container ready. Jobs for which that node has no
room stay in its stream (`state.jobs`), and a dead node's jobs return to its stream; a node with room reads them there.
A grading without a job, after a loss of Redis or a crash, is found in SQL and submitted again.
"""

import time
from dataclasses import dataclass

from sandbox_server import clock, telemetry
from sandbox_server.catalogue.history import History
from sandbox_server.catalogue.instances import Instances
from sandbox_server.scoring.rewards import Rewards
from sandbox_server.state.jobs import GradingJobs
from sandbox_server.state.nodes import Liveness, NodeRecord, Nodes
from sandbox_server.state.store import Store

log = telemetry.logger(__name__)

_NOT_AGAIN_S = 10.0
"""Pause in reading a stream after it gave this node a job that suits another node better."""
_LEAVE_S = 60.0
"""Time without reading after which this node leaves a stream; joining it again costs a few round trips."""


@dataclass(frozen=True, slots=True)
class BalancerConfig:
    """When the gradings of all nodes are checked."""

    node: str
    """This node."""
    period_s: float
    """Period of `GradingBalancer.look`."""
    recover_period_s: float
    """Period of `GradingBalancer.recover`."""
    kept_s: float
    """Age of a session's start after which `recover` no longer considers the session."""


class GradingBalancer:
    """Checks the gradings of all nodes every SANDBOX_NODE_BEAT_S."""

    def __init__(
        self,
        jobs: GradingJobs,
        rewards: Rewards,
        nodes: Nodes,
        store: Store,
        history: History,
        instances: Instances,
        config: BalancerConfig,
    ) -> None:
        self._jobs = jobs
        self._rewards = rewards
        self._nodes = nodes
        self._store = store
        self._history = history
        self._instances = instances
        self._config = config
        self._node = config.node
        self._recover_at = time.monotonic() + config.recover_period_s
        self._alive: dict[str, NodeRecord] = {}
        self._not_before: dict[str, float] = {}
        self._helped_at: dict[str, float] = {}
        self._beats: dict[str, tuple[tuple[str, int], float]] = {}
        """Node -> its last heartbeat (boot, number) and the time when this was first seen."""
        self._recovers = False

    async def open(self) -> None:
        """Start to take jobs. Raises StateUnavailable."""
        await self._jobs.open(self.work, self._rewards.room)

    async def work(self, sid: str, stream_of: str) -> bool:
        """Run a job from the stream of node `stream_of`; False returns it to the stream."""
        if not self._rewards.known(sid):
            if not self._rewards.well:
                self._rewards.accepting = False  # `_look` resumes the streams once the faults are gone
                await self._jobs.hold(stream_of)
                return False
            if stream_of != self._node and not await self._suits(sid):
                self._not_before[stream_of] = time.monotonic() + _NOT_AGAIN_S
                await self._jobs.hold(stream_of)
                return False
            if stream_of != self._node:
                log.info("grading taken over", sid=sid, stream_of=stream_of)
        return await self._rewards.work(sid)

    async def look(self) -> None:
        """Check the gradings of all nodes once; every `recover_period_s` also `recover`."""
        await self._look()
        if time.monotonic() > self._recover_at:
            self._recover_at = time.monotonic() + self._config.recover_period_s
            await self.recover()

    async def recover(self) -> None:
        """Submit the gradings that have a patch but no verdict and no job. One node does this for all, until it dies.

        Raises:
            StateUnavailable, CatalogueUnavailable.

        """
        self._recovers = self._recovers or await self._store.claim("ungraded") is not None
        if not self._recovers:
            return
        now = clock.now()
        undone = await self._history.ungraded(
            started_after=now - self._config.kept_s, ended_before=now - self._config.recover_period_s
        )
        if not undone:
            return
        submitted = await self._jobs.submitted(sorted(await self._jobs.nodes()))
        for sid in undone:
            if sid in submitted or (session := await self._history.session(sid)) is None:
                continue
            log.warning("grading submitted again: it had no job", sid=sid)
            node = session.node if session.node in self._alive else self._node
            await self._jobs.submit(sid, node, again=True)

    async def _look(self) -> None:
        await self._jobs.tend()
        self._alive = {record.node: record for record in await self._nodes.alive()}
        own = self._alive.get(self._node)
        accepting = own is None or not own.faults
        if accepting and not self._rewards.accepting:
            self._rewards.accepting = True
            await self._jobs.help(self._node)
        elif not accepting and self._rewards.accepting:
            log.warning("no gradings are taken", faults=dict(own.faults) if own else {})
            self._rewards.accepting = False
            await self._jobs.hold(self._node)
        self._rewards.alone = not any(record.takes for name, record in self._alive.items() if name != self._node)
        helps = own is not None and own.takes
        for node in await self._jobs.nodes() - {self._node}:
            now = time.monotonic()
            if helps and now > self._not_before.get(node, 0.0) and await self._needs_help(node):
                self._helped_at[node] = now
                await self._jobs.help(node)
            elif node in self._jobs.helped:
                await (self._jobs.hold if now < self._helped_at[node] + _LEAVE_S else self._jobs.leave)(node)

    async def _needs_help(self, node: str) -> bool:
        record = self._alive.get(node)
        if record is not None and record.takes and record.gradings < record.grade_slots and not self._silent(record):
            return False
        waiting, taken = await self._jobs.waiting(node)
        if record is not None:
            # that node starts a waiting job only after the jobs that it has prefetched; an idle node starts it at once
            return waiting > 0 and self._rewards.idle
        if not waiting + taken:
            if node in self._jobs.helped:
                await self._jobs.forget(node)
            return False
        return self._rewards.room() and await self._nodes.liveness(node) is Liveness.DEAD

    def _silent(self, record: NodeRecord) -> bool:
        """Whether the node's heartbeat has stopped; then it may be shutting down, with its jobs given back."""
        now, beat = time.monotonic(), (record.boot, record.beats)
        last, seen_at = self._beats.get(record.node, (None, 0.0))
        if last != beat:
            self._beats[record.node] = (beat, now)
            return False
        return now - seen_at > 2 * self._config.period_s

    async def _suits(self, sid: str) -> bool:
        """Whether this node suits the grading: it has the image, or no live node that takes jobs has it."""
        session = await self._history.session(sid)
        if session is None:
            return True
        instance = await self._instances.by_id(session.instance_id)
        present = (await self._nodes.holders(instance.sandbox.image_keys)).present
        takers = {name for name, record in self._alive.items() if record.takes}
        return self._node in present or not present & takers
