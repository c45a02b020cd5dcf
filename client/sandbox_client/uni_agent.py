"""Uni-Agent on this service: two sandboxes with a native shell, and a task that is graded by the service.

    runner_fqn=sandbox_client.uni_agent.run_task

imports this module in the processes that run tasks, which registers `sandbox_session` (a session of a catalogue
instance), `sandbox_box` (a box of any image) and the task `sandbox`; see docs/verl.md.
"""

from __future__ import annotations

import logging
from typing import Any

from pydantic import Field
from uni_agent.framework.task_runner import run_task
from uni_agent.sandbox import SandboxConfig
from uni_agent.sandbox.registry import register_sandbox
from uni_agent.tasks import Task, TaskConfig, TaskResult
from uni_agent.tasks.registry import register_task

from sandbox_client.errors import SettingsError
from sandbox_client.uni_agent_sandboxes import BoxSandbox, SessionSandbox

__all__ = ["BoxSandbox", "SandboxTask", "SandboxTaskConfig", "ServiceFailed", "SessionSandbox", "run_task"]

_LOGGER = logging.getLogger(__name__)

register_sandbox("sandbox_session")(SessionSandbox)
register_sandbox("sandbox_box")(BoxSandbox)


class ServiceFailed(RuntimeError):
    """The service failed during this episode, so it says nothing about the policy; Uni-Agent drops only this one."""


class SandboxTaskConfig(TaskConfig):  # type: ignore[misc]  # Uni-Agent has no types
    """`metadata` names the instance (`instance_id`); the image comes from the catalogue, not from `sandbox`."""

    name: str = "sandbox"
    sandbox: SandboxConfig = Field(default_factory=lambda: SandboxConfig(provider="sandbox_session"))


@register_task("sandbox")
class SandboxTask(Task):  # type: ignore[misc]  # as above
    """An episode of any agent in a session, graded by the service in a fresh container."""

    config_model = SandboxTaskConfig

    async def run(self) -> TaskResult:
        """Run the agent and grade its session. Raises ServiceFailed, SettingsError."""
        instance = str(self.config.metadata.get("instance_id") or "")
        if not instance:
            raise SettingsError("the task's metadata name no instance_id")
        asked: SandboxConfig = self.config.sandbox
        if asked.provider != "sandbox_session":
            raise SettingsError(f"the task sandbox needs the provider sandbox_session, not {asked.provider!r}")
        kwargs = {**asked.sandbox_kwargs, "instance": instance}
        sandbox = SessionSandbox.from_config(asked.model_copy(update={"sandbox_kwargs": kwargs}))
        async with sandbox:
            played = await self.build_agent().run(sandbox=sandbox, messages=self.config.prompt)
            if sandbox.fault:  # the agent swallowed the error and ended early
                raise ServiceFailed(f"{instance}: {sandbox.fault}")
            reward = await sandbox.reward()
        if reward.mask:
            raise ServiceFailed(f"{instance}: no reward ({reward.verdict}): {reward.cause}")
        told: dict[str, Any] = {
            "sandbox_sid": sandbox.sid,
            "verdict": reward.verdict,
            "f2p": [reward.f2p_count, reward.f2p_total],
            "p2p": [reward.p2p_count, reward.p2p_total],
            "receipt": reward.receipt,
        }
        _LOGGER.info("session %s of %s: %s, reward %g", sandbox.sid, instance, reward.verdict, reward.reward)
        return TaskResult(
            reward=reward.reward, accuracy=float(reward.resolved), finished=played.finished, extra_info=told
        )
