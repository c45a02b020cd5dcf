"""Several starts that succeed or fail as one request."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence

from sandbox_server import telemetry
from sandbox_server.errors import ServiceError
from sandbox_server.state.runs import RunState

Started = tuple[list[str], list[ServiceError]]
"""Sids of the sessions that started, and the errors of those that failed."""

log = telemetry.logger(__name__)


async def start_all(starts: Sequence[Coroutine[None, None, str]], close: Callable[[str], Awaitable[object]]) -> Started:
    """Run `starts`, each of which returns a sid; return the sids, and the errors of those that failed.

    If the caller is cancelled, or all fail, the sessions that were started are ended by `close`. Raises the first error
    when none starts, and any error that is not a ServiceError.
    """
    tasks = [asyncio.create_task(start) for start in starts]
    try:
        results = await asyncio.gather(*tasks, return_exceptions=True)
    except asyncio.CancelledError:
        results = await asyncio.gather(*tasks, return_exceptions=True)  # gather has cancelled them all
        await _give_back(results, close)
        raise
    failed = [result for result in results if isinstance(result, BaseException)]
    if len(failed) == len(tasks) or not all(isinstance(error, ServiceError) for error in failed):
        await _give_back(results, close)
        raise failed[0]
    return [sid for sid in results if isinstance(sid, str)], [e for e in failed if isinstance(e, ServiceError)]


async def _give_back(results: Sequence[str | BaseException], close: Callable[[str], Awaitable[object]]) -> None:
    sids = [result for result in results if isinstance(result, str)]
    for error in await asyncio.gather(*(close(sid) for sid in sids), return_exceptions=True):
        if isinstance(error, BaseException):
            log.warning("session of a failed group left to the reaper", error=str(error))


async def idempotent_start(
    request: str,
    run_state: RunState,
    start: Callable[[], Awaitable[Started]],
    close: Callable[[str], Awaitable[object]],
) -> Started:
    """The result of `start`, or the sids with which a request of the same name was answered recently.

    `request`: the request's name; "" if it is never repeated. Of concurrent requests with one name, the first to have
    its sessions keeps them, and all return its sids; `close` ends the sessions of the others. It also ends the caller's
    own sessions if the sids cannot be stored, or if the caller is cancelled while they are stored.

    Raises:
        As `start`; StateUnavailable.
    """
    if not request:
        return await start()
    if known := await run_state.started(request):
        return known.split(), []
    sids, failed = await start()
    try:
        answer = (await run_state.answer(request, " ".join(sids))).split()
    except BaseException:
        await _give_back(sids, close)
        raise
    if answer == sids:
        return sids, failed
    await _give_back(sids, close)
    return answer, []
