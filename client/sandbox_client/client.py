"""The typed client: start, act, finish, reward."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Any
from urllib.parse import quote

from sandbox_client import environment
from sandbox_client.answers import CommandResult, NextStep, Observation, Reward, ask_again_within_s
from sandbox_client.errors import BadAnswer, CallTimedOut, SandboxError, SettingsError
from sandbox_client.hashing import instance_hash
from sandbox_client.inside import Inside
from sandbox_client.timeouts import Timeouts
from sandbox_client.transport import Transport, parse_host

_LOGGER = logging.getLogger(__name__)
_PENDING_PAUSE_S = 1.0


class SandboxClient:
    """Client of one service, reached by one base URL or several equivalent ones.

    Use it on one event loop, with `async with` or `aclose()`.

    A base URL may contain a path prefix, and a user and password (the password is the API key).
    """

    def __init__(
        self,
        base_url: str | Sequence[str],
        *,
        api_key: str | None = None,
        run: str | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        """`api_key` is sent as Bearer token to every host; `run` names this trainer (None: SANDBOX_RUN).

        Runs share the service evenly. Raises SettingsError for an invalid URL or name.
        """
        urls = [base_url] if isinstance(base_url, str) else list(base_url)
        named = environment.run() if run is None else run
        self._run = named
        self._transport = Transport([parse_host(url, api_key) for url in urls], run=named)
        self._timeouts = timeouts or Timeouts.of_environment()

    async def __aenter__(self) -> SandboxClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections; sessions stay open."""
        await self._transport.aclose()

    async def healthy(self) -> bool:
        """Whether at least one base URL answers /healthz within 5 s; unreachable hosts do not raise."""
        return await self._transport.healthy(timeout_s=5.0)

    async def start(self, instance: str | int, *, after: str = "") -> str:
        """Start a session of an instance, given its id or its hash (an int, or its digits), and return the sid.

        `after`: for a later step of a task, the finished session of the step before.

        Raises:
            UnknownInstance, Ungradable, NoCapacity, Unreachable, CallTimedOut.
        """
        answer = await self._transport.post(
            "/start_instance",
            {"instance_hash": _number(instance), **({"after": after} if after else {})},
            timeout_s=self._timeouts.start_s,
            retry_s=self._timeouts.start_s,
            attempt_s=self._timeouts.start_attempt_s,
            idempotency_key=uuid.uuid4().hex,
        )
        if not isinstance(answer.get("sid"), (str, int)):
            raise BadAnswer("the answer to a start holds no sid")
        return str(answer["sid"])

    async def start_group(self, instance: str | int, n: int) -> list[str]:
        """Start a group of `n` sessions of one instance; return their sids, fewer than `n` if capacity is lacking.

        Raises:
            As `start`, if there is no capacity for even one session.
        """
        answer = await self._transport.post(
            "/v1/groups",
            {"instance": _number(instance), "n": n},
            timeout_s=self._timeouts.start_s,
            retry_s=self._timeouts.start_s,
            attempt_s=self._timeouts.start_attempt_s,
            idempotency_key=uuid.uuid4().hex,
        )
        return _sids(answer, "a group's start")

    async def fork(self, sid: str, n: int = 1, *, at: int | None = None) -> list[str]:
        """Start `n` copies of this session, as it is now or was after its action number `at`; return their sids.

        Copies have the session's files, shell and journal. Fewer than `n` if there was no capacity for more.

        Raises:
            UnknownSession, RequestRejected (`code` not_forkable: what is in the sandbox cannot be copied). As `start`.
        """
        answer = await self._transport.post(
            f"/v1/sessions/{sid}/fork",
            {"n": n, "at": at},
            timeout_s=self._timeouts.start_s,
            retry_s=self._timeouts.start_s,
            attempt_s=self._timeouts.start_attempt_s,
            idempotency_key=uuid.uuid4().hex,
        )
        return _sids(answer, "a fork")

    async def rollback(self, sid: str, to: int) -> str:
        """Take a session back to where it was after its action number `to` (0: before the first one).

        Returns one sentence about what differs from that time; "" if nothing does.

        Raises:
            UnknownSession, RequestRejected (`code` not_forkable: that state cannot be restored).
        """
        answer = await self._transport.post(
            f"/v1/sessions/{sid}/rollback",
            {"to": to},
            timeout_s=self._timeouts.start_s,
            retry_s=self._timeouts.retry_s,
            attempt_s=self._timeouts.start_attempt_s,
            idempotency_key=uuid.uuid4().hex,
        )
        return str(answer.get("notice", ""))

    async def token(self, sid: str) -> str:
        """Make a token for an agent: it opens the session's tools by MCP and nothing else. A former one becomes void.

        Raises:
            UnknownSession, RequestRejected (`code` session_ended).
        """
        bounds = self._timeouts
        answer = await self._transport.post(
            f"/v1/sessions/{sid}/tokens", {}, timeout_s=bounds.action_s, retry_s=bounds.retry_s, any_of=("token",)
        )
        return str(answer["token"])

    async def look_ahead(self, instances: Sequence[str | int]) -> int:
        """Announce the instances that will be started next, in order, so that the service can prepare them.

        Returns how many are being prepared. Instances that are unknown, or for which there is no room, are logged.
        """
        answer = await self._transport.post(
            "/v1/lookahead",
            {"instances": [_number(instance) for instance in instances]},
            timeout_s=self._timeouts.action_s,
            retry_s=self._timeouts.retry_s,
            attempt_s=self._timeouts.action_attempt_s,
        )
        if answer.get("unknown") or answer.get("dropped"):
            _LOGGER.warning("not prepared ahead: unknown %s, no room for %s", answer["unknown"], answer["dropped"])
        if not isinstance(answer.get("queued"), int):
            raise BadAnswer("the answer to a look ahead holds no count")
        return int(answer["queued"])

    async def act(self, sid: str, content: str) -> Observation:
        """Run the policy's output, exactly once even if it is resent; the text reports the policy's mistakes."""
        answer = await self._transport.post(
            "/process_action",
            {"sid": sid, "content": content},
            timeout_s=self._timeouts.action_s,
            retry_s=self._timeouts.retry_s,
            attempt_s=self._timeouts.action_attempt_s,
            idempotency_key=uuid.uuid4().hex,
            any_of=("content",),
        )
        return Observation.from_wire(answer)

    async def exec(
        self, sid: str, commands: Sequence[str | Mapping[str, Any]], *, timeout_s: float | None = None
    ) -> list[CommandResult]:
        """Run commands in parallel, each in a fresh bash in the repository; return their results in the same order.

        A command is a string, or `{"command", "timeout_s", "cwd", "env"}`; `timeout_s` is the default of the commands.

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
            attempt_s=self._timeouts.action_attempt_s,
            idempotency_key=uuid.uuid4().hex,
        )
        results = answer.get("results")
        if not isinstance(results, list) or len(results) != len(commands):
            raise BadAnswer("the answer to a batch does not hold a result for each command")
        return [CommandResult.from_wire(result) for result in results]

    async def grade(self, items: Sequence[Mapping[str, Any]], **others: Any) -> list[dict[str, Any]]:
        """Grade patches and answers without a session, as items `{"instance", "patch"}` or `{"instance", "answer"}`.

        Returns the results in the order of `items`, as POST /v1/grade gives them. A result with `mask` or `error` says
        nothing about its item. `others` are further fields of the request: `rewards`, `discount`.
        """
        answer = await self._transport.post(
            "/v1/grade",
            {"items": [dict(item) for item in items], **others},
            timeout_s=self._timeouts.reward_total_s,
            retry_s=self._timeouts.reward_retry_s,
        )
        results = answer.get("results")
        if not isinstance(results, list) or len(results) != len(items):
            raise BadAnswer("the answer to a grading does not hold a result for each item")
        return results

    async def end_run(self, run: str | None = None) -> int:
        """End every session of a run, by default this client's own; return their number.

        For a trainer that is restarted after it was killed: its old sessions hold slots until their idle timeout.

        Raises:
            SettingsError: the run has no name. RequestRejected: the run belongs to another API key.
            CallTimedOut: some are still ending after `finish_s`.
        """
        path = f"/v1/runs/{quote(self._named(run))}/sessions"
        ended: set[str] = set()
        until = time.monotonic() + self._timeouts.finish_s
        while True:
            answer = await self._transport.post(
                path,
                {},
                method="DELETE",
                timeout_s=self._timeouts.finish_s,
                retry_s=self._timeouts.retry_s,
                attempt_s=self._timeouts.finish_attempt_s,
            )
            if not isinstance(answer.get("ended"), list) or not isinstance(answer.get("ending"), list):
                raise BadAnswer("the answer to the end of a run does not say which sessions have ended")
            ended.update(map(str, answer["ended"]))
            if not answer["ending"]:
                return len(ended)
            if time.monotonic() > until:
                raise CallTimedOut(f"sessions of the run are still ending: {', '.join(map(str, answer['ending'][:5]))}")

    @asynccontextmanager
    async def keep_run_alive(self, ttl_s: float = 60.0, run: str | None = None) -> AsyncIterator[None]:
        """Hold a lease on the run, renewed every `ttl_s / 4`; if it expires, the service ends the run's sessions.

        Raises:
            SettingsError: the run has no name. RequestRejected: the run belongs to another API key.
        """
        path = f"/v1/runs/{quote(self._named(run))}/lease"

        async def renew(method: str = "PUT") -> None:
            attempt_s = max(1.0, ttl_s / 4)
            await self._transport.post(
                path, {"ttl_s": ttl_s}, method=method, timeout_s=ttl_s, retry_s=ttl_s, attempt_s=attempt_s
            )

        async def beat() -> None:
            while True:
                await asyncio.sleep(ttl_s / 4)
                try:
                    await renew()
                except SandboxError as error:
                    _LOGGER.error("the run's lease could not be renewed, its sessions may end: %s", error)

        await renew()
        beating = asyncio.ensure_future(beat())
        try:
            yield
        finally:
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)
            try:
                await renew("DELETE")
            except SandboxError as error:
                _LOGGER.warning("the run's lease could not be given back; its sessions end with it: %s", error)

    def _named(self, run: str | None) -> str:
        name = self._run if run is None else run
        if not name:
            raise SettingsError("the run has no name: give `run`, or set SANDBOX_RUN")
        return name

    async def finish(self, sid: str) -> NextStep | None:
        """End the session: its patch is stored, its container removed, its grading queued. Idempotent.

        Returns the next step of a task of several steps.
        """
        answer = await self._transport.post(
            "/postprocess",
            {"sid": sid},
            timeout_s=self._timeouts.finish_s,
            retry_s=self._timeouts.retry_s,
            attempt_s=self._timeouts.finish_attempt_s,
        )
        return NextStep.from_wire(answer)

    async def reward(self, sid: str) -> Reward:
        """Return the session's reward; ends the session if it is still live.

        Asks again while the verdict is `pending`, for up to `reward_total_s`, and while the service cannot look it up
        (`infra` without a receipt), for up to `reward_retry_s`; then returns that reward (its `mask` is true).
        """
        began = time.monotonic()
        while True:
            answer = await self._transport.post(
                "/compute_reward",
                {"sid": sid},
                timeout_s=self._timeouts.reward_s,
                retry_s=self._timeouts.reward_retry_s,
                attempt_s=self._timeouts.reward_attempt_s,
                any_of=("reward", "verdict"),
            )
            reward = Reward.from_wire(answer)
            until = began + ask_again_within_s(reward.verdict, reward.receipt, self._timeouts)
            if time.monotonic() + _PENDING_PAUSE_S > until:
                return reward
            await asyncio.sleep(_PENDING_PAUSE_S)

    @asynccontextmanager
    async def session(self, instance: str | int, *, after: str = "") -> AsyncIterator[Session]:
        """Start a session, and finish it on exit, also after an exception or a cancellation."""
        session = Session(self, await self.start(instance, after=after))
        try:
            yield session
        except BaseException:
            # shielded: after a second cancellation, finishing continues in the background until its own timeout
            ending = asyncio.ensure_future(session.finish())
            try:
                await asyncio.shield(ending)
            except SandboxError as error:  # raise the first exception; the service's idle timeout ends the session
                _LOGGER.error("session %s could not be finished: %s", session.sid, error)
            except asyncio.CancelledError:
                ending.add_done_callback(partial(_finished_alone, session.sid))
            raise
        await session.finish()


def _finished_alone(sid: str, ending: asyncio.Future[NextStep | None]) -> None:
    if not ending.cancelled() and (error := ending.exception()):
        _LOGGER.error("session %s could not be finished: %s", sid, error)


def _sids(answer: Mapping[str, Any], request: str) -> list[str]:
    sids = answer.get("sids")
    if not isinstance(sids, list) or not sids:
        raise BadAnswer(f"the answer to {request} holds no sids")
    return [str(sid) for sid in sids]


def _number(instance: str | int) -> int:
    return int(instance) if isinstance(instance, int) or instance.isdecimal() else instance_hash(instance)


class Session(Inside):
    """One session of a client: its actions, and commands and files in its sandbox."""

    def __init__(self, client: SandboxClient, sid: str) -> None:
        """`sid` may be that of a session started elsewhere; see also `SandboxClient.session`."""
        super().__init__(client._transport, sid, retry_s=client._timeouts.retry_s)
        self._client = client
        self._finished = False
        self._next: NextStep | None = None

    async def act(self, content: str) -> Observation:
        """As `SandboxClient.act`."""
        return await self._client.act(self.sid, content)

    async def exec(
        self, commands: Sequence[str | Mapping[str, Any]], *, timeout_s: float | None = None
    ) -> list[CommandResult]:
        """As `SandboxClient.exec`."""
        return await self._client.exec(self.sid, commands, timeout_s=timeout_s)

    async def fork(self, n: int = 1, *, at: int | None = None) -> list[Session]:
        """As `SandboxClient.fork`. Finish each copy as you finish this session."""
        return [Session(self._client, sid) for sid in await self._client.fork(self.sid, n, at=at)]

    async def rollback(self, to: int) -> str:
        """As `SandboxClient.rollback`."""
        return await self._client.rollback(self.sid, to)

    async def finish(self) -> NextStep | None:
        """As `SandboxClient.finish`; a second call sends nothing."""
        if not self._finished:
            self._next = await self._client.finish(self.sid)
            self._finished = True
        return self._next

    async def reward(self) -> Reward:
        """As `SandboxClient.reward`."""
        return await self._client.reward(self.sid)
