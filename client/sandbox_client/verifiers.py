"""Code search as a StatefulToolEnv of `verifiers`, over sessions of the service; needs the extra `verifiers`.

For verifiers 0.2 to 0.3.1, whose `verifiers.legacy` still has StatefulToolEnv; 0.4.0 removed it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import verifiers as vf
from verifiers.types import ToolMessage, UserMessage

from sandbox_client.answers import Reward
from sandbox_client.client import SandboxClient
from sandbox_client.errors import SandboxError
from sandbox_client.timeouts import Timeouts
from sandbox_client.tool_calls import ANSWER_CALLS, is_recorded, message, responses

_LOGGER = logging.getLogger(__name__)


def rows(records: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Convert code search records (`instance_id`, and `prompt` or `problem_statement`) to the environment's rows."""
    return [
        {
            "prompt": record.get("prompt") or [{"role": "user", "content": record["problem_statement"]}],
            "info": {"instance_id": record["instance_id"]},
        }
        for record in records
    ]


async def bash(command: str, timeout: float | None = None) -> str:
    """Run a command in a fresh bash at the repository. Several calls in one turn run in parallel.

    Args:
        command: The command.
        timeout: Seconds until it is killed.
    """
    raise NotImplementedError("a turn's calls are sent together, by CodeSearchEnv.env_response")


@dataclass
class Location:
    """A place in the repository."""

    file: str
    class_name: str | None = None
    function_name: str | None = None


async def localization_finish(locations: list[Location]) -> str:
    """Give your answer: the places that the change must touch.

    Args:
        locations: The files and, where known, their classes and functions.
    """
    raise NotImplementedError("a turn's calls are sent together, by CodeSearchEnv.env_response")


async def reward(state: vf.State) -> float:
    """The service's reward; 0.0 if there is none or it is masked (then `state["error"]` is set)."""
    graded: Reward | None = state.get("sandbox_reward")
    return 0.0 if graded is None or graded.mask else graded.reward


