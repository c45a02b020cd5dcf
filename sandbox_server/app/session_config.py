"""The configuration of sessions, from the settings."""

from sandbox_server.actions import registry as actions
from sandbox_server.app.limits import limits_of
from sandbox_server.sessions.config import SessionConfig
from sandbox_server.settings import Settings


def session_config(settings: Settings) -> SessionConfig:
    """The configuration for all parts of the sessions."""
    return SessionConfig(
        node=settings.node_id,
        limits=limits_of(settings),
        dialect=actions.dialect(settings.dialect).name,
        profile=None if settings.profile is None else actions.profile(settings.profile),
        calls_in_order=settings.tool_calls == "in_order",
        command_timeout_s=settings.command_timeout_s,
        soft_timeout_s=settings.soft_timeout_s,
        action_wait_s=settings.action_wait_s,
        start_timeout_s=settings.start_timeout_s,
        max_sessions=settings.max_sessions,
        session_idle_s=settings.session_idle_s,
        session_max_s=settings.session_max_s,
        box_max_s=settings.box_max_s,
        box_paused_max_s=settings.box_paused_max_s,
        end_grace_s=settings.end_grace_s,
        postprocess_timeout_s=settings.postprocess_timeout_s,
        ending_max_s=settings.ending_max_s,
        reward=settings.reward,
        reward_wait_s=settings.reward_wait_s,
        allow_ungradable=settings.allow_ungradable,
        reaper_period_s=settings.reaper_period_s,
        pool_size=settings.pool_size,
        pool_idle_s=settings.pool_idle_s,
        pool_min_free_mb=settings.pool_min_free_mb,
        pool_group=settings.pool_group,
        pool_group_window_s=settings.pool_group_window_s,
        boot_concurrency=settings.boots,
        restore=settings.restore,
        restore_timeout_s=settings.restore_timeout_s,
        start_queue=settings.start_queue,
        run_sessions=settings.run_sessions,
        run_starts_per_min=settings.run_starts_per_min,
    )
