"""Patch in a fresh container -> verdict; verdict -> reward. Graders and rewards are plugins."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.records import Verdict, VerdictName
from sandbox_server.sandbox.base import Sandbox


@dataclass(frozen=True, slots=True)
class GradeRequest:
    """One patch to grade."""

    instance: TaskInstance
    patch: bytes | None
    """None: there was nothing to take a diff from; b"": nothing was changed."""
    sid: str
    patch_cause: str = ""
    """Why `patch` is None, as one sentence."""
    run: str = ""
    """Whose session it was; runs share the slots evenly."""


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


@dataclass(frozen=True, slots=True)
class Baseline:
    """What is known of an instance from its own patches (`instances verify` writes it)."""

    empty_gives_results: bool | None = None
    """Whether the tests of the unpatched tree give results that can be parsed; None: never tried."""
    gold_tests_s: float | None = None
    """How long the tests ran over the gold patch, their limit if they were stopped; None: never tried."""


BaselineSource = Callable[[TaskInstance], Awaitable[Baseline | None]]
"""Looks up what is stored; None: nothing is."""


class Grader(Protocol):
    """Runs an instance's tests in a container that holds the applied patch and the files of `prepare`; judges them.

    A plugin's GRADER is called without arguments, once, when the service starts.
    """

    @property
    def versions(self) -> Mapping[str, str]:
        """Library -> version that judges; a verdict is shared only under the same ones."""
        ...

    async def close(self) -> None:
        """End what it started; called once, when the service stops."""
        ...

    async def prepare(self, instance: TaskInstance) -> Mapping[str, str]:
        """Files that `run` needs in the container, absolute path -> text; they are placed after the patch.

        Also asked for when a session of the instance starts, so that what is slow to begin is there by its end.

        Raises:
            GraderBroken: the instance's grading data cannot be used.

        """
        ...

    async def run(self, instance: TaskInstance, sandbox: Sandbox, *, timeout_s: float) -> TestRun:
        """Raises InfrastructureError when it could not be told; a timeout of the tests is a TestRun."""
        ...


Reward = Callable[[TaskInstance, Verdict], float]
"""Pure; returns a finite number. Called for every verdict with mask false; masked ones are 0.0."""
