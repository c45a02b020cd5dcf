"""Awaiting versions of two functions of `verl.workers.agentic.tasks`.

Unchanged, `swe_dev_obs` never awaits its request, so each action blocks the rollout worker's loop and the actions of a
batch run one after the other. These yield the loop, and answer the same.
"""

from __future__ import annotations

from typing import Any

from sandbox_client.swedev_calls import call_observation_api, call_postprocess_api
from sandbox_client.swedev_text import is_stop


async def swe_dev_obs(action_ids: Any, sid: Any, tokenizer: Any, **_: Any) -> dict[str, Any]:
    """One turn: the action's tokens in, the observation's out; a failed call is the text "Error", as upstream."""
    action = tokenizer.decode(action_ids, skip_special_tokens=False)
    if is_stop(action):
        return {"done": True, "ids": [], "observation_times": 0}
    result = await call_observation_api(sid, action)
    content = result.get("content") if isinstance(result, dict) else None
    observation = content if isinstance(content, str) else "Error"
    return {"done": False, "ids": tokenizer.encode(observation), "observation_times": 1}


async def swe_dev_end(sid: Any, _done: Any) -> None:
    """The end of a rollout, without a thread of the executor for each."""
    await call_postprocess_api(sid)
