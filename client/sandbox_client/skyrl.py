"""Code search as a text environment of SkyRL (`skyrl-gym` 0.4); needs the extra `skyrl`.

Register it with the entry point `sandbox_client.skyrl:CodeSearchEnv`. Its methods block their thread while the commands
of a step run: set `environment.skyrl_gym.max_env_workers` to at least the number of concurrent rollouts.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any

from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput, ConversationType

from sandbox_client.answers import Reward
from sandbox_client.blocking import BlockingClient
from sandbox_client.errors import SandboxError, SettingsError
from sandbox_client.tool_calls import is_recorded, is_reply

_LOGGER = logging.getLogger(__name__)
_MAX_TURNS = 10
_KEYS = frozenset({"url", "api_key", "run", "max_turns", "faults"})
_FAULTS = ("mask", "raise")
_OTHER_DIALECT = (
    "the reply is not in the dialect `tool_calls`: give the instance `dialect: tool_calls`, or start the server with "
    "SANDBOX_DIALECT=tool_calls"
)


class RolloutFault(RuntimeError):
    """With `faults="raise"`: the service failed during a rollout, which therefore says nothing about the policy."""


class CodeSearchEnv(BaseTextEnv):  # type: ignore[misc]  # skyrl-gym has no types
    """One rollout in one session: each turn's text is sent unchanged in one request, with all of its calls.

    Keys of `settings` (set at registration) and of `env_config` (a mapping or a dataclass), which takes precedence;
    None counts as not given:
    - `url`: base URL, or several, comma-separated; default: SANDBOX_URL.
    - `api_key`, `run`.
    - `max_turns`: default 10.
    - `faults`: what happens when the service fails or masks the reward. "mask" (default): the rollout ends with reward
      0.0 and `metadata["mask"]` true, and the trainer must leave it out of the loss. "raise": RolloutFault is raised.

    Keys of `extras`, the columns of the data set: `instance_id`, and optionally `max_turns`, which takes precedence.
    """

    def __init__(
        self,
        env_config: object = None,
        extras: Mapping[str, Any] | None = None,
        *,
        settings: Mapping[str, Any] | None = None,
        is_answer: Callable[[str], bool] | None = None,
    ) -> None:
        """Read the configuration; starts nothing. Raises SettingsError: an unknown key, no URL, or no instance."""
        super().__init__()
        config, given = {**_configured(settings), **_configured(env_config)}, dict(extras or {})
        url = config.get("url") or os.environ.get("SANDBOX_URL", "")
        if not url:
            raise SettingsError("no URL of the service: register `url`, give it in env_config, or set SANDBOX_URL")
        if not given.get("instance_id"):
            raise SettingsError("the data set's rows need the column instance_id")
        faults = config.get("faults", _FAULTS[0])
        if faults not in _FAULTS:
            raise SettingsError(f"faults: {faults!r} is not one of {', '.join(_FAULTS)}")
        self._client = BlockingClient(url, api_key=config.get("api_key"), run=config.get("run"))
        self._instance = str(given["instance_id"])
        self.max_turns = int(given.get("max_turns") or config.get("max_turns") or _MAX_TURNS)
        self._raises = faults == "raise"
        self._is_answer = is_answer
        self._sid = ""
        self._closed = False
        self._reward: Reward | None = None
        self._fault = ""
        self._answered = False

    def init(self, prompt: ConversationType) -> tuple[ConversationType, dict[str, Any]]:
        """Start the session; return the data set's prompt unchanged."""
        try:
            self._sid = self._client.start(self._instance)
        except SandboxError as error:
            self._failed(error)  # the first step ends the rollout
        return prompt, {"sid": self._sid, "instance_id": self._instance}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Run a turn. An answer, or turn number `max_turns`, ends the rollout: it is graded and gets the reward."""
        self.turns += 1
        observation = "" if self._fault else self._act(action)
        self._answered = is_recorded(observation) or (self._is_answer is not None and self._is_answer(action))
        done = bool(self._fault) or self._answered or self.turns >= self.max_turns
        if done and not self._fault:
            self._grade()
        reward = self._reward.reward if self._reward is not None and not self._fault else 0.0
        return BaseTextEnvStepOutput(
            observations=[] if done else [{"role": "user", "content": observation}],
            reward=reward,
            done=done,
            metadata={"sid": self._sid, "mask": bool(self._fault), "cause": self._fault, **self._items()},
            postprocessed_action=None,  # given a text, SkyRL would train on its tokens instead of the sampled ones
        )

    def _act(self, action: str) -> str:
        try:
            seen = self._client.act(self._sid, action)
        except SandboxError as error:
            self._failed(error)
            return ""
        if seen.error is not None:
            self._failed(seen.error.detail)
        elif not is_reply(seen.content):
            self._failed(_OTHER_DIALECT)
        return seen.content

    def _grade(self) -> None:
        """Get the reward, which ends the session."""
        try:
            reward = self._reward = self._client.reward(self._sid)
        except SandboxError as error:
            self._failed(error)
            return
        if reward.mask:
            self._failed(f"{reward.verdict}: {reward.cause}")

    def _failed(self, why: object) -> None:
        self._fault = str(why)
        _LOGGER.error("rollout of %s (session %s) is masked: %s", self._instance, self._sid or "none", why)
        if self._raises:
            self.close()
            raise RolloutFault(self._fault)

    def _items(self) -> dict[str, float]:
        return {} if self._reward is None else dict(self._reward.items)

    def get_metrics(self) -> dict[str, Any]:
        """Metrics of the rollout: turns, whether the policy answered, whether it is masked, its reward's items."""
        graded = {f"reward/{name}": value for name, value in self._items().items()}
        return {
            "turns": self.turns,
            "answered": float(self._answered),
            "masked": float(bool(self._fault)),
            **graded,
        }

    def close(self) -> None:
        """End the session. Idempotent; a fault is only logged, since the service ends idle sessions itself."""
        if self._closed or not self._sid:
            return
        self._closed = True
        try:
            self._client.finish(self._sid)
        except SandboxError as error:
            _LOGGER.error("session %s could not be finished: %s", self._sid, error)


def _configured(given: object) -> dict[str, Any]:
    """The settings in a mapping (omegaconf's too) or a dataclass. Raises SettingsError: a key is unknown."""
    if dataclasses.is_dataclass(given) and not isinstance(given, type):
        found = {field.name: getattr(given, field.name) for field in dataclasses.fields(given)}
    elif isinstance(given, Mapping):
        found = {str(key): given[key] for key in given}
    elif given is None:
        found = {}
    else:
        raise SettingsError(f"env_config is neither a mapping nor a dataclass: {type(given).__name__}")
    if unknown := sorted(found.keys() - _KEYS):
        raise SettingsError(f"unknown settings {', '.join(unknown)}; there are {', '.join(sorted(_KEYS))}")
    return {key: value for key, value in found.items() if value is not None}
