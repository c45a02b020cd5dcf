"""Results of queries over many sessions. Times are Unix seconds (UTC), durations seconds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from sandbox_server.records import SessionRecord


class GroupKind(StrEnum):
    """How much the rewards of a group differ; masked members do not count."""

    ALL_0 = "all_0"
    ALL_1 = "all_1"
    FLAT = "flat"
    """All rewards are equal, but neither 0 nor 1."""
    MIXED = "mixed"
    SINGLE = "single"
    """One unmasked member, so nothing to compare."""
    MASKED = "masked"
    """No unmasked member."""


@dataclass(frozen=True, slots=True)
class SessionFilter:
    """A filter for sessions; None: any."""

    state: str | None = None
    run: str | None = None
    instance: str | None = None
    verdict: str | None = None
    masked: bool | None = None
    """Whether the verdict is masked; selects graded sessions only."""
    node: str | None = None
    owner: str | None = None
    """Name of the API key that started them; "": a key without a name."""
    since: float | None = None
    """Only those that started at this time or later."""
    before: tuple[float, str] | None = None
    """Cursor: only sessions after this one (its `created_at` and sid) in the list."""


@dataclass(frozen=True, slots=True)
class VerdictSummary:
    """A session's verdict, as lists show it."""

    verdict: str
    mask: bool
    reward: float
    graded_at: float


@dataclass(frozen=True, slots=True)
class SessionWithVerdict:
    """A session in a list."""

    record: SessionRecord
    summary: VerdictSummary | None
    """None: not graded."""


@dataclass(frozen=True, slots=True)
class VerdictCount:
    """Sessions with the same verdict."""

    verdict: str
    mask: bool
    count: int
    reward: float
    """Sum of their rewards."""


@dataclass(frozen=True, slots=True)
class Group:
    """The graded sessions of one run and one instance."""

    run: str
    instance_id: str
    graded: int
    masked: int
    least: float | None
    """Lowest reward of the unmasked sessions, then the highest and the mean; None: there is none."""
    most: float | None
    mean: float | None
    first: float
    """Start of the first session."""
    last: float
    """When the last session was graded."""

    @property
    def kind(self) -> GroupKind:
        """What its rewards can teach."""
        if self.least is None or self.most is None:
            return GroupKind.MASKED
        if self.graded - self.masked == 1:
            return GroupKind.SINGLE
        if self.least != self.most:
            return GroupKind.MIXED
        return {0.0: GroupKind.ALL_0, 1.0: GroupKind.ALL_1}.get(self.least, GroupKind.FLAT)


@dataclass(frozen=True, slots=True)
class RunCount:
    """The sessions of one run."""

    run: str
    sessions: int
    lost: int
    graded: int
    masked: int
    resolved: int
    mean_reward: float | None
    """Mean over the unmasked sessions; None: there is none."""
    first: float
    """Start of its first session, within the window."""
    last: float


@dataclass(frozen=True, slots=True)
class PassRate:
    """One instance's unmasked verdicts in two windows."""

    instance_id: str
    resolved: int
    graded: int
    resolved_before: int
    graded_before: int

    @property
    def now(self) -> float | None:
        """Resolved fraction, 0 to 1."""
        return self.resolved / self.graded if self.graded else None

    @property
    def before(self) -> float | None:
        """As `now`, for the window before."""
        return self.resolved_before / self.graded_before if self.graded_before else None


@dataclass(frozen=True, slots=True)
class SessionTimings:
    """One ended session and the durations of its stages."""

    run: str
    created_at: float
    ended_at: float
    end_reason: str
    actions: int
    timings_s: Mapping[str, float]
    """See `SessionRecord.timings_s`."""
    queue_s: float = 0.0
    """Its grading's wait for a slot; 0 while it is not graded."""
    grade_s: float = 0.0
    """The rest of its grading."""
    tripwires: Mapping[str, int] = field(default_factory=dict)
    instance_id: str = ""
    patch_sha256: str = ""
    """"" for a session without a patch, and for a patch that is too large to be compared."""
    sid: str = ""


@dataclass(frozen=True, slots=True)
class UnsoundInstance:
    """An instance whose last check found it unsound, with the number of its sessions since."""

    instance_id: str
    gold: str
    """Verdict of the gold patch."""
    empty: str
    sessions: int
