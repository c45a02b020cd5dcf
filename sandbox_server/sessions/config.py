"""Configuration of the sessions: plain values from the settings of the same names."""

from dataclasses import dataclass

from sandbox_server.sandbox.base import Limits


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """All times in seconds."""

    node: str
    limits: Limits
    dialect: str
    profile: str | None
    calls_in_order: bool
    command_timeout_s: float
    soft_timeout_s: float | None
    action_wait_s: float
    start_timeout_s: float
    max_sessions: int
    session_idle_s: float
    session_max_s: float
    box_max_s: float
    box_paused_max_s: float
    end_grace_s: float
    postprocess_timeout_s: float
    ending_max_s: float
    reward: str
    reward_wait_s: float
    allow_ungradable: bool
    reaper_period_s: float
    pool_size: int
    pool_idle_s: float
    pool_min_free_mb: int
    pool_group: int
    pool_group_window_s: float
    boot_concurrency: int
    restore: str
    restore_timeout_s: float
    start_queue: int
    run_sessions: int = 0
    run_starts_per_min: int = 0
