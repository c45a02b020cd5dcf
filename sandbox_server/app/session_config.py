"""The configuration of each part of the sessions, from the settings."""

from sandbox_server.actions import registry as actions
from sandbox_server.pool.pool import PoolConfig
from sandbox_server.sessions.config import (
    ActionConfig,
    CheckpointConfig,
    DialectConfig,
    EndConfig,
    RegularConfig,
    RestoreConfig,
    SleepConfig,
)
from sandbox_server.settings import Settings
from sandbox_server.starts.starts import GRACE_S, StartConfig
from sandbox_server.starts.steps import StepBounds

_ADMITTED = 2  # admitted starts per concurrent boot: one container is being made, the next start is ready


def _pool_config(settings: Settings) -> PoolConfig:
    return PoolConfig(
        size=settings.pool_size,
        idle_s=settings.pool_idle_s,
        min_free_mb=settings.pool_min_free_mb,
        # one per two CPUs: with two at a time on two CPUs, live sessions waited 0.3 s for a CPU
        together=max(1, settings.boots // 4),
        lasts_s=max(settings.session_max_s, settings.box_max_s + settings.box_paused_max_s) + GRACE_S,
        admitted=_ADMITTED * settings.boots,
    )


def step_bounds(settings: Settings) -> StepBounds:
    """For `Steps`."""
    return StepBounds(settings.session_max_s, settings.reward_wait_s, settings.service_start_s)


def start_config(settings: Settings) -> StartConfig:
    """For `Starts`."""
    return StartConfig(
        node=settings.node_id,
        max_sessions=settings.max_sessions,
        start_queue=settings.start_queue,
        start_timeout_s=settings.start_timeout_s,
        session_max_s=settings.session_max_s,
        run_sessions=settings.run_sessions,
        run_starts_per_min=settings.run_starts_per_min,
        pool_group=settings.pool_group,
        pool_group_window_s=settings.pool_group_window_s,
        pool=_pool_config(settings),
    )


def dialect_config(settings: Settings) -> DialectConfig:
    """For `Running`. Raises ValueError: no dialect or profile has that name."""
    return DialectConfig(
        dialect=actions.dialect(settings.dialect).name,
        profile=None if settings.profile is None else actions.profile(settings.profile),
        soft_timeout_s=settings.soft_timeout_s,
        calls_in_order=settings.tool_calls == "in_order",
    )


def action_config(settings: Settings) -> ActionConfig:
    """For `Acting`."""
    return ActionConfig(
        node=settings.node_id,
        command_timeout_s=settings.command_timeout_s,
        action_wait_s=settings.action_wait_s,
    )


def end_config(settings: Settings) -> EndConfig:
    """For `SessionEnder`."""
    return EndConfig(
        command_timeout_s=settings.command_timeout_s,
        action_wait_s=settings.action_wait_s,
        end_grace_s=settings.end_grace_s,
        postprocess_timeout_s=settings.postprocess_timeout_s,
    )


def restore_config(settings: Settings) -> RestoreConfig:
    """For `Restoring`."""
    return RestoreConfig(
        node=settings.node_id,
        restore=settings.restore,
        restore_timeout_s=settings.restore_timeout_s,
        command_timeout_s=settings.command_timeout_s,
    )


def checkpoint_config(settings: Settings) -> CheckpointConfig:
    """For `Checkpointing`."""
    return CheckpointConfig(
        checkpoint_timeout_s=settings.checkpoint_timeout_s, replay_timeout_s=settings.restore_timeout_s
    )


def regular_config(settings: Settings) -> RegularConfig:
    """For `RegularCheckpoints`."""
    return RegularConfig(every=settings.checkpoint_every, every_s=settings.checkpoint_every_s)


def sleep_config(settings: Settings) -> SleepConfig:
    """For `Sleeping`."""
    return SleepConfig(
        node=settings.node_id,
        hibernate_s=settings.hibernate_s,
        # no longer than one action, because the request may also wait that long for its turn
        wake_timeout_s=min(settings.start_timeout_s, settings.command_timeout_s),
    )
