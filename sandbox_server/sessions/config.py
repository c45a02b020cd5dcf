"""The bounds and choices of each part of the sessions: plain values, from the settings of the same names.

Times are in seconds.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DialectConfig:
    """How a policy's text is read where its instance does not say."""

    dialect: str
    profile: str | None
    soft_timeout_s: float | None
    calls_in_order: bool


@dataclass(frozen=True, slots=True)
class ActionConfig:
    """Of actions."""

    node: str
    command_timeout_s: float
    action_wait_s: float


@dataclass(frozen=True, slots=True)
class EndConfig:
    """Of ends."""

    command_timeout_s: float
    action_wait_s: float
    end_grace_s: float
    postprocess_timeout_s: float


@dataclass(frozen=True, slots=True)
class RestoreConfig:
    """Of sessions that a dead node had."""

    node: str
    restore: str
    restore_timeout_s: float
    command_timeout_s: float


@dataclass(frozen=True, slots=True)
class ForkConfig:
    """Of copies of sessions."""

    node: str
    wait_s: float
    """For a session's turn."""
    start_timeout_s: float
    session_max_s: float


@dataclass(frozen=True, slots=True)
class CheckpointConfig:
    """Of checkpoints."""

    checkpoint_timeout_s: float
    replay_timeout_s: float


@dataclass(frozen=True, slots=True)
class RegularConfig:
    """Of checkpoints that are taken while a session works; 0: none."""

    every: int
    """Actions."""
    every_s: float
    """Seconds of actions."""


@dataclass(frozen=True, slots=True)
class SleepConfig:
    """Of sessions without a container."""

    node: str
    hibernate_s: float
    """Idle seconds after which a session sleeps; 0: never."""
    wake_timeout_s: float
