"""Timeouts of calls: per attempt, a little longer than the service's own limit, and for all attempts of a call.

If the service's limits are changed (SANDBOX_COMMAND_TIMEOUT_S and others), set the variables below to match.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields

from sandbox_client.errors import SettingsError

CONNECT_S = 3.0
"""Default of SANDBOX_CONNECT_TIMEOUT_S; a running host in the same network accepts within milliseconds."""

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
    """Seconds. A call with all its retries ends within its timeout; after `*_attempt_s` it is retried elsewhere."""

    start_s: float = 600.0
    action_s: float = 300.0
    finish_s: float = 600.0
    reward_s: float = 600.0
    """One request; the service itself answers `pending` after 280 s."""
    reward_total_s: float = 3600.0
    """How long a `pending` reward is requested again."""
    retry_s: float = 60.0
    """How long a call is retried while the service is unavailable; a start is retried for all of `start_s`."""
    reward_retry_s: float = 300.0
    """As `retry_s`, for rewards; longer, because a lost reward loses a whole rollout."""
    start_attempt_s: float = 310.0
    action_attempt_s: float = 120.0
    finish_attempt_s: float = 130.0
    reward_attempt_s: float = 290.0

    @classmethod
    def of_environment(cls) -> Timeouts:
        """The defaults, overridden by environment variables. Raises SettingsError."""
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
    """Read a variable as a number of seconds above 0; unset: `default`. Raises SettingsError."""
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
