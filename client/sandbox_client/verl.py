"""Rollouts in veRL, from 0.7.1 to main: an agent loop whose environment is a session, and a reward manager.

`sandbox_client.verl_tools` does the same for veRL's own tool loop. Configure the loop as

    - name: sandbox
      _target_: sandbox_client.verl.SandboxAgentLoop
      max_turns: 30

in the file that `actor_rollout_ref.rollout.agent.agent_loop_config_path` names; see docs/verl.md.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from sandbox_client import environment, runs
from sandbox_client.answers import Observation, Reward
from sandbox_client.client import SandboxClient, Session
from sandbox_client.errors import SandboxError, SettingsError
from sandbox_client.verl_tokens import Tokens, WholeObservations

_LOGGER = logging.getLogger(__name__)
_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, SandboxClient] = WeakKeyDictionary()


class RolloutFault(RuntimeError):
    """The service failed during this rollout, so it says nothing about the policy; raised with `faults: raise`."""


class SandboxAgentLoop(WholeObservations, AgentLoopBase):  # type: ignore[misc]  # veRL has no types
    """One trajectory in one session: the policy's text is sent unchanged, and each turn gets one observation.

    A row names its instance in the column `instance_id`, or in `extra_info`. The session ends when the policy calls
    `finish`, at `max_turns`, at the maximum response length, or when the trajectory is cancelled.
    """

    def __init__(
        self,
        *arguments: Any,
        max_turns: int = 30,
        finish: str = "<function=finish>",
        faults: str = "mask",
        **others: Any,
    ) -> None:
        """`finish`: the text that ends a rollout; "" if the dialect has none. `others` are veRL's.

        `faults`: when the service fails, "mask" takes the rollout out of the loss (response mask 0, `masked` 1.0);
        "raise" raises RolloutFault, on which veRL drops the group or the step.

        Raises:
            SettingsError.
        """
        super().__init__(*arguments, **others)
        self._max_turns, self._finish, self._raises = int(max_turns), finish, raises(faults)
        self._most = int(self.config.actor_rollout_ref.rollout.response_length)

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        """Play the trajectory; the output includes its reward."""
        instance = instance_of(row)
        messages = [dict(message) for message in row["raw_prompt"]]
        tokens = Tokens(self, with_logprobs=bool(sampling_params.get("logprobs")))
        await tokens.begin(messages)
        metrics = {"generate_sequences": 0.0, "tool_calls": 0.0, "compute_score": 0.0}
        outcome = await in_session(
            instance,
            lambda session: self._turns(session, tokens, messages, sampling_params, metrics),
            raises_faults=self._raises,
        )
        metrics["compute_score"] = outcome.waited_s
        prompt_ids, response_ids, mask, logprobs = tokens.cut_to(self._most)
        if not response_ids:  # nothing was generated, but a response must not be empty
            response_ids, mask, logprobs = [end_of(self.tokenizer)], [0], None if logprobs is None else [0.0]
        return AgentLoopOutput(
            prompt_ids=prompt_ids,
            response_ids=response_ids,
            response_mask=[0] * len(mask) if outcome.fault else mask,
            response_logprobs=logprobs,
            reward_score=outcome.score,
            num_turns=len(messages),
            metrics=metrics,
            extra_fields=outcome.fields,
        )

    async def _turns(
        self,
        session: Any,
        tokens: Tokens,
        messages: list[dict[str, Any]],
        sampling_params: dict[str, Any],
        metrics: dict[str, float],
    ) -> None:
        request_id = uuid.uuid4().hex  # one per trajectory, so that its turns share a replica's prefix cache
        for turn in range(self._max_turns):
            began = time.monotonic()
            output = await self.server_manager.generate(
                request_id=request_id, prompt_ids=tokens.ids, sampling_params=sampling_params
            )
            metrics["generate_sequences"] += time.monotonic() - began
            await tokens.add_generated(output.token_ids, output.log_probs)
            text = await self.loop.run_in_executor(
                None, lambda ids=output.token_ids: self.tokenizer.decode(ids, skip_special_tokens=True)
            )
            messages.append({"role": "assistant", "content": text})
            if (self._finish and self._finish in text) or tokens.length >= self._most:
                return
            began = time.monotonic()
            seen = await session.act(text)
            metrics["tool_calls"] += time.monotonic() - began
            if is_over(seen):
                return
            if turn + 1 < self._max_turns:  # nobody reads the last observation
                await tokens.add_message(messages, {"role": "user", "content": seen.content})
                if tokens.length >= self._most:
                    return


class SandboxRewardManager(RewardManagerBase):  # type: ignore[misc]  # veRL has no types
    """Gets the reward of the session that a trajectory names in `sandbox_sid`, for loops that give no reward.

    Such a loop must put `sandbox_sid` into its output's `extra_fields`.
    """

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any = None, **_: Any) -> None:
        """Arguments are veRL's."""
        super().__init__(config, tokenizer, compute_score)

    async def run_single(self, data: Any) -> dict[str, Any]:
        """The reward; if it is masked or missing, 0.0 with `masked` 1.0, and an error in the log."""
        row = data[-1:][0].non_tensor_batch
        fields = row.get("tool_extra_fields") or {}
        sid = row.get("sandbox_sid") or fields.get("sandbox_sid")
        reward: Reward | None = None
        try:
            if not sid:
                raise SandboxError("the trajectory names no session (sandbox_sid): its start failed")
            reward = await client_of_loop().reward(str(sid))
            if reward.mask:
                raise SandboxError(f"{reward.verdict}: {reward.cause}")
        except SandboxError as error:
            _LOGGER.error("masked reward of session %s: %s", sid, error)
            reward = None
        return {"reward_score": 0.0 if reward is None else reward.reward, "reward_extra_info": told(reward)}


