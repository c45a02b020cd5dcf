"""Patch in a fresh container -> verdict; verdict -> reward. Graders and rewards are plugins."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.sandbox.base import Sandbox


class VerdictName(StrEnum):
    """Every answer `/compute_reward` can give; the table in docs/api.md says when."""

    RESOLVED = "resolved"
    UNRESOLVED = "unresolved"
    EMPTY_PATCH = "empty_patch"
    PATCH_FAILED = "patch_failed"
    NO_RESULTS = "no_results"
    TIMEOUT = "timeout"
    TAMPERED = "tampered"
    PENDING = "pending"
    INFRA = "infra"
    UNKNOWN_SESSION = "unknown_session"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What grading found. `mask` is true where it says nothing about the policy."""

    name: VerdictName
    mask: bool
    cause: str
    """One sentence."""
    f2p_count: int = 0
    f2p_total: int = 0
    p2p_count: int = 0
    p2p_total: int = 0
    patch_is_none: bool = False
    patch_exists: bool = False
    patch_applied: bool = False
    f2p_failed: tuple[str, ...] = ()
    p2p_failed: tuple[str, ...] = ()
    apply_tier: str = ""
    """The command of the ladder that took the patch."""
    runner_files: tuple[str, ...] = ()
    """Paths of the test runner's own files that the patch touches and gold does not."""
    stripped: tuple[str, ...] = ()
    """Those of them that were left out of what was graded."""
    exit_code: int | None = None
    attempts: int = 1
    image_digest: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Library -> version that judged, e.g. {"swebench": "5.0.2"}."""
    timings_s: Mapping[str, float] = field(default_factory=dict)
    """Stage -> seconds: queue, create, apply, tests, parse, total."""
    log_tail: str = ""
    """The end of the test log, for a human."""

    @property
    def resolved(self) -> bool:
        """Every required test passes."""
        return self.name is VerdictName.RESOLVED


@dataclass(frozen=True, slots=True)
class GradeRequest:
    """One patch to grade."""

    instance: TaskInstance
    patch: bytes | None
    """None: there was nothing to take a diff from; b"": nothing was changed."""
    sid: str
    patch_cause: str = ""
    """Why `patch` is None, as one sentence."""


@dataclass(frozen=True, slots=True)
class TestRun:
    """What a grader made of one run of the tests, before policy and masks."""

    name: VerdictName
    cause: str
    f2p_count: int
    p2p_count: int
    f2p_failed: tuple[str, ...] = ()
    p2p_failed: tuple[str, ...] = ()
    exit_code: int | None = None
    timings_s: Mapping[str, float] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    log_tail: str = ""


class Grader(Protocol):
    """Runs an instance's tests in a container that already holds the applied patch, and judges them."""

    async def run(self, instance: TaskInstance, sandbox: Sandbox, *, timeout_s: float) -> TestRun:
        """Raises InfrastructureError when it could not be told; a timeout of the tests is a TestRun."""
        ...


Reward = Callable[[TaskInstance, Verdict], float]
"""Pure; returns a finite number. Called for every verdict with mask false; masked ones are 0.0."""
