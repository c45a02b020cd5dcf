"""The bounds and choices of each part of the sessions: plain values, from the settings of the same names.

Times are in seconds.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DialectConfig:
    """Default formats of actions and observations, for instances that name none."""

    dialect: str
    profile: str | None
    soft_timeout_s: float | None
    calls_in_order: bool


@dataclass(frozen=True, slots=True)
class ActionConfig:
    """Limits of actions."""

    node: str
    command_timeout_s: float
    action_wait_s: float


@dataclass(frozen=True, slots=True)
class EndConfig:
    """Limits of ends of sessions."""

    command_timeout_s: float
    action_wait_s: float
    end_grace_s: float
    postprocess_timeout_s: float


@dataclass(frozen=True, slots=True)
class RestoreConfig:
    """Restores of sessions of dead nodes."""

    node: str
    restore: str
    restore_timeout_s: float
    command_timeout_s: float


@dataclass(frozen=True, slots=True)
class CheckpointConfig:
    """Limits of checkpoints."""

    checkpoint_timeout_s: float
    replay_timeout_s: float


@dataclass(frozen=True, slots=True)
class RegularConfig:
    """When working sessions get regular checkpoints; 0: never."""

    every: int
    """After this many actions."""
    every_s: float
    """After this many seconds of actions."""


@dataclass(frozen=True, slots=True)
class SleepConfig:
    """When idle sessions sleep, and the limit on their wake."""

    node: str
    hibernate_s: float
    """Idle seconds after which a session sleeps; 0: never."""
    wake_timeout_s: float
