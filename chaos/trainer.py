"""The scripted trainer: keeps a number of rollouts running through the balancer over real HTTP, and records them."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import count, pairwise, product

import httpx
from sandbox_client import SandboxClient, Timeouts

from chaos.fleet import Fleet
from chaos.processes import ChaosFailed
from chaos.rollout import Ending, Phase, Player, Rollout

TIMEOUTS = Timeouts(start_s=300, action_s=150, finish_s=300, reward_s=300, reward_total_s=900, retry_s=90)
"""Longer than every fault here, so that the client's retries can bridge them."""
_DRAIN_S = 900.0
_ENDINGS: Sequence[Ending] = ("gold", "wrong", "gold", "none")


class Trainer:
    """`parallel` rollouts at a time, alternating samples and endings."""

    def __init__(self, fleet: Fleet, parallel: int) -> None:
        self.rollouts: list[Rollout] = []
        self.answers: list[float] = []
        """Monotonic times of all responses."""
        self._fleet = fleet
        self._parallel = parallel
        self._stopping = False
        self._moved = asyncio.Event()
        self._numbers = count()
        self._plans = list(product(_ENDINGS, fleet.instances))

    @asynccontextmanager
    async def rolling(self) -> AsyncIterator[None]:
        """Keep rollouts running during the block; at its end, let the running ones finish.

        Raises:
            ChaosFailed: one of them does not end, so the service hangs it.

        """
        async with SandboxClient(self._fleet.url, timeouts=TIMEOUTS) as client:
            slots = [asyncio.create_task(self._slot(client, index)) for index in range(self._parallel)]
            try:
                yield
                self._stopping = True
                _, hung = await asyncio.wait(slots, timeout=_DRAIN_S)
                if hung:
                    where = [f"{one.sid or 'no sid'}: {one.phase}" for one in self.rollouts if not one.over]
                    raise ChaosFailed(f"{len(hung)} rollouts have not ended after {_DRAIN_S:g} s: {', '.join(where)}")
                await asyncio.gather(*slots)  # raises the harness's own errors
            finally:
                for slot in slots:
                    slot.cancel()
                await asyncio.gather(*slots, return_exceptions=True)

    async def _slot(self, client: SandboxClient, index: int) -> None:
        await asyncio.sleep(0.3 * index)  # so that they are in different phases
        while not self._stopping:
            number = next(self._numbers)
            ending, (sample, instance_id) = self._plans[number % len(self._plans)]
            rollout = Rollout(number, f"r{number}x{secrets.token_hex(3)}", sample, ending, time.monotonic())
            self.rollouts.append(rollout)
            finding = asyncio.create_task(self._find(rollout))
            await Player(client, instance_id, rollout, self._move).play()
            finding.cancel()
            if rollout.gave_up:
                await asyncio.sleep(1.0)  # a refused trainer must not retry in a tight loop

    async def _find(self, rollout: Rollout) -> None:
        """Look up the session's node."""
        async with httpx.AsyncClient(base_url=self._fleet.url, timeout=5) as http:
            while not rollout.node:
                await asyncio.sleep(0.1)
                if rollout.sid:
                    with suppress(httpx.HTTPError, ValueError, KeyError):
                        rollout.node = (await http.get(f"/v1/sessions/{rollout.sid}")).json()["node"]

    def _move(self) -> None:
        self.answers.append(time.monotonic())
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    async def until(self, condition: Callable[[], object], seconds: float, what: str) -> None:
        """Wait for a condition that changes as rollouts progress. Raises ChaosFailed after `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    await self._moved.wait()
        except TimeoutError:
            raise ChaosFailed(f"not within {seconds:g} s: {what}; {self.summary()}") from None

    def under_way(self, *phases: Phase) -> list[Rollout]:
        """Rollouts whose current call is in one of these phases."""
        return [one for one in self.rollouts if one.phase in phases]

    def summary(self) -> str:
        """Counts by phase, for messages."""
        phases = [one.phase for one in self.rollouts]
        return ", ".join(f"{phases.count(phase)} {phase}" for phase in sorted(set(phases)))

    def longest_silence_s(self, since: float) -> float:
        """Longest time after `since` in which no rollout made progress."""
        times = [since, *(at for at in self.answers if at > since)]
        return max((later - earlier for earlier, later in pairwise(times)), default=0.0)
