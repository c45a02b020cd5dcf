"""The tokens of a trajectory in veRL, built with the method of the installed version.

Main and 0.9.1 merge messages into the runtime's tokens (`ct_*`, under two names); 0.7.1 and 0.8.0 render each message
separately (`apply_chat_template(remove_system_prompt=True)`); 0.9.0 does either, depending on the model family.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any


class WholeObservations:
    """Mixin for loops: 0.8 and 0.9 truncate the start of rendered messages over prompt_length, even observations."""

    rollout_config: Any

    async def apply_chat_template(self, *arguments: Any, **named: Any) -> Any:
        """As veRL's, but messages after the prompt are not truncated."""
        render = super().apply_chat_template  # type: ignore[misc]  # from veRL's AgentLoopBase, the other base class
        if not named.get("remove_system_prompt"):
            return await render(*arguments, **named)
        config = self.rollout_config
        self.rollout_config = _Unbounded(config)  # safe: each loop object has one trajectory
        try:
            return await render(*arguments, **named)
        finally:
            self.rollout_config = config


class _Unbounded:
    """The rollout configuration without a limit on the prompt's length."""

    prompt_length = sys.maxsize

    def __init__(self, config: Any) -> None:
        self._config = config

    def __getattr__(self, name: str) -> Any:
        return getattr(self._config, name)


class Tokens:
    """Prompt and response tokens of one trajectory; tokens that the policy did not generate are masked."""

    def __init__(self, loop: Any, *, with_logprobs: bool) -> None:
        """`loop` is veRL's AgentLoopBase."""
        self._loop = loop
        self._continuous = hasattr(loop, "ct_build_initial_tokens") and getattr(loop, "enable_continuous_token", True)
        self.ids: list[int] = []
        """All tokens, as the policy sees them."""
        self._mask: list[int] = []
        self._logprobs: list[float] | None = [] if with_logprobs else None

    @property
    def length(self) -> int:
        """Length of the response in tokens."""
        return len(self._mask)

    async def begin(self, messages: list[dict[str, Any]]) -> None:
        """Set the prompt."""
        first = self._loop.ct_build_initial_tokens if self._continuous else self._loop.apply_chat_template
        # truncated as in main: a longer prompt does not fit into a row of the batch
        self.ids = list(await first(messages))[-int(self._loop.config.actor_rollout_ref.rollout.prompt_length) :]

    async def add_generated(self, ids: Sequence[int], logprobs: Sequence[float] | None) -> None:
        """Append generated tokens; log probabilities that the engine did not give are set to 0."""
        own = None if self._logprobs is None else list(logprobs or [0.0] * len(ids))
        if self._continuous:
            merged, self._mask, aligned = await self._loop.ct_merge_assistant_token(
                self.ids, list(ids), self._mask, self._logprobs, assistant_logprobs=own
            )
            self._took(merged, aligned)
        else:
            self._append(list(ids), 1, own)

    async def add_message(self, messages: list[dict[str, Any]], message: dict[str, Any]) -> None:
        """Append a masked message for the policy, also to `messages`."""
        before = list(messages)
        messages.append(message)
        if self._continuous:
            # renamed in 0.9.1
            merge = getattr(self._loop, "ct_merge_context_msg", None) or self._loop.ct_merge_non_assistant_msg
            merged, self._mask, aligned = await merge(before, messages, self.ids, self._mask, self._logprobs)
            self._took(merged, aligned)
        else:
            new = list(await self._loop.apply_chat_template([message], remove_system_prompt=True))
            new = [*getattr(self._loop, "turn_separator", ()), *new]  # 0.9.0: the template's separator between turns
            self._append(new, 0, None if self._logprobs is None else [0.0] * len(new))

    def cut_to(self, most: int) -> tuple[list[int], list[int], list[int], list[float] | None]:
        """Prompt, and response, mask and log probabilities cut to `most` tokens."""
        border = len(self.ids) - len(self._mask)
        response, mask = self.ids[border:][:most], self._mask[:most]
        return self.ids[:border], response, mask, None if self._logprobs is None else self._logprobs[:most]

    def _append(self, ids: list[int], mask: int, logprobs: list[float] | None) -> None:
        self.ids = self.ids + ids
        self._mask = self._mask + [mask] * len(ids)
        if self._logprobs is not None:
            self._logprobs = self._logprobs + (logprobs or [])

    def _took(self, merged: Any, logprobs: list[float] | None) -> None:
        self.ids = list(merged.token_ids)
        if self._logprobs is not None:
            self._logprobs = list(logprobs or [0.0] * len(self._mask))
