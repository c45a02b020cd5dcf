"""Awaiting versions of two functions of `verl.workers.agentic.tasks`.

veRL's `swe_dev_obs` never awaits its request, so each action blocks the rollout worker's loop and the actions of a
batch run one after the other. These do not block the loop, and return the same values.
"""

from __future__ import annotations

from typing import Any

from sandbox_client.swedev_calls import call_observation_api, call_postprocess_api
from sandbox_client.swedev_text import is_stop


async def swe_dev_obs(action_ids: Any, sid: Any, tokenizer: Any, **_: Any) -> dict[str, Any]:
    """Run one turn, from action tokens to observation tokens; a failed call gives the text "Error", as upstream."""
    action = tokenizer.decode(action_ids, skip_special_tokens=False)
    if is_stop(action):
        return {"done": True, "ids": [], "observation_times": 0}
    result = await call_observation_api(sid, action)
    content = result.get("content") if isinstance(result, dict) else None
    observation = content if isinstance(content, str) else "Error"
    return {"done": False, "ids": tokenizer.encode(observation), "observation_times": 1}


async def swe_dev_end(sid: Any, _done: Any) -> None:
    """End a rollout, without an executor thread for each."""
    await call_postprocess_api(sid)
