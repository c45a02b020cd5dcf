"""Replacement for `fetch_reward` of veRL's `SWEDevRewardManager`.

Upstream's `fetch_reward` posts once to one host and turns every fault into 0.0, on which the trainer trains as if the
policy had earned it. This one retries, also on other hosts, asks again while the grading is pending, and treats a final
failure as a masked reward.
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from types import ModuleType
from typing import Any

from sandbox_client.answers import ask_again_within_s
from sandbox_client.errors import BadAnswer, SandboxError
from sandbox_client.swedev_ends import ends_arrived
from sandbox_client.swedev_rewards import calc_reward
from sandbox_client.swedev_wire import submit
from sandbox_client.timeouts import Timeouts

MODULE = "verl.workers.reward_manager.swedev"
_MANAGER = "SWEDevRewardManager"
_PENDING_PAUSE_S = 1.0


def rebind(module: ModuleType) -> bool:
    """Replace the manager's `fetch_reward`. False: it was already replaced, or there is no manager."""
    manager = getattr(module, _MANAGER, None)
    if manager is None or getattr(manager, "fetch_reward", fetch_reward) is fetch_reward:
        return False
    manager.fetch_reward = fetch_reward
    return True


def rebind_imported() -> bool:
    """As `rebind`, if the manager was imported before the import hook was installed."""
    return MODULE in sys.modules and rebind(sys.modules[MODULE])


async def fetch_reward(_manager: Any, sid: Any, *_: Any, **__: Any) -> float:
    """The session's reward; SANDBOX_MASKED_REWARD, logged and counted, if there is none. Never raises."""
    number = sid.item() if hasattr(sid, "item") else sid
    try:
        await ends_arrived()  # upstream's postprocess call blocked (f14f9923), so rewards were requested only after it
        answer = await _graded(number)
        value = calc_reward(answer)
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise BadAnswer(f"the reward of session {number} is no number: {value!r}")
        if not math.isfinite(float(value)):
            raise BadAnswer(f"the reward of session {number} is not finite: {value!r}")
        return float(value)
    except SandboxError as error:
        return _masked(number, error.code, str(error))
    except Exception as error:  # noqa: BLE001  # as upstream: one rollout must not end the step
        return _masked(number, "client_error", f"{type(error).__name__}: {error}")


def _masked(sid: Any, code: str, detail: str) -> float:
    return float(calc_reward({"mask": True, "verdict": code, "cause": f"no reward of session {sid}: {detail}"}))


async def _graded(sid: Any) -> dict[str, Any]:
    bounds, began = Timeouts.of_environment(), time.monotonic()
    while True:
        answer = await asyncio.wrap_future(submit("reward", {"sid": sid}))
        until = began + ask_again_within_s(answer.get("verdict"), answer.get("receipt"), bounds)
        if time.monotonic() + _PENDING_PAUSE_S > until:
            return answer
        await asyncio.sleep(_PENDING_PAUSE_S)
