"""A gold patch that stops resolving is reported after two failures, until it resolves again."""

from collections.abc import Mapping
from typing import Any

from prometheus_client import REGISTRY

from sandbox_server.catalogue.certificate_key import CertificateKey
from sandbox_server.catalogue.instance import SandboxSpec, ScriptGrader, TaskInstance
from sandbox_server.grading import base
from sandbox_server.grading.assay import Finding
from sandbox_server.grading.drift import Drift, drifted
from sandbox_server.verdicts import VerdictName

_R, _U = VerdictName.RESOLVED, VerdictName.UNRESOLVED
_INSTANCE = TaskInstance(
    instance_id="d__d-1",
    repo="d/d",
    sandbox=SandboxSpec(images=("unused",)),
    grader=ScriptGrader(command="true"),
    gold_patch="x",
)


class Catalogue:
    """One sound instance, and what is kept of it."""

    def __init__(self) -> None:
        self.kept: dict[CertificateKey, dict[str, Any]] = {}

    async def sound(self) -> list[str]:
        return ["d__d-1"]

    async def by_id(self, instance_id: str) -> TaskInstance:
        return _INSTANCE

    async def update(self, key: CertificateKey, part: str, document: Mapping[str, Any]) -> None:
        self.kept[key] = dict(document)

    async def everywhere(self, part: str) -> list[tuple[CertificateKey, float, dict[str, Any]]]:
        return [(key, 1.0, document) for key, document in self.kept.items()]


class Gold:
    """Stands in for `Grading`."""

    def __init__(self, *names: VerdictName, image: str = "sha256:1") -> None:
        self.names = list(names)
        self.image = image

    async def facts(self, instance: TaskInstance) -> Mapping[str, object]:
        return {"image": self.image}

    async def finding(self, instance: TaskInstance, image_digest: str) -> Finding:
        return Finding()

    async def run_altered(self, instance: TaskInstance, patch: bytes, altered: Mapping[str, bytes]) -> base.TestRun:
        return base.TestRun(self.names.pop(0), "why", 0, 0)


def drift(catalogue: Catalogue, gold: Gold) -> Drift:
    return Drift(catalogue, catalogue, gold, idle=lambda: True)  # type: ignore[arg-type]  # a stand-in


async def test_two_failures_are_told_until_gold_resolves_again() -> None:
    catalogue = Catalogue()
    assert await drift(catalogue, Gold(_U, _U)).check() is False
    assert drifted(await catalogue.everywhere("drift")) == {"d__d-1": "unresolved: why"}
    assert REGISTRY.get_sample_value("sandbox_drifted_instances") == 1
    assert await drift(catalogue, Gold(_R)).check("d__d-1") is True
    assert drifted(await catalogue.everywhere("drift")) == {}
    assert REGISTRY.get_sample_value("sandbox_drifted_instances") == 0


async def test_a_single_failure_is_a_flake() -> None:
    assert await drift(Catalogue(), Gold(_U, _R)).check() is True


async def test_no_image_is_pulled_for_a_check() -> None:
    catalogue = Catalogue()
    assert await drift(catalogue, Gold(image="")).check() is None
    assert not catalogue.kept
