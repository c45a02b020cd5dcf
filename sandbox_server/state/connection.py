"""The two ways to talk to Redis. Every exchange has a deadline, and every fault becomes a StateUnavailable.

Exchanges needed by each action go over the single connection of `Pipeline`. Large or rare ones (moving the journal to
SQL, lists of sessions) go over redis-py's pool, so that they do not delay actions.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Sequence
from typing import Any, cast

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoPermissionError, RedisError

from sandbox_server.errors import StateUnavailable
from sandbox_server.state.pipeline import WHAT_NEXT, ErrorAnswer, Pipeline, Word, packed

_CONNECTIONS = 16
"""Size of the pool of one process."""
_CHECKED_S = 60
_ADVICE = {
    "used memory > 'maxmemory'": "its memory is full: raise it, or lower SANDBOX_RESULT_TTL_S",
    "MISCONF": "free space on its disk",
    "read only replica": "it is a replica: SANDBOX_REDIS_URL has to name the primary",
}
"""Word of an error reply -> what its operator can do."""


class Script:
    """A Lua script, sent by its digest; the text itself is sent once per Redis."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class Connection:
    """The connections to one Redis."""

    def __init__(self, url: str, *, timeout_s: float, outage_s: float = 0.0) -> None:
        """`url`: redis://, rediss:// or unix://. `timeout_s` bounds each exchange, including connecting.

        `outage_s`: how long `send` and `script` wait for an unavailable Redis before they fail.
        """
        self.timeout_s = timeout_s
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=_CONNECTIONS,
            timeout=timeout_s,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            encoding_errors="surrogatepass",  # a cwd may hold bytes that are not UTF-8
            # Retry once at once: a connection that died while idle is noticed only when it is used. Every script here
            # gives the same result if it arrives twice.
            retry=Retry(NoBackoff(), 1),
        )
        self.redis = Redis(connection_pool=pool)
        pattern: AbstractConnection = pool.make_connection()  # type: ignore[no-untyped-call] # redis-py leaves it bare
        self._pipeline = Pipeline(pattern, timeout_s, outage_s)

    async def run(self, exchange: Awaitable[Any]) -> Any:
        """The result of a redis-py exchange; with this pool bytes, never str.

        Raises:
            StateUnavailable: no answer in time, no connection, or an error reply.

        """
        task = cast(asyncio.Task[object], asyncio.current_task())
        cancelled_before = task.cancelling()
        try:
            async with asyncio.timeout(self.timeout_s):
                try:
                    return await exchange
                finally:
                    # seen with redis-py 8.1: a cancellation during connecting is swallowed, and with it the caller's
                    # timeout or the shutdown
                    if task.cancelling() > cancelled_before:
                        raise asyncio.CancelledError
        except TimeoutError:
            raise StateUnavailable(f"Redis gave no answer within {self.timeout_s:g} s.") from None
        except (RedisError, OSError) as error:
            raise _unavailable(error, WHAT_NEXT) from error

    async def send(self, *words: Word) -> Any:
        """Send one command; the reply is bytes, int, None or a list. Raises StateUnavailable."""
        try:
            return await self._pipeline.exchange(packed(words))
        except ErrorAnswer as error:
            raise _unavailable(error) from error

    async def send_all(self, commands: Sequence[Sequence[Word]]) -> list[Any]:
        """Send commands at once, as `send` does one; their replies in order. Raises StateUnavailable."""
        if len(commands) < 2:
            return [await self.send(*words) for words in commands]
        try:
            found: list[Any] = await self._pipeline.exchange(b"".join(map(packed, commands)), len(commands))
        except ErrorAnswer as error:
            raise _unavailable(error) from error
        return found

    async def script(self, script: Script, keys: Sequence[str], args: Sequence[Word]) -> Any:
        """Run a script in one round trip. Raises StateUnavailable."""
        try:
            return await self._pipeline.exchange(packed(("EVALSHA", script.digest, len(keys), *keys, *args)))
        except ErrorAnswer as error:
            if not str(error).startswith("NOSCRIPT"):
                raise _unavailable(error) from error
        return await self.send("EVAL", script.text, len(keys), *keys, *args)  # a new Redis does not have the script yet

    async def check(self, key: str) -> None:
        """Write `key`, for a minute.

        Raises:
            StateUnavailable: Redis does not answer, or takes no writes now. The end of an outage is not waited for.
        """
        await self.run(self.redis.set(key, "1", ex=_CHECKED_S))

    async def unfit(self) -> str:
        """Why this Redis must not hold sessions, and what to do; "": nothing is wrong. Raises StateUnavailable.

        Uses INFO, because hosted Redis services refuse CONFIG. Also "" if the Redis user may not call INFO.
        """
        try:
            facts = await self.run(self.redis.info())
        except StateUnavailable as error:
            if isinstance(error.__cause__, NoPermissionError):
                return ""
            raise
        policy = facts.get("maxmemory_policy", "noeviction")
        if facts.get("maxmemory", 0) and policy != "noeviction":
            return f"it drops live sessions once its memory is full (maxmemory-policy {policy}): set it to noeviction"
        if facts.get("redis_mode") == "cluster":
            return "it is a Redis Cluster: use one Redis, or one primary with replicas"
        return ""

    async def close(self) -> None:
        """Close all connections."""
        self._pipeline.close()
        await self.redis.aclose()
        await self.redis.connection_pool.disconnect()


def _unavailable(error: Exception, otherwise: str = "") -> StateUnavailable:
    said = str(error) or type(error).__name__
    advice = next((f"; {what}" for word, what in _ADVICE.items() if word in said), otherwise)
    return StateUnavailable(f"Redis: {said}{advice}")
