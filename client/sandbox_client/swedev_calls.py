"""The three calls of veRL's swedev task, and the address they go to.

Plain functions: the call itself sends. They fail as upstream does, by a printed line and None.
"""

from __future__ import annotations

import logging
import random
import uuid
from collections.abc import Callable
from typing import Any

from sandbox_client import environment
from sandbox_client.background import background
from sandbox_client.reply import Reply

_LOGGER = logging.getLogger(__name__)
_DICE = random.SystemRandom()  # the global source is the trainer's, seeded

_PATHS = {
    "start": "/start_instance",
    "action": "/process_action",
    "postprocess": "/postprocess",
    "reward": "/compute_reward",
}
_START_S = 600.0
_ACTION_S = 300.0
_POSTPROCESS_S = 600.0
_RETRY_S = 60.0  # a restart of the service takes seconds; a rollout should not wait minutes for one that is gone

DEAD_SID = "0"
"""The sid of a session that could not be started (SANDBOX_DEAD_SESSIONS); as an int it is falsy."""
_DEAD_OBSERVATION = "ERROR: the sandbox of this session could not be started; no command can be run in it."


def get_api(type: str) -> str:
    """The URL of "start", "action", "postprocess" or "reward", on one of SANDBOX_URL's hosts, at random.

    Holds the base URL's user and password, for callers that send it themselves; do not print it.
    """
    if type not in _PATHS:
        raise AssertionError(f"no such API: {type!r}; one of {', '.join(_PATHS)}")
    return _DICE.choice(environment.base_urls()) + _PATHS[type]


def initialize_runtime(*arguments: Any) -> Reply:
    """Start a session: `(instance_hash)` gives the answer's dict, `(index, instance_hash)` gives `(index, dict)`.

    Connection errors and 503 are tried again for the whole 600 s. A start that still fails is None, unless
    SANDBOX_DEAD_SESSIONS is on.
    """
    *index, instance = arguments
    if len(index) > 1:
        raise TypeError("initialize_runtime takes (instance_hash) or (index, instance_hash)")

    def finished(answer: dict[str, Any] | None) -> Any:
        if answer is None and environment.dead_sessions():
            _LOGGER.error("no session could be started for %s: a dead session takes its place", _plain(instance))
            answer = {"sid": DEAD_SID, "content": _DEAD_OBSERVATION}
        return (index[0], answer) if index else answer

    return _call(
        "Initializing",
        "start",
        {"instance_hash": _plain(instance)},
        timeout_s=_START_S,
        retry_s=_START_S,
        then=finished,
    )


def call_observation_api(sid: Any, text: str) -> Reply:
    """Run an action; the dict holds `content`. Sent again after a fault, it still runs once."""
    if environment.dead_sessions() and str(_plain(sid)) == DEAD_SID:
        return _without_a_call({"content": _DEAD_OBSERVATION})
    return _call(
        "Observation",
        "action",
        {"sid": _plain(sid), "content": text},
        timeout_s=_ACTION_S,
        retry_s=_RETRY_S,
        then=_wrapped if environment.chat_wrap() else _as_it_is,
    )


def call_postprocess_api(sid: Any) -> Reply:
    """End a session; its grading begins."""
    if environment.dead_sessions() and str(_plain(sid)) == DEAD_SID:
        return _without_a_call({})
    return _call(
        "Postprocess", "postprocess", {"sid": _plain(sid)}, timeout_s=_POSTPROCESS_S, retry_s=_RETRY_S, then=_as_it_is
    )


def _call(
    stage: str,
    api: str,
    body: dict[str, Any],
    *,
    timeout_s: float,
    retry_s: float,
    then: Callable[[dict[str, Any] | None], Any],
) -> Reply:
    urls = environment.base_urls()
    home = background()

    async def request() -> Any:
        try:
            answer = await home.transport(urls).post(
                _PATHS[api],
                body,
                timeout_s=timeout_s,
                retry_s=retry_s,
                idempotency_key=uuid.uuid4().hex if api == "action" else "",
            )
        except Exception as error:  # noqa: BLE001  # the contract: print and None, whatever it was
            print(f"{stage} - API call failed: {error}")  # noqa: T201  # as upstream: it is where veRL users look
            return then(None)
        return then(answer)

    return Reply(home.submit(request()), timeout_s=timeout_s).block_if_nobody_can_await()


def _without_a_call(answer: dict[str, Any]) -> Reply:
    async def request() -> dict[str, Any]:
        return answer

    return Reply(background().submit(request()), timeout_s=1.0)


def _as_it_is(answer: dict[str, Any] | None) -> dict[str, Any] | None:
    return answer


def _wrapped(answer: dict[str, Any] | None) -> dict[str, Any] | None:
    """A user turn, and the header of the next assistant turn, around the observation of a Qwen-format chat."""
    if answer is None or not isinstance(answer.get("content"), str):
        return answer
    content = f"\n<|im_start|>user\n{answer['content']}<|im_end|>\n<|im_start|>assistant\n"
    return {**answer, "content": content}


def _plain(value: Any) -> Any:
    """A tensor's number; everything else as it is."""
    return value.item() if hasattr(value, "item") else value
