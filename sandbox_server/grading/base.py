"""Interfaces of grading: patch in a fresh container -> verdict; verdict -> reward. Graders and rewards are plugins."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from sandbox_server.catalogue.certificate_key import CertificateKey
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.sandbox.base import Sandbox
from sandbox_server.verdicts import Score, Verdict, VerdictName

SlotRelease = Callable[[], AbstractAsyncContextManager[None]]
"""Frees the grading's slot for the block: for long work that is not the grading of the patch itself."""


@dataclass(frozen=True, slots=True)
class GradeRequest:
    """One patch to grade."""

    instance: TaskInstance
    patch: bytes | None
    """None: there was nothing to take a diff from. b"": nothing was changed."""
    sid: str
    patch_cause: str = ""
    """Why `patch` is None, in one sentence."""
    run: str = ""
    """The run (training job) of the session; runs share the slots evenly."""
    owner: str = ""
    """Name of the API key that it belongs to, if that has one."""

    @property
    def account(self) -> str:
        """The account whose quota it uses: the API key's name, else the run."""
        return self.owner or self.run


@dataclass(frozen=True, slots=True)
class TestRun:
    """A grader's result of one run of the tests, before policy and masks are applied."""

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
    """The row's F2P and P2P tests that passed; empty if an exit code judges."""
    log: str = ""
    """The kept part of the tests' output."""
    score: Score | None = None
    """Rewards that the tests themselves gave; None: the reward function decides."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """Facts about an instance from runs of its own patches, written by `instances verify`."""

    empty_gives_results: bool | None = None
    """Whether the tests of the unpatched tree give results that can be parsed; None if never tried."""
    gold_gives_results: bool | None = None
    """The same for gold."""
    gold_tests_s: float | None = None
    """Duration of the tests over gold in seconds, or their limit if they hit it; None if never tried."""


def own_patches(instance: TaskInstance) -> tuple[bytes, ...]:
    """The patches by which an instance shows that it can be graded: the empty one, then gold if it is known.

    Gold is needed where tests use names that only a fix adds: without a fix such tests do not even start.
    """
    gold = b"" if instance.carried else instance.gold_patch.encode()  # a diff is not applied to carried files
    return (b"", gold) if gold.strip() else (b"",)


BaselineSource = Callable[[TaskInstance], Awaitable[Baseline | None]]
"""Looks up the stored baseline; None if there is none."""


CleanSandbox = Callable[[], AbstractAsyncContextManager[Sandbox]]
"""Opens another container of the instance, without the patch; it is removed at the end of the block."""


class CertificateStore(Protocol):
    """Where certificates are stored."""

    async def part(self, key: CertificateKey, part: str, /) -> dict[str, Any] | None:
        """The stored part, or None. Raises CatalogueUnavailable."""
        ...

    async def update(self, key: CertificateKey, part: str, document: Mapping[str, Any], /) -> None:
        """Replace a part. Raises CatalogueUnavailable."""
        ...


class Claims(Protocol):
    """Decides between servers which of them does a piece of work, such as a grading or a certificate."""

    async def claim(self, name: str, /) -> Any:
        """Claim `name`; returns a token for `unclaim`, or None if another server has it. Raises StateUnavailable."""
        ...

    async def unclaim(self, claim: Any, /) -> None:
        """Release the claim."""
        ...


@dataclass(frozen=True, slots=True)
class Judging:
    """Bounds on judging one log; a log that exceeds them counts as one without results."""

    cpu_s: float = 10.0
    wall_s: float = 40.0
    """Seconds of wall-clock time; more than `cpu_s`, because on a busy host a judge gets only part of a CPU."""
    memory_mb: int = 512


class Grader(Protocol):
    """Runs and judges an instance's tests in a container with the patch applied and the instance's files placed.

    A plugin's GRADER is called once with the bounds on judging, when the service starts.
    """

    @property
    def versions(self) -> Mapping[str, str]:
        """Library -> version that judges; verdicts are shared only under equal versions."""
        ...

    async def close(self) -> None:
        """Release what the grader started; called once, when the service stops."""
        ...

    async def prepare(self, instance: TaskInstance) -> None:
        """Check the instance's grading data and start what is slow to start.

        Called before each `run`, and when a session of the instance starts, so that all is ready by its end.

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
        """Run the tests and judge them; if the tests time out, that is a TestRun too.

        `altered`: path (absolute, or relative to the workdir) -> content, written after the tests' own set-up and right
        before the tests. If one cannot be written because of what the patch left, the result is a TestRun without
        results. `clean`: opens a container that the patch cannot touch; graders that need one require it.

        Raises:
            InfrastructureError: no result could be determined.

        """
        ...

    async def test_files(self, instance: TaskInstance, sandbox: Sandbox, *, timeout_s: float) -> Mapping[str, bytes]:
        """The text files that hold the instance's tests, path (as in `altered`) -> content, bounded in size.

        `sandbox` is a fresh container with an empty patch applied, and so with the instance's `files` placed. Only the
        tests' own set-up is run in it.

        Raises:
            GraderBroken: the set-up did not end. InfrastructureError.

        """
        ...


Reward = Callable[[TaskInstance, Verdict], float]
"""Pure; returns a finite number. Called only for unmasked verdicts; the reward of a masked verdict is 0.0."""
