"""The facts that travel between rooms and into Redis and SQL, as plain records. Times are Unix seconds (UTC)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """One session, as any replica sees it."""

    sid: str
    state: str
    """A lifecycle state's value."""
    instance_id: str
    node: str
    container_id: str
    created_at: float
    touched_at: float
    """Last action (or start); idle time counts from here."""
    deadline: float
    """Absolute end of the session."""
    shell_token: str = ""
    """What the backend needs to reattach the shell."""
    cwd: str = ""
    talk_turns: int = 0
    actions: int = 0
    """Acknowledged actions."""
    ended_at: float = 0.0
    end_reason: str = ""
    """postprocess, reward, idle, max_age, closed, lost."""
    cause: str = ""
    """For `lost`: one sentence."""
    timings_s: Mapping[str, float] = field(default_factory=dict)
    """Stage -> seconds, summed: start_queue, start_prepare, start_container (the wait for one), start_create and
    start_shell (its making, ahead of the start or during it), action_wait, action_parse, action_run, action_journal,
    end_patch."""
    restores: int = 0
    """How often it was made anew, from its journal, on another node."""
    notice: str = ""
    """What the next observation has to tell first; "" once it was told."""
    differences: int = 0
    """Actions that ended differently when it was made anew; 0 once an observation told it."""
    run: str = ""
    """Whose start it was: the header Sandbox-Run, else the name of the API key."""


@dataclass(frozen=True, slots=True)
class ActionRecord:
    """One acknowledged action, as the journal keeps it."""

    sid: str
    seq: int
    """1, 2, ... within the session."""
    content: str
    observation: str
    tool: str
    outcome: str
    exit_code: int | None
    started_at: float
    duration_s: float
    idempotency_key: str = ""


@dataclass(frozen=True, slots=True)
class InFlight:
    """An action that began and is not acknowledged; left behind by a server that died."""

    content: str
    started_at: float
    deadline: float
    nonce: str
    idempotency_key: str = ""


@dataclass(frozen=True, slots=True)
class PatchRecord:
    """What a session left behind; written to SQL before anything is acknowledged."""

    sid: str
    instance_id: str
    diff: bytes | None
    """None: there was nothing to take a diff from; b"": nothing was changed."""
    cause: str
    """Why `diff` is None, or what was remarkable; "" otherwise."""
    base_commit: str
    """The image's own HEAD, which `diff` is against."""
    captured_at: float
    sha256: str = ""
    """Of `diff`; "" when it is None."""


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
