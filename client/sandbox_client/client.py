"""The typed client: start, act, finish, reward."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from sandbox_client import environment
from sandbox_client.answers import CommandResult, Observation, Reward
from sandbox_client.errors import BadAnswer, SandboxError
from sandbox_client.hashing import instance_hash
from sandbox_client.transport import Transport, parse_host

_LOGGER = logging.getLogger(__name__)
_PENDING_PAUSE_S = 1.0


@dataclass(frozen=True)
class Timeouts:
    """Seconds. Each call, with all its retries, ends within its own."""

    start_s: float = 600.0
    action_s: float = 300.0
    finish_s: float = 600.0
    reward_s: float = 300.0
    """One request; the service itself answers `pending` before."""
    reward_total_s: float = 3600.0
    """How long a `pending` reward is asked again."""
    retry_s: float = 60.0
    """How long anything but a start is tried again while the service is away; a start: all of its own."""


class SandboxClient:
    """Talks to one service, by one base URL or several equal ones.

    Use it on one event loop, with `async with` or `aclose()`.

    A base URL may hold a path prefix, and a user and password (the password is the API key).
    """

    def __init__(
        self,
        base_url: str | Sequence[str],
        *,
        api_key: str | None = None,
        run: str | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        """`api_key` is sent as Bearer to every host; `run` names this trainer, SANDBOX_RUN where it is None.

        Runs share the service evenly. Raises SettingsError for a URL or a name that is none.
        """
        urls = [base_url] if isinstance(base_url, str) else list(base_url)
        named = environment.run() if run is None else run
        self._transport = Transport([parse_host(url, api_key) for url in urls], run=named)
        self._timeouts = timeouts or Timeouts()

    async def __aenter__(self) -> SandboxClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections; sessions live on."""
        await self._transport.aclose()

    async def healthy(self) -> bool:
        """Whether at least one base URL answers /healthz within 5 s; never raises for one that does not."""
        return await self._transport.healthy(timeout_s=5.0)

    async def start(self, instance: str | int) -> str:
        """Start a session of an instance, by its id or its hash (an int, or its digits), and give the sid.

        Raises:
            UnknownInstance, Ungradable, NoCapacity, Unreachable, CallTimedOut.
        """
        timeout_s = self._timeouts.start_s
        answer = await self._transport.post(
            "/start_instance", {"instance_hash": _number(instance)}, timeout_s=timeout_s, retry_s=timeout_s
        )
        if not isinstance(answer.get("sid"), (str, int)):
            raise BadAnswer("the answer to a start holds no sid")
        return str(answer["sid"])

    async def start_group(self, instance: str | int, n: int) -> list[str]:
        """Start `n` sessions of one instance at once, prepared together; the sids of those there was room for.

        Raises:
            As `start`, when there was room for none.
        """
        timeout_s = self._timeouts.start_s
        answer = await self._transport.post(
            "/v1/groups", {"instance": _number(instance), "n": n}, timeout_s=timeout_s, retry_s=timeout_s
        )
        sids = answer.get("sids")
        if not isinstance(sids, list) or not sids:
            raise BadAnswer("the answer to a group's start holds no sids")
        return [str(sid) for sid in sids]

    async def look_ahead(self, instances: Sequence[str | int]) -> int:
        """Say which instances will be started next, the next one first, so that they start at once by then.

        Gives how many are being prepared; those that the service does not know, or has no room for, are logged.
        """
        answer = await self._transport.post(
            "/v1/lookahead",
            {"instances": [_number(instance) for instance in instances]},
            timeout_s=self._timeouts.action_s,
            retry_s=self._timeouts.retry_s,
        )
        if answer.get("unknown") or answer.get("dropped"):
            _LOGGER.warning("not prepared ahead: unknown %s, no room for %s", answer["unknown"], answer["dropped"])
        if not isinstance(answer.get("queued"), int):
            raise BadAnswer("the answer to a look ahead holds no count")
        return int(answer["queued"])

    async def act(self, sid: str, content: str) -> Observation:
        """Run what the policy emitted, once, however often it must be sent; the policy's mistakes are in the text."""
        answer = await self._transport.post(
            "/process_action",
            {"sid": sid, "content": content},
            timeout_s=self._timeouts.action_s,
            retry_s=self._timeouts.retry_s,
            idempotency_key=uuid.uuid4().hex,
        )
        return Observation.from_wire(answer)

    async def exec(
        self, sid: str, commands: Sequence[str | Mapping[str, Any]], *, timeout_s: float | None = None
    ) -> list[CommandResult]:
        """Run commands in parallel, each in a fresh bash at the repository; the results in their order.

        A command is its text, or `{"command", "timeout_s", "cwd", "env"}`; `timeout_s` is for those that name none.

        Raises:
            UnknownSession, RequestRejected; ServiceFault: says nothing about the commands.
        """
        body: dict[str, Any] = {"commands": list(commands)}
        if timeout_s is not None:
            body["timeout_s"] = timeout_s
        answer = await self._transport.post(
            f"/v1/sessions/{sid}/exec",
            body,
            timeout_s=self._timeouts.action_s,
            retry_s=self._timeouts.retry_s,
            idempotency_key=uuid.uuid4().hex,
        )
        results = answer.get("results")
        if not isinstance(results, list) or len(results) != len(commands):
            raise BadAnswer("the answer to a batch does not hold a result for each command")
        return [CommandResult.from_wire(result) for result in results]

    async def finish(self, sid: str) -> None:
        """End the session: its patch is kept, its container goes, its grading begins. May be repeated."""
        await self._transport.post(
            "/postprocess", {"sid": sid}, timeout_s=self._timeouts.finish_s, retry_s=self._timeouts.retry_s
        )

    async def reward(self, sid: str) -> Reward:
        """The session's reward; ends the session if it is still live.

        A `pending` verdict is asked again until `reward_total_s` have passed, then given as it is (its `mask` is true).
        """
        give_up = time.monotonic() + self._timeouts.reward_total_s
        while True:
            answer = await self._transport.post(
                "/compute_reward", {"sid": sid}, timeout_s=self._timeouts.reward_s, retry_s=self._timeouts.retry_s
            )
            reward = Reward.from_wire(answer)
            if reward.verdict != "pending" or time.monotonic() + _PENDING_PAUSE_S > give_up:
                return reward
            await asyncio.sleep(_PENDING_PAUSE_S)

    @asynccontextmanager
    async def session(self, instance: str | int) -> AsyncIterator[Session]:
        """Start a session, and finish it on the way out, also after an exception or a cancellation."""
        session = Session(self, await self.start(instance))
        try:
            yield session
        except BaseException:
            try:
                await session.finish()
            except SandboxError as error:  # the first exception is the one to see; the service's idle limit cleans up
                _LOGGER.error("session %s could not be finished: %s", session.sid, error)
            raise
        await session.finish()


def _number(instance: str | int) -> int:
    return int(instance) if isinstance(instance, int) or instance.isdecimal() else instance_hash(instance)


class Session:
    """One rollout of a client."""

    def __init__(self, client: SandboxClient, sid: str) -> None:
        """Made by `SandboxClient.session`."""
        self.sid = sid
        self._client = client
        self._finished = False

    async def act(self, content: str) -> Observation:
        """As `SandboxClient.act`."""
        return await self._client.act(self.sid, content)

    async def exec(
        self, commands: Sequence[str | Mapping[str, Any]], *, timeout_s: float | None = None
    ) -> list[CommandResult]:
        """As `SandboxClient.exec`."""
        return await self._client.exec(self.sid, commands, timeout_s=timeout_s)

    async def finish(self) -> None:
        """As `SandboxClient.finish`; a second call sends nothing."""
        if not self._finished:
            await self._client.finish(self.sid)
            self._finished = True

    async def reward(self) -> Reward:
        """As `SandboxClient.reward`."""
        return await self._client.reward(self.sid)
