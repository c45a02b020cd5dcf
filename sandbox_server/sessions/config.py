"""The bounds and choices that sessions work under; plain values, from the settings of the same names."""

from dataclasses import dataclass

from sandbox_server.sandbox.base import Limits


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """All times in seconds."""

    node: str
    limits: Limits
    dialect: str
    profile: str | None
    command_timeout_s: float
    soft_timeout_s: float | None
    action_wait_s: float
    start_timeout_s: float
    max_sessions: int
    session_idle_s: float
    session_max_s: float
    postprocess_timeout_s: float
    max_patch_bytes: int
    reward: str
    reward_wait_s: float
    allow_ungradable: bool
    reaper_period_s: float

    def limits_of(self, memory_mb: int | None, cpus: float | None, pids: int | None, disk_mb: int | None) -> Limits:
        """The defaults with what an instance names of its own."""
        own = self.limits
        return Limits(
            memory_mb=memory_mb or own.memory_mb,
            cpus=cpus or own.cpus,
            pids=pids or own.pids,
            open_files=own.open_files,
            disk_mb=disk_mb or own.disk_mb,
        )
