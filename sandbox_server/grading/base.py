"""Patch in a fresh container -> verdict; verdict -> reward. Graders and rewards are plugins."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.records import Verdict, VerdictName
from sandbox_server.sandbox.base import Sandbox

Aside = Callable[[], AbstractAsyncContextManager[None]]
"""For what takes long and is not the patch's own grading: within it, its slot is another's."""


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
    passed: frozenset[str] = frozenset()
    """Names of the row's F2P and P2P tests that passed; none where the exit code judges."""
    log: str = ""
    """All that was kept of what the tests printed."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """What is known of an instance from its own patches (`instances verify` writes it)."""

    empty_gives_results: bool | None = None
    """Whether the tests of the unpatched tree give results that can be parsed; None: never tried."""
    gold_tests_s: float | None = None
    """How long the tests ran over the gold patch, their limit if they were stopped; None: never tried."""


BaselineSource = Callable[[TaskInstance], Awaitable[Baseline | None]]
"""Looks up what is stored; None: nothing is."""


CleanSandbox = Callable[[], AbstractAsyncContextManager[Sandbox]]
"""Another container of the instance, without the patch; gone at the end of the block."""


@dataclass(frozen=True, slots=True)
class Judging:
    """Bounds on what judging one log may take; past them the log counts as one without results."""

    cpu_s: float = 10.0
    wall_s: float = 40.0
    """By the clock: on a busy host a judge gets only a part of a CPU."""
    memory_mb: int = 512


class Grader(Protocol):
    """Runs an instance's tests in a container that holds the applied patch and the instance's files; judges them.

    A plugin's GRADER is called once, when the service starts, with the bounds on judging.
    """

    @property
    def versions(self) -> Mapping[str, str]:
        """Library -> version that judges; a verdict is shared only under the same ones."""
        ...

    async def close(self) -> None:
        """End what it started; called once, when the service stops."""
        ...

    async def prepare(self, instance: TaskInstance) -> None:
        """Look at the instance's grading data, and begin what is slow to begin; called before each `run`.

        Also when a session of the instance starts, so that all is there by its end.

        Raises:
            GraderBroken: the instance's grading data cannot be used.

        """
        ...

    async def run(
        self,
        instance: TaskInstance,
        sandbox: Sandbox,
        *,
        timeout_s: float,
        altered: Mapping[str, bytes] | None = None,
        clean: CleanSandbox | None = None,
    ) -> TestRun:
        """Run the tests and judge them; a timeout of theirs is a TestRun.

        `altered`: path (absolute, or relative to the workdir) -> text. Written after the tests' own set-up and right
        before the tests. One that cannot be written because of what the patch left is a TestRun without results.
        `clean`: for what the patch may not touch; a grader that needs it cannot do without.

        Raises:
            InfrastructureError: it could not be told.

        """
        ...

    async def test_files(self, instance: TaskInstance, sandbox: Sandbox, *, timeout_s: float) -> Mapping[str, bytes]:
        """The files that hold the instance's tests, by path as `altered` takes them: text only, bounded.

        Runs the tests' own set-up, nothing else, in `sandbox`: a container of its own with an empty patch applied (and
        so the instance's `files` in place).

        Raises:
            GraderBroken: the set-up did not end. InfrastructureError.

        """
        ...


Reward = Callable[[TaskInstance, Verdict], float]
"""Pure; returns a finite number. Called for every verdict with mask false; masked ones are 0.0."""
