"""Convert reward answers for veRL's reward manager."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any

from sandbox_client import environment

_LOGGER = logging.getLogger(__name__)
_lock = threading.Lock()
_masked: Counter[str] = Counter()


def calc_reward(reward_json: Any) -> Any:
    """`reward` unchanged, else f2p_count / f2p_total, else 0.0, as upstream.

    If `mask` is true, the reward says nothing about the policy: log an error with the cause, count it, and return
    SANDBOX_MASKED_REWARD. An unmodified veRL trains on that number.
    """
    if isinstance(reward_json, Mapping) and reward_json.get("mask") is True:
        verdict = str(reward_json.get("verdict", "unknown"))
        with _lock:
            _masked[verdict] += 1
            count = _masked.total()
        _LOGGER.error(
            "masked reward (verdict %s, receipt %s): %s; %d of this process so far; the trainer is given %s",
            verdict,
            reward_json.get("receipt") or "none",
            reward_json.get("cause") or "no cause given",
            count,
            environment.masked_reward(),
        )
        return environment.masked_reward()
    if "reward" in reward_json:
        return reward_json["reward"]
    try:
        return reward_json["f2p_count"] / reward_json["f2p_total"]
    except (KeyError, TypeError, ZeroDivisionError):
        return 0.0


def masked_rewards() -> dict[str, int]:
    """Number of masked rewards in this process, by verdict."""
    with _lock:
        return dict(_masked)
