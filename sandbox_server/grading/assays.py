"""Stores and caches assays: gradings look them up often, and they seldom change."""

import time
from collections import OrderedDict

from sandbox_server import telemetry
from sandbox_server.catalogue.certificate_key import CertificateKey
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.errors import InfrastructureError
from sandbox_server.grading.assay import PART, Assay, Finding, finding
from sandbox_server.grading.base import CertificateStore

log = telemetry.logger(__name__)

_TRUSTED_S = 10.0
_REMEMBERED = 1024
_NOTHING = Finding()


class Assays:
    """Reads and writes assays; findings are cached for a few seconds."""

    def __init__(self, store: CertificateStore) -> None:
        self._store = store
        self._known: OrderedDict[CertificateKey, tuple[float, Finding]] = OrderedDict()

    async def of(self, instance: TaskInstance, image_digest: str) -> Assay:
        """The stored assay, or an empty one. Raises CatalogueUnavailable."""
        document = await self._store.part(CertificateKey.of(instance, image_digest), PART)
        return Assay() if document is None else Assay.from_json(document)

    async def keep(self, instance: TaskInstance, image_digest: str, assay: Assay) -> None:
        """Replace the stored assay. Raises CatalogueUnavailable."""
        key = CertificateKey.of(instance, image_digest)
        await self._store.update(key, PART, assay.to_json())
        self._known.pop(key, None)

    async def finding(self, instance: TaskInstance, image_digest: str) -> Finding:
        """The finding for verdicts on this image; an empty one if there is no assay or SQL is unavailable."""
        key = CertificateKey.of(instance, image_digest)
        known = self._known.get(key)
        if known is not None and time.monotonic() - known[0] < _TRUSTED_S:
            return known[1]
        try:
            document = await self._store.part(key, PART)
        except InfrastructureError as error:
            log.warning("certificate not read", instance_id=instance.instance_id, error=error.detail)
            return known[1] if known is not None else _NOTHING
        found = _NOTHING if document is None else finding(instance, Assay.from_json(document))
        self._known[key] = (time.monotonic(), found)
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return found
