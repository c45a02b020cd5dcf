"""Decides whether a missing result is the policy's fault, by what the instance's own patches give."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from weakref import WeakValueDictionary

from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.errors import ServiceError
from sandbox_server.grading.base import BaselineSource, TestRun
from sandbox_server.records import VerdictName

_GRADED = {VerdictName.RESOLVED, VerdictName.UNRESOLVED}


class Calibration:
    """Masks verdicts without results, by the stored baseline or else by one run of the unpatched tree.

    That run uses the slot of the grading that asks. If it gives results, it happens once per instance and process; if
    it gives none, that may be the host's doing, and is believed for a while only.
    """

    def __init__(
        self, stored: BaselineSource, run_empty: Callable[[TaskInstance], Awaitable[TestRun]], *, kept_s: float
    ) -> None:
        """`run_empty` runs the tests of the unpatched tree in a fresh container.

        For `kept_s` seconds, that it gave no results is believed.
        """
        self._stored = stored
        self._run_empty = run_empty
        self._kept_s = kept_s
        self._seen: dict[str, tuple[bool, float]] = {}
        """Instance -> whether its unpatched tree gave results, until when that is believed (monotonic clock)."""
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def mask(self, instance: TaskInstance, run: TestRun, *, timeout_s: float) -> tuple[bool, str]:
        """(mask, text to append to the cause) for `run`, whose tests had `timeout_s` seconds."""
        try:
            if run.name is VerdictName.TIMEOUT:
                known = await self._known_gold_s(instance)
                return (True, "; gold is known to run as long") if known and known >= timeout_s else (False, "")
            if run.name is VerdictName.NO_RESULTS:
                gives = await self._empty_gives_results(instance)
                return (False, "; the unpatched tree gives some") if gives else (True, "; nor does the unpatched tree")
        except ServiceError as error:
            return True, f"; whether the patch is to blame could not be found out: {error.detail}"
        return False, ""

    async def _known_gold_s(self, instance: TaskInstance) -> float | None:
        stored = await self._stored(instance)
        return stored.gold_tests_s if stored else None

    async def _empty_gives_results(self, instance: TaskInstance) -> bool:
        key = f"{instance.instance_id}:{instance.row_sha256}"
        turn = self._turns.setdefault(key, asyncio.Lock())
        async with turn:
            gives, until = self._seen.get(key, (False, 0.0))
            if time.monotonic() < until:
                return gives
            stored = await self._stored(instance)
            if stored and stored.empty_gives_results is not None:
                gives = stored.empty_gives_results
            else:
                gives = (await self._run_empty(instance)).name in _GRADED
            self._seen[key] = gives, math.inf if gives else time.monotonic() + self._kept_s
            return gives
