"""Detects drift: gold that once resolved its task and no longer does, because image, host or clock changed."""

import random
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from sandbox_server import telemetry
from sandbox_server.catalogue.certificate_key import CertificateKey
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.grading.assay import without
from sandbox_server.grading.base import TestRun
from sandbox_server.grading.grading import Grading
from sandbox_server.verdicts import VerdictName

log = telemetry.logger(__name__)

PART = "drift"
_RUNS = 2  # runs that must fail, since a single failure may be a flake


class Store(Protocol):
    """Where certificates are stored."""

    async def update(self, key: CertificateKey, part: str, document: Mapping[str, Any], /) -> None:
        """Replace a part. Raises CatalogueUnavailable."""
        ...

    async def everywhere(self, part: str, /) -> list[tuple[CertificateKey, float, dict[str, Any]]]:
        """(key, time, document) of this part in all certificates. Raises CatalogueUnavailable."""
        ...


class Sound(Protocol):
    """The instances that were certified as sound."""

    async def sound(self) -> list[str]:
        """Their instance ids. Raises CatalogueUnavailable."""
        ...

    async def by_id(self, instance_id: str, /) -> TaskInstance:
        """The instance. Raises UnknownInstance, CatalogueUnavailable."""
        ...


class Drift:
    """Grades gold of one instance from time to time, while the node has nothing else to grade."""

    def __init__(self, instances: Sound, store: Store, grading: Grading, *, idle: Callable[[], bool]) -> None:
        self._instances = instances
        self._store = store
        self._grading = grading
        self._idle = idle

    async def look(self) -> None:
        """`check` a random sound instance if the node is idle. Raises ServiceError: no result."""
        if self._idle():
            await self.check()

    async def check(self, instance_id: str = "") -> bool | None:
        """Whether gold still resolves this instance, or a random sound one; None if its image is not here.

        Raises:
            ServiceError: no result.

        """
        if not instance_id and not (names := await self._instances.sound()):
            return None
        instance = await self._instances.by_id(instance_id or random.choice(names))
        digest = str((await self._grading.facts(instance))["image"])
        if not digest or instance.localizes or not instance.gold_patch.strip():
            return None  # a check never pulls an image
        for _ in range(_RUNS):
            run = await self._run(instance, digest)
            if run.name is VerdictName.RESOLVED:
                break
        found = {"verdict": run.name.value, "cause": run.cause}
        await self._store.update(CertificateKey.of(instance, digest), PART, found)
        if run.name is not VerdictName.RESOLVED:
            log.error("gold fails now", instance_id=instance.instance_id, image=digest, **found)
        telemetry.DRIFTED.set(len(drifted(await self._store.everywhere(PART))))
        return run.name is VerdictName.RESOLVED

    async def _run(self, instance: TaskInstance, digest: str) -> TestRun:
        run = await self._grading.run_altered(instance, instance.gold_patch.encode(), {})
        return without(instance, run, (await self._grading.finding(instance, digest)).quarantined)[0]


def drifted(kept: list[tuple[CertificateKey, float, dict[str, Any]]]) -> dict[str, str]:
    """Instance -> result of gold at the last check, for those not `resolved`."""
    return {
        key.instance_id: f"{document['verdict']}: {document['cause']}"
        for key, _, document in kept
        if document["verdict"] != VerdictName.RESOLVED
    }
