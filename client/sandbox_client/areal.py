"""A rollout workflow of AReaL: `workflow="sandbox_client.areal.SandboxWorkflow"`; needs AReaL and its torch.

Data rows need `instance_id` and `messages`. The policy's text is sent unchanged, in the instance's dialect (with
`tool_calls`: `<tool_call>` blocks); the service's answer becomes a user message.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from typing import Any

import torch
from areal.api import ModelRequest, RolloutWorkflow
from areal.utils.hf_utils import apply_chat_template

from sandbox_client.errors import SandboxError, SettingsError
from sandbox_client.rollouts import Rollout, service_url, shared_client

_LOGGER = logging.getLogger(__name__)


class SandboxWorkflow(RolloutWorkflow):  # type: ignore[misc]  # AReaL is not installed where types are checked
    """Runs each episode in its own session. If the service fails or masks the reward, the trajectory is rejected."""

    def __init__(
        self,
        gconfig: Any,
        tokenizer: Any,
        *,
        max_turns: int = 30,
        max_tokens: int = 32_768,
        url: str | None = None,
        run: str | None = None,
    ) -> None:
        """`gconfig` and `tokenizer` (or its path): as in AReaL's own workflows.

        `max_tokens`: no further turn begins once prompt, turns and observations have this many tokens; the last turn
        may go beyond.
        """
        if isinstance(tokenizer, str):
            from areal.utils.hf_utils import load_hf_tokenizer  # noqa: PLC0415  # like AReaL: imported only when needed

            tokenizer = load_hf_tokenizer(tokenizer)
        self._tokenizer = tokenizer
        self._gconfig = gconfig.new_with_stop_and_pad_token_ids(tokenizer)
        self._max_turns, self._max_tokens = max_turns, max_tokens
        self._of = (url, run)

    async def arun_episode(self, engine: Any, data: dict[str, Any]) -> dict[str, torch.Tensor] | None:
        """Run and grade one episode; return tensors of shape (1, tokens), `rewards` (1,). None: it was rejected.

        Raises SettingsError: the row has no instance_id or no messages.
        """
        if not data.get("instance_id") or not data.get("messages"):
            raise SettingsError("the data's rows need instance_id and messages")
        rollout: Rollout | None = None
        try:
            client = shared_client(service_url(self._of[0]), run=self._of[1])
            rollout = await Rollout.start(client, str(data["instance_id"]))
            trajectory = await self._played(engine, rollout, list(data["messages"]))
            reward = (await rollout.grade()).reward
        except SandboxError as error:
            _LOGGER.error("%s: the trajectory is rejected: %s", data["instance_id"], error)
            return None
        finally:
            if rollout is not None:
                await rollout.end()
        return trajectory.tensors(reward)

    async def _played(self, engine: Any, rollout: Rollout, messages: list[dict[str, Any]]) -> _Trajectory:
        trajectory = _Trajectory(self._rendered(messages))
        for turn in range(self._max_turns):
            request = ModelRequest(
                rid=uuid.uuid4().hex,
                input_ids=list(trajectory.ids),
                gconfig=self._gconfig.new(n_samples=1),
                tokenizer=self._tokenizer,
            )
            said = await engine.agenerate(request)
            trajectory.add(said.output_tokens, said.output_logprobs, said.output_versions)
            text = self._tokenizer.decode(said.output_tokens, skip_special_tokens=True)
            reply = await rollout.turn(text)
            if reply.over or turn + 1 == self._max_turns:
                break
            observed = self._observed(reply.texts[0], ended=said.output_tokens[-1:] == [self._tokenizer.eos_token_id])
            if len(trajectory.ids) + len(observed) >= self._max_tokens:
                break
            trajectory.add_masked(observed)
        return trajectory

    def _rendered(self, messages: Sequence[dict[str, Any]]) -> list[int]:
        return list(apply_chat_template(self._tokenizer, list(messages), tokenize=True, add_generation_prompt=True))

    def _observed(self, text: str, *, ended: bool) -> list[int]:
        """The tokens between two turns of the policy: `text` as a user message, with the chat template's own tokens.

        `ended`: the policy's turn ends with the end token; otherwise the result begins with it.
        """
        said = [{"role": "user", "content": "-"}, {"role": "assistant", "content": "-"}]
        before = list(apply_chat_template(self._tokenizer, said, tokenize=True))
        after = self._rendered([*said, {"role": "user", "content": text}])
        # the template may add text after the end token, such as a newline, which the policy does not generate: the
        # result has to contain it
        end = self._tokenizer.eos_token_id
        last = len(before) - before[::-1].index(end) if end in before else len(before)
        return ([] if ended or end not in before else [end]) + after[last:]


class _Trajectory:
    """A trajectory's tokens with their data for AReaL's loss; tokens that the policy did not write are masked."""

    def __init__(self, prompt: Sequence[int]) -> None:
        self.ids: list[int] = []
        self._logprobs: list[float] = []
        self._mask: list[int] = []
        self._versions: list[int] = []
        self.add_masked(prompt)

    def add(self, ids: Sequence[int], logprobs: Sequence[float], versions: Sequence[int]) -> None:
        """Append tokens of the policy."""
        self.ids += ids
        self._logprobs += logprobs
        self._versions += versions
        self._mask += [1] * len(ids)

    def add_masked(self, ids: Sequence[int]) -> None:
        """Append tokens that the policy did not write."""
        self.ids += ids
        self._logprobs += [0.0] * len(ids)
        self._versions += [-1] * len(ids)
        self._mask += [0] * len(ids)

    def tensors(self, reward: float) -> dict[str, torch.Tensor]:
        """The trajectory and its reward in the form of AReaL's own workflows."""
        made = {
            "input_ids": torch.tensor(self.ids, dtype=torch.int32),
            "loss_mask": torch.tensor(self._mask, dtype=torch.int32),
            "logprobs": torch.tensor(self._logprobs, dtype=torch.float32),
            "versions": torch.tensor(self._versions, dtype=torch.int32),
            "attention_mask": torch.ones(len(self.ids), dtype=torch.bool),
            "rewards": torch.tensor(reward, dtype=torch.float32),
        }
        return {name: tensor.unsqueeze(0) for name, tensor in made.items()}
