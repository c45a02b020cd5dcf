"""What a grading gives: verdicts, rewards and their parts, stored in SQL and receipts. Times are Unix seconds (UTC)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class VerdictName(StrEnum):
    """Every verdict that `/compute_reward` can give; docs/api.md says when."""

    RESOLVED = "resolved"
    UNRESOLVED = "unresolved"
    EMPTY_PATCH = "empty_patch"
    PATCH_FAILED = "patch_failed"
    NO_ANSWER = "no_answer"
    NO_RESULTS = "no_results"
    TIMEOUT = "timeout"
    TAMPERED = "tampered"
    PENDING = "pending"
    INFRA = "infra"
    UNKNOWN_SESSION = "unknown_session"


@dataclass(frozen=True, slots=True)
class TurnTokens:
    """Token counts of one turn, from the trainer."""

    prompt: int
    response: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What an answer to a code search task names, with paths of the base tree."""

    format: str
    """The answer's format: files, file_list, fenced, structured, lines."""
    files: tuple[str, ...] = ()
    """Without duplicates, in the order of first mention; so are `modules` and `entities`."""
    modules: tuple[str, ...] = ()
    """`path:Class`, or `path:function` for a free function."""
    entities: tuple[str, ...] = ()
    """`path:Class.method` or `path:function`."""
    lines: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """Path -> line spans as given, 1-based, both ends included."""
    well_formed: bool = True
    """Whether it is the message's only answer, complete, not empty, and fully readable."""
    problems: tuple[str, ...] = ()
    """Descriptions of parts that were left out."""


@dataclass(frozen=True, slots=True)
class RewardValue:
    """One item of a composed reward."""

    fn: str
    """Public name of the reward."""
    value: float
    """Value before its weight is applied."""
    weight: float
    parts: Mapping[str, float] = field(default_factory=dict)
    """Components of `value`, by name."""


@dataclass(frozen=True, slots=True)
class Score:
    """The score of an answer and of the turns that led to it."""

    total: float
    """Sum of weight times value."""
    items: tuple[RewardValue, ...]
    answer: Answer | None
    """None: no answer was given, or none was asked for."""
    steps: tuple[float, ...] = ()
    """`total` discounted for each turn, the last one undiscounted; () if there is no discount."""
    flags: tuple[str, ...] = ()
    """unanswerable: there is no file to find. no_modules, no_entities: a level has no ground truth."""


class ConfirmState(StrEnum):
    """Result of the confirming runs of a verdict that earns a reward."""

    CONFIRMED = "confirmed"
    TAMPERED = "tampered"
    NONE = "none"
    """The instance has no known variants, so nothing was run."""
    OFF = "off"
    SKIPPED = "skipped"
    """Not selected, since only a share of the verdicts is confirmed."""


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The confirming runs: the same code under tests of which some are false."""

    state: str
    """Value of a ConfirmState."""
    why: str = ""
    """One sentence, or ""."""
    runs: int = 0
    units: int = 0
    """Number of groups of tests that can be altered independently."""
    tests: int = 0
    """Number of the row's F2P tests in `units`."""
    seconds: float = 0.0
    evidence: tuple[str, ...] = ()
    """What contradicted the verdict, starting with the run: `run 2: tests/a.py::test_b passed although it was
    false`."""
    pays: bool = True
    """False: the reward is 0.0 because the verdict could not be confirmed."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a grading. `mask`: it says nothing about the policy."""

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
    f2p_stubs: tuple[str, ...] = ()
    """F2P tests that a stub also passes, by the instance's certificate; they alone earn nothing."""
    quarantined: tuple[str, ...] = ()
    """Flaky tests, by the instance's certificate; counts and totals exclude them."""
    certificate: str = ""
    """One-line summary of the instance's certificate; "" if there is none (`instances certify`)."""
    apply_tier: str = ""
    """The command that applied the patch (see `grading.patching`)."""
    runner_files: tuple[str, ...] = ()
    """Paths of the test runner's own files that the patch touches and gold does not."""
    stripped: tuple[str, ...] = ()
    """Those of `runner_files` that were removed before grading."""
    exit_code: int | None = None
    attempts: int = 1
    image_digest: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Library that judged -> version, e.g. {"swebench": "5.0.2"}."""
    timings_s: Mapping[str, float] = field(default_factory=dict)
    """Stage -> seconds: queue, create, apply, tests, parse, total."""
    log_tail: str = ""
    """End of the test log, for people."""
    excerpts: Mapping[str, str] = field(default_factory=dict)
    """Failed test -> the lines of the log about it, for people; of the first twenty that the log names."""
    score: Score | None = None
    """Of code search tasks, and of tasks whose tests give rewards themselves (Harbor)."""
    confirm: Confirmation | None = None
    """Only for verdicts that earn a reward."""
    tripwires: Mapping[str, int] = field(default_factory=dict)
    """Signs of tampering in the session's actions and patch -> number of occurrences; they decide nothing."""

    @property
    def resolved(self) -> bool:
        """Whether all required tests pass."""
        return self.name is VerdictName.RESOLVED

    @property
    def pays(self) -> bool:
        """Whether a reward may be computed: not masked, and confirmed if that is required."""
        return not self.mask and (self.confirm is None or self.confirm.pays)


@dataclass(frozen=True, slots=True)
class GradedSession:
    """A session's stored verdict and the reward made from it."""

    sid: str
    instance_id: str
    verdict: Verdict
    reward: float
    reward_name: str
    receipt: str
    """Id of the stored receipt."""
    graded_at: float
