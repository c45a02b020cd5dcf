"""Makes the variants (altered tests) of an instance once for all servers, and stores them."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import replace
from weakref import WeakValueDictionary

from sandbox_server import telemetry
from sandbox_server.catalogue.certificate_key import CertificateKey
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.grading.altering import Runs, Variants
from sandbox_server.grading.base import CertificateStore, Claims, SlotRelease
from sandbox_server.grading.run_gate import RunGate
from sandbox_server.grading.variant_checks import VariantChecks

log = telemetry.logger(__name__)

PART = "variants"
_LOOK_S = 1.0  # pause while another server makes the variants


class Certifying:
    """Makes an instance's variants, once for all servers, and stores them."""

    def __init__(
        self,
        runs: Runs,
        store: CertificateStore,
        claims: Claims | None = None,
        *,
        budget_s: float = 900.0,
        yield_s: float = 0.0,
        at_once: int = 1,
    ) -> None:
        """After `budget_s` seconds no further run starts, and what was found until then counts.

        At most `at_once` instances have their variants made at a time. The runs of one instance let gradings go first
        for `yield_s` seconds in all; see `go_behind`.
        """
        self._runs = runs
        self._store = store
        self._claims = claims
        self._budget_s = budget_s
        self._yield_s = yield_s
        self._wait_until_uncrowded: Callable[[], Awaitable[None]] | None = None
        self._room = asyncio.Semaphore(at_once)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def go_behind(self, wait_until_uncrowded: Callable[[], Awaitable[None]]) -> None:
        """Let gradings go first: start each run only once `wait_until_uncrowded` returns, up to `yield_s` in all.

        A certificate needs a dozen runs. A grading of an instance with a certificate, or one that earns nothing, needs
        about a second. If the certificate went first, the rewards of all such gradings would wait for it.
        """
        self._wait_until_uncrowded = wait_until_uncrowded

    async def variants(
        self, instance: TaskInstance, key: CertificateKey, release_slot: SlotRelease = nullcontext
    ) -> Variants:
        """The variants stored under `key`; if there are none, make them while `release_slot` frees the slot,
        or wait for another maker.

        Raises:
            GraderBroken: gold gives no results. ServiceError: the runs gave no answer.

        """
        if found := await self._stored(key):
            return found
        async with release_slot():
            return await self._made_once(instance, key)

    async def _made_once(self, instance: TaskInstance, key: CertificateKey) -> Variants:
        turn = self._turns.setdefault(str(key), asyncio.Lock())
        async with turn:
            while (found := await self._stored(key)) is None:
                claim = await self._claims.claim(f"certify:{key}") if self._claims else True
                if claim is None:
                    await asyncio.sleep(_LOOK_S)
                    continue
                try:
                    found = await self._stored(key) or await self.make(instance, key)
                finally:
                    if self._claims is not None:
                        await self._claims.unclaim(claim)
                break
        return found

    async def make(self, instance: TaskInstance, key: CertificateKey) -> Variants:
        """Make the variants anew and store them. Raises as `variants`."""
        async with self._room:
            began = time.monotonic()
            gate = RunGate(self._wait_until_uncrowded, self._yield_s)
            made = await VariantChecks(self._runs, instance, began + self._budget_s, gate).variants()
        made = replace(made, seconds=round(time.monotonic() - began, 2))
        await self._store.update(key, PART, made.to_json())
        log.info(
            "variants made",
            instance_id=instance.instance_id,
            units=len(made.units),
            runs=made.runs,
            seconds=made.seconds,
            why=made.why,
        )
        return made

    async def _stored(self, key: CertificateKey) -> Variants | None:
        document = await self._store.part(key, PART)
        return None if document is None else Variants.from_json(document)