@dataclass
class Outcome:
    """Outcome of a trajectory's session."""

    sid: str = ""
    reward: Reward | None = None
    fault: str = ""
    """Why the trajectory is masked; "": it is not."""
    waited_s: float = 0.0
    """Seconds waited for the reward."""

    @property
    def score(self) -> float:
        """The reward; 0.0 if there is a fault."""
        return 0.0 if self.reward is None or self.fault else self.reward.reward

    @property
    def fields(self) -> dict[str, Any]:
        """Entries of the output's `extra_fields`."""
        return {"reward_extra_info": told(None if self.fault else self.reward), "sandbox_sid": self.sid}


async def in_session(instance: str, play: Callable[[Session], Awaitable[None]], *, raises_faults: bool) -> Outcome:
    """Play a trajectory in its own session, end the session in any case, and get its reward.

    Raises:
        RolloutFault: with `raises_faults`, after a SandboxError or a masked reward.
    """
    outcome = Outcome()
    try:
        async with client_of_loop().session(instance) as session:
            outcome.sid = session.sid
            await play(session)
        began = time.monotonic()
        outcome.reward = await session.reward()
        outcome.waited_s = time.monotonic() - began
        if outcome.reward.mask:
            outcome.fault = f"no reward ({outcome.reward.verdict}): {outcome.reward.cause}"
    except SandboxError as error:
        outcome.fault = str(error) or type(error).__name__
    if outcome.fault and raises_faults:
        raise RolloutFault(f"{instance}: {outcome.fault}")
    if outcome.fault:
        _LOGGER.error("rollout of %s left out of the loss: %s", instance, outcome.fault)
    return outcome


_LEFT_TO_THE_REWARD = (
    "command_broken",
    "sandbox_disk_full",
    "sandbox_exhausted",
    "sandbox_lost",
    "session_ended",
    "unknown_session",
)
"""Codes of errors that a policy can cause: the mask of the reward decides whether such a rollout counts."""


def is_over(seen: Observation) -> bool:
    """Whether the rollout ends with this observation. Raises SandboxError: the service could not run the action."""
    if seen.error is None:
        return False
    if seen.error.code in _LEFT_TO_THE_REWARD:
        _LOGGER.warning("a rollout ends early: %s: %s", seen.error.code, seen.error.detail)
        return True
    raise SandboxError(f"{seen.error.code}: {seen.error.detail}")


def raises(faults: str) -> bool:
    """Whether `faults` is "raise". Raises SettingsError: it is neither "mask" nor "raise"."""
    if faults not in ("mask", "raise"):
        raise SettingsError(f"faults is mask or raise, not {faults!r}")
    return faults == "raise"


def instance_of(row: Mapping[str, Any]) -> str:
    """The row's instance id. Raises SettingsError: the row names none."""
    extra = row.get("extra_info")
    name = row.get("instance_id") or (extra.get("instance_id") if isinstance(extra, Mapping) else None)
    if not name:
        raise SettingsError("the row has no column instance_id, nor one in extra_info")
    return str(name)


def told(reward: Reward | None) -> dict[str, float]:
    """`reward_extra_info`; None: masked. Every sample has the same keys, because veRL takes those of the first."""
    if reward is None:
        return {"acc": 0.0, "resolved": 0.0, "masked": 1.0, "f2p": 0.0, "p2p": 0.0}
    return {
        "acc": float(reward.resolved),
        "resolved": float(reward.resolved),
        "masked": 0.0,
        "f2p": _share(reward.f2p_count, reward.f2p_total),
        "p2p": _share(reward.p2p_count, reward.p2p_total),
    }


def _share(count: int, total: int) -> float:
    return count / total if total else 0.0


def end_of(tokenizer: Any) -> int:
    """Token to use as the response if nothing was generated."""
    token = tokenizer.eos_token_id
    return int(token if token is not None else tokenizer.pad_token_id or 0)


def client_of_loop() -> SandboxClient:
    """The running loop's client. It is never closed, like the worker's loop itself."""
    runs.keep_alive()
    loop = asyncio.get_running_loop()
    if loop not in _clients:
        _clients[loop] = SandboxClient(environment.base_urls())
    return _clients[loop]
