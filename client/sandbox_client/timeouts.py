"""How long calls may take: each attempt a little longer than the service's own bound, all attempts of a call together.

A service with other bounds (SANDBOX_COMMAND_TIMEOUT_S and the like) needs others here: the variables below.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields

from sandbox_client.errors import SettingsError

CONNECT_S = 3.0
"""SANDBOX_CONNECT_TIMEOUT_S: a host in the same network that is there accepts within milliseconds."""

_VARIABLES = {
    "start_attempt_s": "SANDBOX_START_ATTEMPT_S",
    "action_attempt_s": "SANDBOX_ACTION_ATTEMPT_S",
    "finish_attempt_s": "SANDBOX_POSTPROCESS_ATTEMPT_S",
    "reward_attempt_s": "SANDBOX_REWARD_ATTEMPT_S",
    "reward_total_s": "SANDBOX_REWARD_TOTAL_S",
    "retry_s": "SANDBOX_RETRY_S",
    "reward_retry_s": "SANDBOX_REWARD_RETRY_S",
}


@dataclass(frozen=True)
class Timeouts:
    """Seconds. Each call, with all its retries, ends within its own; an attempt that takes longer goes elsewhere."""

    start_s: float = 600.0
    action_s: float = 300.0
    finish_s: float = 600.0
    reward_s: float = 600.0
    """One question; the service itself answers `pending` after 280."""
    reward_total_s: float = 3600.0
    """How long a `pending` reward is asked again."""
    retry_s: float = 60.0
    """How long anything but a start is tried again while the service is away; a start: all of its own."""
    reward_retry_s: float = 300.0
    """As `retry_s`, of a reward: what is lost there is a whole rollout."""
    start_attempt_s: float = 310.0
    action_attempt_s: float = 120.0
    finish_attempt_s: float = 130.0
    reward_attempt_s: float = 290.0

    @classmethod
    def of_environment(cls) -> Timeouts:
        """The defaults, with those that the environment names. Raises SettingsError."""
        known = {one.name for one in fields(cls)}
        return cls(
            **{
                name: seconds(variable, 0.0)
                for name, variable in _VARIABLES.items()
                if name in known and os.environ.get(variable, "").strip()
            }
        )


def connect_s() -> float:
    """SANDBOX_CONNECT_TIMEOUT_S."""
    return seconds("SANDBOX_CONNECT_TIMEOUT_S", CONNECT_S)


def seconds(variable: str, default: float) -> float:
    """A variable that is a number of seconds above 0. Raises SettingsError."""
    text = os.environ.get(variable, "").strip()
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise SettingsError(f"{variable} is not a number of seconds above 0: {text!r}")
    return value
