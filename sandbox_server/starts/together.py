"""Several starts that succeed or fail as one request."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence

from sandbox_server import telemetry
from sandbox_server.errors import ServiceError

log = telemetry.logger(__name__)


async def together(
    starts: Sequence[Coroutine[None, None, str]], close: Callable[[str], Awaitable[object]]
) -> tuple[list[str], list[ServiceError]]:
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
