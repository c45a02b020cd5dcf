"""Decides whether a missing result is the policy's fault, by what the instance's own patches give."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from weakref import WeakValueDictionary

from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.errors import ServiceError
from sandbox_server.grading.base import Baseline, BaselineSource, TestRun, own_patches
from sandbox_server.records import VerdictName

_GRADED = {VerdictName.RESOLVED, VerdictName.UNRESOLVED}


_EMPTY, _GOLD = "the unpatched tree", "gold"


class Calibration:
    """Masks verdicts without results, by the stored baseline or else by a run of the unpatched tree, then of gold.

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
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def mask(self, instance: TaskInstance, run: TestRun, *, timeout_s: float) -> tuple[bool, str]:
        """(mask, text to append to the cause) for `run`, whose tests had `timeout_s` seconds."""
        try:
            if run.name is VerdictName.TIMEOUT:
                known = await self._known_gold_s(instance)
                return (True, "; gold is known to run as long") if known and known >= timeout_s else (False, "")
            if run.name is VerdictName.NO_RESULTS:
                gives = await self._gives_results(instance)
                return (False, f"; {gives} gives some") if gives else (True, f"; nor does {_EMPTY}")
        except ServiceError as error:
            return True, f"; whether the patch is to blame could not be found out: {error.detail}"
        return False, ""

    async def _known_gold_s(self, instance: TaskInstance) -> float | None:
        stored = await self._stored(instance)
        return stored.gold_tests_s if stored else None

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