class CodeSearchEnv(vf.StatefulToolEnv):  # type: ignore[misc]  # verifiers has no types
    """One rollout in one session of the instance `info["instance_id"]`, whose dialect must be `tool_calls`.

    The calls of a turn are sent in one request, run in parallel, and are answered in order. A rollout ends when the
    service confirms an answer, or after `max_turns`.
    The session is graded once, during cleanup of the rollout; rubrics read `state["sandbox_reward"]`, and results are
    saved with `state_columns=["sandbox_grade"]`, the same as JSON values. A fault of the
    service is stored in `state["error"]` as an InfraError, which verifiers can retry (`max_retries`), without a score.
    """

    def __init__(
        self,
        base_url: str | list[str],
        *,
        api_key: str | None = None,
        run: str | None = None,
        timeouts: Timeouts | None = None,
        max_turns: int = 10,
        finish_tool: bool = False,
        is_answer: Callable[[str], bool] | None = None,
        rubric: vf.Rubric | None = None,
        **others: Any,
    ) -> None:
        """`finish_tool` adds the tool `localization_finish`; `others` go to StatefulToolEnv (`dataset` etc.).

        `is_answer(text)` ends a rollout at a message without calls, even if the service finds no answer in it.
        """
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, SandboxClient] = WeakKeyDictionary()
        super().__init__(tools=[], max_turns=max_turns, rubric=rubric or vf.Rubric(funcs=[reward]), **others)
        self.add_tool(bash)
        if finish_tool:
            self.add_tool(localization_finish)
        self._service = (base_url, api_key, run, timeouts)
        self._is_answer = is_answer

    def update_tool_args(
        self, tool_name: str, tool_args: dict[str, Any], messages: vf.Messages, state: vf.State, **kwargs: Any
    ) -> dict[str, Any]:
        """Return them unchanged: the session is named once for the whole turn."""
        return tool_args

    async def setup_state(self, state: vf.State) -> vf.State:
        """Start the rollout's session. Raises vf.InfraError."""
        state["sandbox_reward"] = state["sandbox_grade"] = None
        state["sandbox_told"] = 0
        try:
            state["sandbox_sid"] = await self._client().start(state["info"]["instance_id"])
        except SandboxError as error:
            raise vf.InfraError(f"no session could be started: {error}") from error
        return state

    async def env_response(self, messages: vf.Messages, state: vf.State, **kwargs: Any) -> vf.Messages:
        """The results of a turn's calls, in order; for a turn without calls the service's reply as a user message.

        Raises:
            vf.InfraError: the service could not run the turn.
        """
        turn = messages[-1]
        observation = await self._tell(state, turn)
        calls = turn.tool_calls or []
        if not calls:
            said = [UserMessage(role="user", content=observation)]
            if is_recorded(observation):
                state["final_env_response"] = said
            return said
        try:
            texts = responses(observation, len(calls))
        except SandboxError as error:
            raise vf.InfraError(str(error)) from error
        replies = [
            ToolMessage(role="tool", content=text, tool_call_id=call.id)
            for call, text in zip(calls, texts, strict=True)
        ]
        if is_recorded(observation):
            state["final_env_response"] = replies
        return replies

    @vf.stop  # type: ignore[untyped-decorator]
    async def no_tools_called(self, state: vf.State) -> bool:
        """Stop only if `is_answer` accepts the message; otherwise it goes to the service, which replies to it."""
        turn = _last(state)
        if turn is None or turn.tool_calls or self._is_answer is None:
            return False
        return self._is_answer(_text(turn.content))

    @vf.cleanup  # type: ignore[untyped-decorator]
    async def end_session(self, state: vf.State) -> None:
        """Send the last message if it was not sent yet, grade once, end the session; never raises."""
        sid = state.get("sandbox_sid")
        if not sid:
            return
        client = self._client()
        try:
            if state.get("error") is None:
                turn = _last(state)
                is_new = len(state["trajectory"]) > state["sandbox_told"]
                if turn is not None and is_new and (not turn.tool_calls or _answers(turn)):
                    await self._tell(state, turn)  # the output of other calls would not be used
                graded = state["sandbox_reward"] = await client.reward(sid)
                state["sandbox_grade"] = graded.to_wire()
                if graded.mask:
                    state["error"] = vf.InfraError(f"no reward ({graded.verdict}): {graded.cause}")
        except SandboxError as error:
            state["error"] = vf.InfraError(str(error))
        except vf.InfraError as error:
            state["error"] = error
        if state["sandbox_reward"] is not None:
            return  # the reward request has ended the session
        try:
            await client.finish(sid)
        except SandboxError as error:
            _LOGGER.error("session %s could not be finished, the service ends it when it is idle: %s", sid, error)

    @vf.teardown  # type: ignore[untyped-decorator]
    async def close_client(self) -> None:
        """Close the connections of this event loop."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    def _client(self) -> SandboxClient:
        """The running loop's client: connections belong to a loop, and verifiers runs several loops in succession."""
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            url, api_key, run, timeouts = self._service
            self._clients[loop] = SandboxClient(url, api_key=api_key, run=run, timeouts=timeouts)
        return self._clients[loop]

    async def _tell(self, state: vf.State, turn: Any) -> str:
        calls = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in turn.tool_calls or []]
        state["sandbox_told"] = len(state["trajectory"])
        try:
            seen = await self._client().act(state["sandbox_sid"], message(_text(turn.content), calls))
        except SandboxError as error:
            raise vf.InfraError(str(error)) from error
        if seen.error is not None:
            raise vf.InfraError(f"{seen.error.code}: {seen.error.detail}")
        return seen.content


def _last(state: vf.State) -> Any:
    """The policy's latest message; None before its first."""
    return state["trajectory"][-1]["completion"][-1] if state["trajectory"] else None


def _answers(turn: Any) -> bool:
    return any(call.name in ANSWER_CALLS for call in turn.tool_calls or [])


def _text(content: Any) -> str:
    """A message's content, which may be a list of parts."""
    if isinstance(content, str) or content is None:
        return content or ""
    parts = [part if isinstance(part, dict) else part.model_dump() for part in content]
    return "".join(part["text"] for part in parts if isinstance(part.get("text"), str))
