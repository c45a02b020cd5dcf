"""Send the drop-in's requests of the swedev protocol: paths, timeouts, required keys of the answers."""

from __future__ import annotations

import uuid
from concurrent.futures import Future
from typing import Any

from sandbox_client import environment, runs
from sandbox_client.background import background
from sandbox_client.timeouts import Timeouts

PATHS = {
    "start": "/start_instance",
    "action": "/process_action",
    "postprocess": "/postprocess",
    "reward": "/compute_reward",
}
_KEYED = ("start", "action")
"""Calls with an idempotency key, so that they happen once even if resent."""
_ANY_OF = {"start": ("sid",), "action": ("content",), "reward": ("reward", "f2p_count")}
"""A 200 without any of these keys is not from the service but from a balancer or the like. Upstream would end the batch
after such a start, turn such a reward into 0.0, and show the policy an "Error" for an action that was never run."""


def total_s(api: str) -> float:
    """Timeout of a request of `api` in seconds, including all its retries."""
    return _bounds(api)[0]


def submit(api: str, body: dict[str, Any]) -> Future[dict[str, Any]]:
    """Start a request at once; call it from any thread but the background's. The future raises SandboxError.

    Raises:
        SettingsError.
    """
    urls = environment.base_urls()
    timeout_s, retry_s, attempt_s = _bounds(api)
    key = uuid.uuid4().hex if api in _KEYED else ""
    home = background()
    runs.keep_alive()

    async def request() -> dict[str, Any]:
        return await home.transport(urls).post(
            PATHS[api],
            body,
            timeout_s=timeout_s,
            retry_s=retry_s,
            attempt_s=attempt_s,
            idempotency_key=key,
            any_of=_ANY_OF.get(api, ()),
        )

    return home.submit(request())


def _bounds(api: str) -> tuple[float, float, float]:
    """Timeouts in seconds: the whole call, the last start of an attempt, one attempt."""
    known = Timeouts.of_environment()
    return {
        "start": (known.start_s, known.start_s, known.start_attempt_s),
        "action": (known.action_s, known.retry_s, known.action_attempt_s),
        "postprocess": (known.finish_s, known.retry_s, known.finish_attempt_s),
        "reward": (known.reward_s, known.reward_retry_s, known.reward_attempt_s),
    }[api]
