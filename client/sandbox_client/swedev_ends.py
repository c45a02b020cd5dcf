"""End the sessions that an unmodified veRL leaves open, and wait for postprocess requests that nobody awaits.

If a rollout's task is cancelled or fails, or its loop stops, it never reaches its own postprocess call, and its session
would keep its slot until the service's idle timeout.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from concurrent.futures import Future, wait
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from sandbox_client.swedev_wire import submit, total_s

_LOGGER = logging.getLogger(__name__)


class _Known:
    """State of this process. A forked child starts empty, because the rollouts belong to its parent."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sessions: WeakKeyDictionary[asyncio.Task[Any], dict[str, Future[Any]]] = WeakKeyDictionary()
        """For each task that runs a rollout: answers that contain its sid."""
        self.ends: set[Future[Any]] = set()


_known = _Known()


def started(start: Future[Any]) -> None:
    """Record that the current task requested a session; `start` gives the answer's dict, or None."""
    _belongs(f"start {id(start)}", start)


def acted(sid: Any) -> None:
    """Record that the current task acts in the session."""
    answer: Future[Any] = Future()
    answer.set_result({"sid": sid})
    _belongs(str(sid), answer)


def ending(end: Future[Any]) -> None:
    """Record a pending request that ends a session, for `wait_for_ends`."""
    with _known.lock:
        _known.ends.add(end)
    end.add_done_callback(_arrived)


def wait_for_ends() -> None:
    """Block until all pending postprocess requests are answered, or their time limit has passed."""
    with _known.lock:
        ends = list(_known.ends)
    if ends:
        wait(ends, timeout=total_s("postprocess"))


async def ends_arrived() -> None:
    """As `wait_for_ends`, for a running loop."""
    with _known.lock:
        ends = list(_known.ends)
    if ends:
        await asyncio.wait([asyncio.wrap_future(end) for end in ends], timeout=total_s("postprocess"))


def _arrived(end: Future[Any]) -> None:
    with _known.lock:
        _known.ends.discard(end)


def _belongs(name: str, answer: Future[Any]) -> None:
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return  # no loop runs here, so nothing can be cancelled
    if task is None:
        return
    with _known.lock:
        sessions = _known.sessions.get(task)
        if sessions is None:
            sessions = _known.sessions[task] = {}
            task.add_done_callback(_over)
        sessions.setdefault(name, answer)


def _over(task: asyncio.Task[Any]) -> None:
    with _known.lock:
        sessions = _known.sessions.pop(task, {})
    if task.cancelled() or task.exception() is not None:
        _end_all(sessions)


def _end_all(sessions: dict[str, Future[Any]]) -> None:
    end = partial(_end, set())
    for answer in sessions.values():
        answer.add_done_callback(end)  # a start that is still pending is ended once it is answered


def _end(sids: set[str], answer: Future[Any]) -> None:
    """End the session unless it is in `sids`; harmless if it was already ended."""
    found = None if answer.cancelled() or answer.exception() else answer.result()
    sid = found.get("sid") if isinstance(found, dict) else None
    if sid is None or str(sid) == "0" or str(sid) in sids:
        return
    sids.add(str(sid))
    _LOGGER.warning("the rollout of session %s was cut off; its session ends", sid)
    try:
        end = submit("postprocess", {"sid": sid})
    except Exception as error:  # noqa: BLE001  # in a callback; the service's idle timeout ends the session
        _LOGGER.error("session %s could not be ended: %s", sid, error)
        return
    ending(end)
    end.add_done_callback(lambda done: _tell(sid, done))


def _tell(sid: Any, end: Future[Any]) -> None:
    if not end.cancelled() and (error := end.exception()):
        _LOGGER.error("session %s could not be ended: %s", sid, error)


def _at_exit() -> None:
    """End the sessions of unfinished rollouts; the background waits a moment for these requests."""
    with _known.lock:
        rollouts = list(_known.sessions.values())
        _known.sessions.clear()
    for sessions in rollouts:
        _end_all({name: answer for name, answer in sessions.items() if answer.done()})


def _after_fork() -> None:
    _known.__init__()  # type: ignore[misc]  # in place, because other modules may have imported the name


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
