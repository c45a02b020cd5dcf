"""Plain records exchanged between packages and stored in Redis and SQL. Times are Unix seconds (UTC)."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any


class SessionKind(StrEnum):
    """Whether a session is a task's or a box; `sessions.kinds.Kind` has how they are watched and ended."""

    TASK = "task"
    """An instance: actions are journaled; the session can be restored, its patch is taken and graded."""
    BOX = "box"
    """An image: no journal, no restoring, no patch, no grading."""

    @property
    def is_rollout(self) -> bool:
        """Whether there are actions, a patch and a grading."""
        return self is SessionKind.TASK


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """One session, as all replicas see it."""

    sid: str
    state: str
    """Value of a lifecycle state."""
    instance_id: str
    node: str
    container_id: str
    """"" while it sleeps."""
    created_at: float
    touched_at: float
    """Time of the last action (or of the start); idle time counts from it."""
    deadline: float
    """Time at which the session ends at the latest."""
    cwd: str = ""
    talk_turns: int = 0
    actions: int = 0
    """Number of acknowledged actions."""
    ended_at: float = 0.0
    end_reason: str = ""
    """postprocess, reward, idle, max_age, closed, died (nothing can run in it), lost."""
    cause: str = ""
    """One sentence, if lost."""
    timings_s: Mapping[str, float] = field(default_factory=dict)
    """Stage -> seconds, summed: start_queue, start_prepare, start_container (waiting for a container), start_create and
    start_shell (making one, ahead of the start or during it), action_wait, action_parse, action_run, action_journal,
    end_patch."""
    restores: int = 0
    """Number of times it was restored on another node from its journal."""
    notice: str = ""
    """Text to put before the next observation; "" once it was shown."""
    differences: int = 0
    """Actions that ended differently in a restore; 0 once an observation reported it."""
    run: str = ""
    """Run that it belongs to: the header Sandbox-Run, else the name of the API key."""
    owner: str = ""
    """Name of the API key that started it; "" for a key without a name, or none. Other named keys do not see it."""
    traceparent: str = ""
    """Trace of the request that started it (W3C Trace Context), if traces are sent."""
    parent: str = ""
    """Sid of the session that it was copied from; "" if it began anew."""
    forked_at: int = 0
    """Number of the parent's actions that it began with; its own journal has them too."""
    undone: str = ""
    """Numbers of the actions that rollbacks undid, `6-13 20-22`; each range ends with the rollback itself."""
    egress_refused: int = -1
    """Packets and name queries that egress rules refused in its former containers and, once it has ended, in its last;
    -1: not counted."""
    changes: int = 0
    """Number of changes of a box: of its end, pause, container or network. Of two copies of the record, the one with
    more changes is newer. Always 0 for sessions of tasks."""

    def refused_with(self, count: int | None) -> int:
        """`egress_refused` plus the count of its present container (None: not counted there)."""
        return self.egress_refused if count is None else max(self.egress_refused, 0) + count

    @property
    def kind(self) -> SessionKind:
        """Only a session of a task has an instance id."""
        return SessionKind.TASK if self.instance_id else SessionKind.BOX

    @property
    def asleep(self) -> bool:
        """Whether it has no container: its checkpoint has its state, and its next action brings it into a new one."""
        return not self.container_id and not self.ended_at


class BoxKind(StrEnum):
    """The protocol by which a box was created."""

    E2B = "e2b"
    NATIVE = "native"


class OnTimeout(StrEnum):
    """What happens to a box when its time is over."""

    KILL = "kill"
    PAUSE = "pause"


@dataclass(frozen=True, slots=True)
class BoxRecord:
    """What a box has besides its session. Fixed at creation except for the network rules and the pauses.

    The box ends at the session's `deadline`, which set_timeout moves. The session of a paused box is `live` too; its
    deadline is then the time when the paused box is removed.
    """

    sid: str
    kind: str
    """Value of a BoxKind."""
    image: str
    """The image it runs."""
    template: str
    """The template as requested; "" if the request named the image itself."""
    metadata: Mapping[str, str]
    """The client's own metadata; lists can be filtered by them."""
    env: Mapping[str, str]
    """Added to the image's environment for every command."""
    user: str
    """User of commands that name none."""
    token: str
    """Secret that gives access to the box, unique among all boxes."""
    network: str
    """bridge or none."""
    cpus: float
    memory_mb: int
    disk_mb: int
    last_s: float
    """Unix seconds; the box's end cannot be moved past this."""
    image_path: str = ""
    """PATH in the image's environment; "" if it has none."""
    allow_out: tuple[str, ...] = ()
    """Addresses and ranges that the box may reach even if `deny_out` holds them."""
    deny_out: tuple[str, ...] = ()
    """Addresses and ranges that the box may not reach."""
    owner: str = ""
    """Name of the API key that created it."""
    life_s: float = 0.0
    """Lifetime as requested; an automatic resume grants it again."""
    on_timeout: str = OnTimeout.KILL
    """Value of an OnTimeout."""
    auto_resume: bool = False
    """Whether requests to the box resume it."""
    paused_at: float = 0.0
    """Unix seconds; 0 if it runs."""
    files_only: bool = False
    """The current pause keeps only files, as its client asked; requests do not resume it."""
    timeout_files: bool = False
    """The pause at its end, if `on_timeout` is one, keeps only files."""
    pausable_s: float = 0.0
    """Seconds that it may still be paused in total; the current pause is not yet deducted."""
    traffic_token: str = ""
    """Token required of requests to its ports; "" if none is."""
    host_mask: str = ""
    """Host name shown to its ports, with `${PORT}` for the port; "" passes on the request's own."""
    workdir: str = ""
    """Working directory of commands that name none; "": the user's home."""
    base: str = ""
    """Name of the image that its container is made from, if that is another view of `image`; "" if not known."""
    root: str = ""
    """The image that decides about its network; "": `image`."""
    built: str = ""
    """The template whose image it is, if a client built it; `template` may name a snapshot."""
    start: str = ""
    """The template's start command; "" for none."""
    ready: str = ""
    """Command that succeeds once `start` is ready; "": nothing waits for it."""

    def to_json(self) -> str:
        """As JSON in ASCII, which Redis and every database can store, whatever the client wrote."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> "BoxRecord":
        """Read what `to_json` wrote; unknown fields of a newer server are ignored."""
        values: dict[str, Any] = json.loads(text)
        for name in values.keys() - {known.name for known in fields(cls)}:
            del values[name]
        for name in ("allow_out", "deny_out"):
            values[name] = tuple(values.get(name, ()))
        return cls(**values)


@dataclass(frozen=True, slots=True)
class ActionRecord:
    """One acknowledged action in the journal."""

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
    """An action that began and is not acknowledged yet, or never will be because its server died."""

    content: str
    started_at: float
    deadline: float
    idempotency_key: str = ""


@dataclass(frozen=True, slots=True)
class PatchRecord:
    """The patch of an ended session; written to SQL before it is acknowledged."""

    sid: str
    instance_id: str
    diff: bytes | None
    """None: there was nothing to take a diff from. b"": nothing was changed."""
    cause: str
    """Why `diff` is None, or a remark; else ""."""
    base_commit: str
    """HEAD of the image, which `diff` is based on."""
    captured_at: float
    sha256: str = ""
    """SHA-256 of `diff` (hex); "" if it is None."""
    container_id: str = ""
    """The container that it was taken from; "" in patches of older servers, and if none was needed."""
