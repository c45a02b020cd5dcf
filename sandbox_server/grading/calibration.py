"""Decides whether a missing result is the policy's fault, by comparison with the instance's own patches."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from weakref import WeakValueDictionary

from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.errors import ServiceError
from sandbox_server.grading.base import Baseline, BaselineSource, TestRun, own_patches
from sandbox_server.verdicts import VerdictName

_GRADED = {VerdictName.RESOLVED, VerdictName.UNRESOLVED}
_EMPTY, _GOLD = "the unpatched tree", "gold"


class Calibration:
    """Masks a verdict without results if neither the unpatched tree nor gold gives results.

    Whether they do is read from the stored baseline, or else found by running the unpatched tree, then gold. A timeout
    is masked if gold exceeds the limit too, by the baseline or in a run now, because the host may be slow.

    These runs use the slot of the grading that asks. That one gives results is remembered as long as the process
    lives. That none does may be the host's fault, so it is remembered for a while only.
    """

    def __init__(
        self, stored: BaselineSource, run: Callable[[TaskInstance, bytes], Awaitable[TestRun]], *, kept_s: float
    ) -> None:
        """`run` runs the tests over a patch in a fresh container.

        `kept_s`: seconds for which it is remembered that nothing gave results.
        """
        self._stored = stored
        self._run = run
        self._kept_s = kept_s
        self._seen: dict[str, tuple[str, float]] = {}
        """Instance -> which of its own patches gave results, and until when that counts (monotonic clock)."""
        self._slow: dict[str, tuple[bool, float]] = {}
        """Instance -> whether gold's newest run went past the limit, and when that run ended (monotonic clock)."""
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def mask(self, instance: TaskInstance, run: TestRun, *, timeout_s: float) -> tuple[bool, str]:
        """(mask, text to append to the cause) for `run`, whose tests had `timeout_s` seconds."""
        try:
            if run.name is VerdictName.TIMEOUT:
                return (True, "; gold runs as long") if await self._gold_runs(instance, timeout_s) else (False, "")
            if run.name is VerdictName.NO_RESULTS:
                gives = await self._gives_results(instance)
                return (False, f"; {gives} gives some") if gives else (True, f"; nor does {_EMPTY}")
        except ServiceError as error:
            return True, f"; whether the patch is to blame could not be found out: {error.detail}"
        return False, ""

    async def _gold_runs(self, instance: TaskInstance, timeout_s: float) -> bool:
        """Whether gold also runs for `timeout_s`: by the baseline, or in a run now, because the host may be slow.

        A run of gold counts only for timeouts of about the same time. If gold ran into its limit, it counts for tests
        that began before gold's run ended; if not, for tests that ended before gold's run did. Otherwise one slow
        moment of the host would mask all later timeouts.
        """
        ended = time.monotonic()
        stored = await self._stored(instance) or Baseline()
        if stored.gold_tests_s and stored.gold_tests_s >= timeout_s:
            return True
        key = f"gold:{instance.instance_id}:{instance.row_sha256}"
        async with self._turns.setdefault(key, asyncio.Lock()):
            slow, seen = self._slow.get(key, (False, -math.inf))
            if seen < (ended - timeout_s if slow else ended):
                known = own_patches(instance)[1:]  # gold, or nothing
                slow = bool(known) and (await self._run(instance, known[0])).name is VerdictName.TIMEOUT
                self._slow[key] = slow, time.monotonic()
            return slow

    async def _gives_results(self, instance: TaskInstance) -> str:
        """Which of the instance's own patches gives results, as a cause says it; "" if none does."""
        key = f"{instance.instance_id}:{instance.row_sha256}"
        turn = self._turns.setdefault(key, asyncio.Lock())
        async with turn:
            gives, until = self._seen.get(key, ("", 0.0))
            if time.monotonic() < until:
                return gives
            gives = await self._found(instance)
            self._seen[key] = gives, math.inf if gives else time.monotonic() + self._kept_s
            return gives

    async def _found(self, instance: TaskInstance) -> str:
        stored = await self._stored(instance) or Baseline()
        for patch in own_patches(instance):
            known = stored.gold_gives_results if patch else stored.empty_gives_results
            if known is None:
                known = (await self._run(instance, patch)).name in _GRADED
            if known:
                return _GOLD if patch else _EMPTY
        return ""
