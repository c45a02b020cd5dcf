"""veRL's own tool loop on sessions, for policies that call tools in the format of their chat template. Configure

    - name: sandbox_tools
      _target_: sandbox_client.verl_tools.SandboxToolAgentLoop

in the file of `rollout.agent.agent_loop_config_path`, and for each tool

    - class_name: sandbox_client.verl_tools.SandboxTool
      config: {type: native}
      tool_schema: {type: function, function: {name: execute_bash, ...}}

in the file of `rollout.multi_turn.tool_config_path`, for instance examples/verl/tools.yaml.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
from verl.experimental.agent_loop.tool_agent_loop import AgentState, ToolAgentLoop
from verl.tools.base_tool import BaseTool
from verl.tools.schemas import ToolResponse

from sandbox_client.client import Session
from sandbox_client.errors import SandboxError, SettingsError
from sandbox_client.verl import end_of, in_session, instance_of, is_over, raises
from sandbox_client.verl_tokens import Tokens, WholeObservations

FINISH = "finish"
"""The tool that ends a rollout; it is not sent to the service."""


class SandboxTool(BaseTool):  # type: ignore[misc]  # veRL has no types
    """A tool that runs in the trajectory's session, with name and parameters as in the dialect `openhands_xml`."""

    async def execute(
        self, instance_id: str, parameters: dict[str, Any], **_: Any
    ) -> tuple[ToolResponse, float, dict[str, Any]]:
        """The session's observation; a call has no reward, because the reward is the session's."""
        rollout = _rollout.get()
        if rollout is None:
            raise SettingsError("SandboxTool needs the agent loop sandbox_client.verl_tools.SandboxToolAgentLoop")
        return ToolResponse(text=await rollout.call(self.name, parameters)), 0.0, {}


class SandboxToolAgentLoop(WholeObservations, ToolAgentLoop):  # type: ignore[misc]  # veRL has no types
    """veRL's ToolAgentLoop in one session per trajectory, with the session's reward and mask.

    The trajectory ends when the policy calls `finish` or no tool, or at veRL's own limits (`rollout.multi_turn`).
    """

    def __init__(
        self, *arguments: Any, faults: str = "mask", max_tool_response_length: int = 30_000, **others: Any
    ) -> None:
        """`faults`: as in SandboxAgentLoop. `max_tool_response_length`: in characters; veRL's default is 256.

        Raises SettingsError.
        """
        super().__init__(*arguments, **others)
        self._raises = raises(faults)
        self.max_tool_response_length = int(max_tool_response_length)

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        """Play the trajectory; the output includes its reward."""
        output: AgentLoopOutput | None = None

        async def play(session: Session) -> None:
            nonlocal output
            rollout = _Rollout(session)
            mark = _rollout.set(rollout)
            try:
                output = await ToolAgentLoop.run(self, sampling_params, **row)
            finally:
                _rollout.reset(mark)
            if rollout.fault:
                raise SandboxError(rollout.fault)

        outcome = await in_session(instance_of(row), play, raises_faults=self._raises)
        if output is None:
            output = await self._nothing(row)
        if outcome.fault:
            output.response_mask = [0] * len(output.response_mask)
        if sampling_params.get("logprobs") and output.response_logprobs is None:  # else the batch loses the column
            output.response_logprobs = [0.0] * len(output.response_ids)
        output.reward_score = outcome.score
        output.extra_fields.update(outcome.fields)
        if hasattr(output.metrics, "compute_score"):  # since 0.8
            output.metrics.compute_score = outcome.waited_s
        return output

    async def _handle_processing_tools_state(self, agent_data: Any) -> AgentState:
        state = await super()._handle_processing_tools_state(agent_data)
        rollout = _rollout.get()
        return AgentState.TERMINATED if rollout is not None and rollout.is_over else state

    async def _nothing(self, row: Mapping[str, Any]) -> AgentLoopOutput:
        """Output for a trajectory without a result: one masked token, because a response must not be empty."""
        tokens = Tokens(self, with_logprobs=False)
        await tokens.begin([dict(message) for message in row["raw_prompt"]])
        return AgentLoopOutput(
            prompt_ids=tokens.ids,
            response_ids=[end_of(self.tokenizer)],
            response_mask=[0],
            num_turns=1,
            metrics={},
            extra_fields={"turn_scores": [], "tool_rewards": []},
        )


class _Rollout:
    """State shared by a trajectory's tools."""

    def __init__(self, session: Session) -> None:
        self.fault = ""
        self.is_over = False
        self._session = session
        self._turn = asyncio.Lock()  # keeps the calls of one message in order, since the session has one shell

    async def call(self, name: str, parameters: Mapping[str, Any]) -> str:
        """The call's observation; "" once the rollout is over."""
        async with self._turn:
            if not self.is_over and name != FINISH:
                try:
                    seen = await self._session.act(_spelled(name, parameters))
                    if not is_over(seen):
                        return seen.content
                except SandboxError as error:  # veRL would show the error to the policy and continue
                    self.fault = str(error) or type(error).__name__
            self.is_over = True
            return ""


_rollout: ContextVar[_Rollout | None] = ContextVar("sandbox_rollout", default=None)
"""State of the trajectory that runs the tool: veRL shares one tool object between all trajectories."""


def _spelled(name: str, parameters: Mapping[str, Any]) -> str:
    """The call in the syntax of the dialect `openhands_xml`."""
    given = [
        f"<parameter={key}>\n{value if isinstance(value, str) else json.dumps(value)}\n</parameter>"
        for key, value in parameters.items()
    ]
    return "\n".join([f"<function={name}>", *given, "</function>"])
