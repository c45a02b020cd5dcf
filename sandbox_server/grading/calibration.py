"""Decides whether a missing result is the policy's fault, by what the instance's own patches give."""

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
    """Masks verdicts without results, by the stored baseline or else by a run of the unpatched tree, then of gold.

    A timeout is masked if gold runs as long, at any time or now, when the host may be slow.

    These runs use the slot of the grading that asks. If one gives results, they happen once per instance and process;
    if none does, that may be the host's doing, and is believed for a while only.
    """

    def __init__(
        self, stored: BaselineSource, run: Callable[[TaskInstance, bytes], Awaitable[TestRun]], *, kept_s: float
    ) -> None:
        """`run` runs the tests over a patch in a fresh container.

        For `kept_s` seconds, that nothing gave results is believed.
        """
        self._stored = stored
        self._run = run
        self._kept_s = kept_s
        self._seen: dict[str, tuple[str, float]] = {}
        """Instance -> what of its own gave results, until when that is believed (monotonic clock)."""
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
        """Whether gold is known to run for `timeout_s`, or does now, because the host is slow.

        A run of gold tells of timeouts at about its own time only: a slow one of those that ran beside it, a quick one
        of those that ended before it did. Otherwise all timeouts after a slow moment of the host were masked.
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
        """What of the instance's own gives results; "" if nothing does."""
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
