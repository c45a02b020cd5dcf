"""The live facts of every session, as records; `store.py` keeps them in Redis."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """One session, as any replica sees it. Times are Unix seconds (UTC)."""

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
