"""One rollout as an agent loop drives it: turns in, replies out, one reward at the end. For the adapters."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from sandbox_client.answers import Reward
from sandbox_client.client import SandboxClient
from sandbox_client.errors import BadAnswer, RolloutMasked, SandboxError, SettingsError
from sandbox_client.tool_calls import is_recorded, is_reply, message, responses

_LOGGER = logging.getLogger(__name__)
_ENDED = "session_ended"
"""Code of the reply to an action after the session's end: nothing ran, and the session's reward is valid."""

_Clients = dict[tuple[str, str | None, str | None], SandboxClient]
_CLIENTS: WeakKeyDictionary[asyncio.AbstractEventLoop, _Clients] = WeakKeyDictionary()


def service_url(given: str | None) -> str:
    """`given`, else SANDBOX_URL. Raises SettingsError: neither is set."""
    url = given or os.environ.get("SANDBOX_URL", "")
    if not url:
        raise SettingsError("no URL of the service: configure `url`, or set SANDBOX_URL")
    return url


def shared_client(url: str, *, api_key: str | None = None, run: str | None = None) -> SandboxClient:
    """The running loop's client for these arguments; `url` may be several, comma-separated. See `close_shared`."""
    clients = _CLIENTS.setdefault(asyncio.get_running_loop(), {})
    key = (url, api_key, run)
    if key not in clients:
        urls = [one.strip() for one in url.split(",") if one.strip()]
        clients[key] = SandboxClient(urls, api_key=api_key, run=run)
    return clients[key]


async def close_shared() -> None:
    """Close the connections of the running loop's shared clients; sessions stay open."""
    for client in _CLIENTS.pop(asyncio.get_running_loop(), {}).values():
        await client.aclose()


@dataclass(frozen=True)
class Reply:
    """The service's answer to a turn."""

    texts: Sequence[str]
    """The results of its calls, in their order; one text for a turn without calls."""
    over: bool
    """The service says that the rollout is over: an answer is recorded, or the session has ended."""


class Rollout:
    """A session of one instance. A fault of the service raises SandboxError, and the rollout must not be trained on."""

    def __init__(self, client: SandboxClient, sid: str) -> None:
        """Use the session `sid`; see `start`."""
        self.sid = sid
        self._client = client
        self._graded = False

    @classmethod
    async def start(cls, client: SandboxClient, instance: str) -> Rollout:
        """Start a session. Raises SandboxError."""
        return cls(client, await client.start(instance))

    async def turn(self, text: str, calls: Sequence[Mapping[str, str]] = ()) -> Reply:
        """Run one turn of the policy, all of its calls in one request; each has an id, a name, and arguments as JSON.

        Raises:
            RolloutMasked: the service could not run it. BadAnswer: the instance's dialect is not `tool_calls`.
        """
        seen = await self._client.act(self.sid, message(text, calls))
        if seen.error is not None:
            if seen.error.code == _ENDED:
                return Reply([seen.content] * max(1, len(calls)), over=True)
            raise RolloutMasked(seen.error.detail or seen.content, code=seen.error.code)
        if not calls:
            return Reply([seen.content], is_recorded(seen.content))
        if not is_reply(seen.content):
            raise BadAnswer(
                "the reply does not match the calls: the instance's dialect (or SANDBOX_DIALECT) is not tool_calls"
            )
        return Reply(responses(seen.content, len(calls)), is_recorded(seen.content))

    async def grade(self) -> Reward:
        """The reward, which ends the session. Raises RolloutMasked: it says nothing about the policy."""
        reward = await self._client.reward(self.sid)
        self._graded = True
        if reward.mask:
            raise RolloutMasked(f"no reward ({reward.verdict}): {reward.cause}", code=reward.verdict)
        return reward

    async def end(self) -> None:
        """End the session unless it was graded; never raises, as the service's idle timeout ends it too."""
        if self._graded:
            return
        try:
            await self._client.finish(self.sid)
        except SandboxError as error:
            _LOGGER.error("session %s could not be finished, the service ends it when it is idle: %s", self.sid, error)
