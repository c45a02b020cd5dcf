"""The endpoints of the swedev protocol, as the drop-in calls them: paths, bounds, a request on the background."""

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
"""What must happen once however often it is sent."""
_ANY_OF = {"start": ("sid",), "action": ("content",), "reward": ("reward", "f2p_count")}
"""A 200 without any of these keys came from something else, such as a balancer. Upstream would end the batch for such a
start, make such a reward 0.0, and such an action, which was never run, an "Error"."""


def total_s(api: str) -> float:
    """Seconds after which a request of `api` has ended, with all its retries."""
    return _bounds(api)[0]


def submit(api: str, body: dict[str, Any]) -> Future[dict[str, Any]]:
    """Put a request in flight now, from any thread but the background's; its future raises SandboxError.

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
    """Seconds: for all of it, within which attempts begin, for one attempt."""
    known = Timeouts.of_environment()
    return {
        "start": (known.start_s, known.start_s, known.start_attempt_s),
        "action": (known.action_s, known.retry_s, known.action_attempt_s),
        "postprocess": (known.finish_s, known.retry_s, known.finish_attempt_s),
        "reward": (known.reward_s, known.reward_retry_s, known.reward_attempt_s),
    }[api]
