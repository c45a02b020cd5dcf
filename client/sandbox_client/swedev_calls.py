"""The three calls of veRL's swedev task, and their URLs.

Plain functions that send immediately. They fail as upstream does: they print a line and give None.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from sandbox_client import environment, swedev_ends, swedev_manager
from sandbox_client.background import background
from sandbox_client.hosts import MEMORY, Round, parse_host
from sandbox_client.reply import Reply
from sandbox_client.swedev_wire import PATHS, submit, total_s

_LOGGER = logging.getLogger(__name__)

DEAD_SID = "0"
"""The sid of a session that could not be started (SANDBOX_DEAD_SESSIONS); as an int it is falsy."""
_DEAD_OBSERVATION = "ERROR: the sandbox of this session could not be started; no command can be run in it."


def get_api(type: str) -> str:
    """The URL of "start", "action", "postprocess" or "reward" on a random host of SANDBOX_URL.

    Avoids hosts that recently did not answer a call of this process, unless no host is healthy. The URL contains user
    and password, for callers that send the request themselves; do not print it.
    """
    if type not in PATHS:
        raise AssertionError(f"no such API: {type!r}; one of {', '.join(PATHS)}")
    urls = environment.base_urls()
    hosts = {parse_host(url): url for url in urls}
    if type == "reward" and swedev_manager.rebind_imported():
        # this request was made by upstream's code, which tries only once, on one host: check the hosts first
        _look(urls, at_all=True).result()
    elif any(MEMORY.failed_at(host.url) is not None for host in hosts):
        _look(urls, at_all=False)
    return hosts[Round(list(hosts)).next()] + PATHS[type]


def _look(urls: list[str], *, at_all: bool) -> Future[None]:
    home = background()

    async def look() -> None:
        transport = home.transport(urls)
        await (transport.look_at_all() if at_all else transport.look_again())

    return home.submit(look())


def initialize_runtime(*arguments: Any) -> Reply:
    """Start a session: `(instance_hash)` gives the answer's dict, `(index, instance_hash)` gives `(index, dict)`.

    Connection errors, 503 and 429 are retried for the whole 600 s. A start that still fails gives None, unless
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

    return _call("Initializing", "start", {"instance_hash": _plain(instance)}, then=finished, sent=swedev_ends.started)


def call_observation_api(sid: Any, text: str) -> Reply:
    """Run an action; the dict has `content`. The action runs once even if it is resent after a fault."""
    if environment.dead_sessions() and str(_plain(sid)) == DEAD_SID:
        return _without_a_call({"content": _DEAD_OBSERVATION})
    swedev_ends.acted(_plain(sid))
    return _call(
        "Observation",
        "action",
        {"sid": _plain(sid), "content": text},
        then=_wrapped if environment.chat_wrap() else _as_it_is,
    )


def call_postprocess_api(sid: Any) -> Reply:
    """End a session, which queues its grading."""
    if environment.dead_sessions() and str(_plain(sid)) == DEAD_SID:
        return _without_a_call({})
    return _call("Postprocess", "postprocess", {"sid": _plain(sid)}, then=_as_it_is, sent=swedev_ends.ending)


def _call(
    stage: str,
    api: str,
    body: dict[str, Any],
    *,
    then: Callable[[dict[str, Any] | None], Any],
    sent: Callable[[Future[Any]], None] | None = None,
) -> Reply:
    """Send a request; `then` converts its answer (None: it failed), `sent` gets the future of the raw answer."""
    answer = submit(api, body)
    if sent is not None:
        sent(answer)
    finished: Future[Any] = Future()

    def arrived(done: Future[dict[str, Any]]) -> None:
        try:
            finished.set_result(then(_answer_or_none(stage, done)))
        except Exception as error:  # noqa: BLE001  # the reply must not raise, nor stay unresolved
            print(f"{stage} - {type(error).__name__}: {error}")  # noqa: T201  # as upstream
            finished.set_result(None)

    answer.add_done_callback(arrived)
    return Reply(finished, timeout_s=total_s(api)).block_if_nobody_can_await()


def _answer_or_none(stage: str, done: Future[dict[str, Any]]) -> dict[str, Any] | None:
    if done.cancelled():
        return None
    if error := done.exception():
        print(f"{stage} - API call failed: {error}")  # noqa: T201  # as upstream: it is where veRL users look
        return None
    return done.result()


def _without_a_call(answer: dict[str, Any]) -> Reply:
    finished: Future[Any] = Future()
    finished.set_result(answer)
    return Reply(finished, timeout_s=1.0)


def _as_it_is(answer: dict[str, Any] | None) -> dict[str, Any] | None:
    return answer


def _wrapped(answer: dict[str, Any] | None) -> dict[str, Any] | None:
    """Wrap the observation in a user turn of the Qwen chat format, and open the next assistant turn."""
    if answer is None or not isinstance(answer.get("content"), str):
        return answer
    content = f"\n<|im_start|>user\n{answer['content']}<|im_end|>\n<|im_start|>assistant\n"
    return {**answer, "content": content}


def _plain(value: Any) -> Any:
    """A tensor's number; any other value unchanged."""
    return value.item() if hasattr(value, "item") else value
