"""The facts that travel between rooms and into Redis and SQL, as plain records. Times are Unix seconds (UTC)."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any


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
    cwd: str = ""
    talk_turns: int = 0
    actions: int = 0
    """Acknowledged actions."""
    ended_at: float = 0.0
    end_reason: str = ""
    """postprocess, reward, idle, max_age, closed, died (nothing could run in it any more), lost."""
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
    owner: str = ""
    """Name of the API key that started it; "": a key without a name, or none. Other named keys do not see it."""

    @property
    def is_box(self) -> bool:
        """It runs an image instead of an instance: no actions, no patch, no grading, no restoring."""
        return not self.instance_id


class BoxKind(StrEnum):
    """By which protocol a box was asked for."""

    E2B = "e2b"
    NATIVE = "native"


class OnTimeout(StrEnum):
    """What becomes of a box at its end."""

    KILL = "kill"
    PAUSE = "pause"


@dataclass(frozen=True, slots=True)
class BoxRecord:
    """What a box is beyond its session: fixed at its creation, but for the network rules and its pauses.

    Its end is the session's `deadline`, which set_timeout moves. A paused box's session is `live` too; its deadline is
    then the end of the pause, at which it goes.
    """

    sid: str
    kind: str
    """A BoxKind's value."""
    image: str
    """What it runs."""
    template: str
    """As it was asked for; "" when the image was named itself."""
    metadata: Mapping[str, str]
    """The client's own words; lists are filtered by them."""
    env: Mapping[str, str]
    """For every command of the box, over the image's own."""
    user: str
    """Whose the commands are that name no user."""
    token: str
    """Opens the box to whoever has it: a secret, unique among all boxes."""
    network: str
    """bridge or none."""
    cpus: float
    memory_mb: int
    disk_mb: int
    last_s: float
    """Unix seconds: its end cannot be moved past this."""
    image_path: str = ""
    """PATH in the image's environment; "" where it has none."""
    allow_out: tuple[str, ...] = ()
    """Addresses and ranges that it reaches although `deny_out` holds them."""
    deny_out: tuple[str, ...] = ()
    """Addresses and ranges that it cannot reach."""
    owner: str = ""
    """Name of the API key that asked for it."""
    life_s: float = 0.0
    """As asked for; what an automatic resume gives it again."""
    on_timeout: str = OnTimeout.KILL
    """An OnTimeout's value."""
    auto_resume: bool = False
    """Requests into the box resume it."""
    paused_at: float = 0.0
    """Unix seconds; 0: it runs."""
    pausable_s: float = 0.0
    """Seconds that it may still be paused, all pauses together, the present one not yet counted."""
    traffic_token: str = ""
    """What requests to its ports must bear; "": nothing."""
    host_mask: str = ""
    """The host name that its ports see, `${PORT}` for theirs; "": that of the request."""

    def to_json(self) -> str:
        """In ASCII, which Redis and every database hold, whatever the client wrote."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> "BoxRecord":
        """Of `to_json`; fields of a newer server are left out."""
        values: dict[str, Any] = json.loads(text)
        for name in values.keys() - {known.name for known in fields(cls)}:
            del values[name]
        for name in ("allow_out", "deny_out"):
            values[name] = tuple(values.get(name, ()))
        return cls(**values)


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
    NO_ANSWER = "no_answer"
    NO_RESULTS = "no_results"
    TIMEOUT = "timeout"
    TAMPERED = "tampered"
    PENDING = "pending"
    INFRA = "infra"
    UNKNOWN_SESSION = "unknown_session"


@dataclass(frozen=True, slots=True)
class TurnTokens:
    """Tokens of one turn, as the trainer counts them."""

    prompt: int
    response: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What an answer to a task of code search names, in paths of the base tree."""

    format: str
    """How it was written: files, file_list, fenced, structured, lines."""
    files: tuple[str, ...] = ()
    """In the order of their first mention, each once; so are the others."""
    modules: tuple[str, ...] = ()
    """`path:Class` or, of a free function, `path:function`."""
    entities: tuple[str, ...] = ()
    """`path:Class.method` or `path:function`."""
    lines: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """Path -> spans from 1, both ends in, as they were given."""
    well_formed: bool = True
    """It is the message's only answer, complete, not empty, and all of it could be read."""
    problems: tuple[str, ...] = ()
    """What of it was left out."""


@dataclass(frozen=True, slots=True)
class RewardValue:
    """One item of a composed reward."""

    fn: str
    """The reward's public name."""
    value: float
    """Before its weight."""
    weight: float
    parts: Mapping[str, float] = field(default_factory=dict)
    """What `value` was made of, by name."""


@dataclass(frozen=True, slots=True)
class Score:
    """What an answer, and the way to it, are worth."""

    total: float
    """Sum of weight times value."""
    items: tuple[RewardValue, ...]
    answer: Answer | None
    """None: there was none."""
    steps: tuple[float, ...] = ()
    """`total` discounted for each turn, the last one undiscounted; () without a discount."""
    flags: tuple[str, ...] = ()
    """unanswerable: there is no file to find; no_modules, no_entities: a level has no truth."""


class ConfirmState(StrEnum):
    """What became of the confirming run of a verdict that earns something."""

    CONFIRMED = "confirmed"
    TAMPERED = "tampered"
    NONE = "none"
    """No variant of the instance's tests is known: nothing was run."""
    OFF = "off"
    SKIPPED = "skipped"
    """Not in the sample."""


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The confirming runs: the same code under tests of which some are false."""

    state: str
    """A ConfirmState's value."""
    why: str = ""
    """One sentence, where there is something to say."""
    runs: int = 0
    units: int = 0
    """Tests that can be altered on their own."""
    tests: int = 0
    """Of the row's F2P tests, those that `units` hold."""
    seconds: float = 0.0
    evidence: tuple[str, ...] = ()
    """What contradicted the verdict, first of all runs: `run 2: tests/a.py::test_b passed although it was false`."""
    pays: bool = True
    """False: the reward is 0.0, for the verdict could not be confirmed."""


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
    f2p_stubs: tuple[str, ...] = ()
    """F2P tests that a stub passes too, as the instance's certificate has it; they alone earn nothing."""
    quarantined: tuple[str, ...] = ()
    """Tests that flake by the instance's certificate; neither counts nor totals hold them."""
    certificate: str = ""
    """What the instance's certificate says of its tests, in a line; "": there is none (`instances certify`)."""
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
    score: Score | None = None
    """Of a task of code search; None for all others."""
    confirm: Confirmation | None = None
    """Of a verdict that earns something; None for all others."""
    tripwires: Mapping[str, int] = field(default_factory=dict)
    """Signs of tampering in the session's actions and its patch, by name, with how often; they decide nothing."""

    @property
    def resolved(self) -> bool:
        """Every required test passes."""
        return self.name is VerdictName.RESOLVED

    @property
    def pays(self) -> bool:
        """A reward may be made of it: it says something of the policy, and is confirmed where it has to be."""
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
