"""Send one call: choice of host, retries, timeouts.

Starts and actions carry an idempotency key, so that resending is safe; ends and rewards are idempotent anyway.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from sandbox_client.errors import BadAnswer, CallTimedOut, SandboxError, SettingsError, Unreachable, answered_error
from sandbox_client.hosts import DICE, MEMORY, Host, Round, parse_host
from sandbox_client.timeouts import connect_s
from sandbox_client.tracing import traceparent

__all__ = ["Host", "Request", "Transport", "json_object", "parse_host"]

_LOGGER = logging.getLogger(__name__)
_RETRIED = frozenset({408, 429, 502, 503, 504})
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 10.0
_KEEPALIVE_S = 4.0  # below uvicorn's 5 s, so that the client closes an idle connection before the server does
_LOOK_AFTER_S = 10.0
"""A host that has not answered a request for this long gets a health check, if other hosts are healthy."""
_LOOK_S = 5.0
"""Timeout of a health check."""
_RUN = re.compile(r"[A-Za-z0-9._:/@+-]{1,100}")


@dataclass(frozen=True)
class Request:
    """One call. It may be sent more than once, so it must be idempotent or have an idempotency key."""

    method: str
    path: str
    content: bytes | Callable[[], AsyncIterator[bytes]] = b""
    """A function is called for each attempt."""
    content_type: str = "application/octet-stream"
    idempotency_key: str = ""
    params: Mapping[str, str] = field(default_factory=dict)
    wants_json: bool = False
    """Retry if the answer is not a JSON object: it did not come from the service."""
    any_of: tuple[str, ...] = ()
    """With `wants_json`: retry a success without any of these keys. Empty: any object is accepted."""


class Transport:
    """Sends requests to any of several equivalent hosts. Belongs to one event loop, and must be closed on it."""

    def __init__(self, hosts: Sequence[Host], *, run: str = "") -> None:
        """`run` is the name of the run that this client's starts belong to; "": the API key's name.

        Connections are kept alive and not limited in number: a rollout worker has all its calls open at once.
        """
        if not hosts:
            raise SettingsError("no base URL of the sandbox service is given")
        if run and not _RUN.fullmatch(run):
            raise SettingsError("a run's name is 1 to 100 letters, digits and . _ : / @ + -, no other sign")
        self._run = run
        self._hosts = list(hosts)
        self._http = httpx.AsyncClient(
            limits=httpx.Limits(max_connections=None, keepalive_expiry=_KEEPALIVE_S),
            timeout=httpx.Timeout(None, connect=connect_s()),
            # Loading the machine's certificates takes 0.1 s; plain http does not need them.
            verify=ssl.create_default_context() if any(host.url.startswith("https") for host in hosts) else False,
            # Ignore proxy variables: trainers set them for downloads, but the sandbox hosts are in the same network.
            trust_env=False,
        )
        self._looks: set[asyncio.Task[None]] = set()

    async def post(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        timeout_s: float,
        retry_s: float,
        attempt_s: float | None = None,
        idempotency_key: str = "",
        method: str = "POST",
        any_of: tuple[str, ...] = (),
    ) -> dict[str, Any]:
        """Send `body` and return the JSON object of the answer.

        Retried are broken connections, attempts past `attempt_s`, 408, 429, 502, 503, 504, and answers that did not
        come from the service (a success without a JSON object or without any key of `any_of`, a 5xx without a code):
        at once on a host that was not tried yet, else after growing pauses (or Retry-After), as long as the next
        attempt begins within `retry_s`. The whole call ends after `timeout_s`.

        Raises:
            Unreachable, CallTimedOut, BadAnswer, RequestRejected, ServiceFault.
        """
        # ASCII, because a decoded action may contain a lone surrogate, which UTF-8 cannot encode
        content = json.dumps(body).encode("ascii")
        request = Request(method, path, content, "application/json", idempotency_key, any_of=any_of)
        answer = await self.send(request, timeout_s=timeout_s, retry_s=retry_s, attempt_s=attempt_s, wants_json=True)
        return json_object(answer, path)

    async def send(
        self,
        request: Request,
        *,
        timeout_s: float,
        retry_s: float,
        attempt_s: float | None = None,
        wants_json: bool = False,
    ) -> httpx.Response:
        """As `post`, for any request; return the complete answer, whose status is below 400.

        Raises:
            Unreachable, CallTimedOut, RequestRejected, ServiceFault; BadAnswer with `wants_json`.
        """
        asking = replace(request, wants_json=wants_json)
        failures: list[SandboxError] = []
        try:
            return await asyncio.wait_for(self._until_answered(asking, attempt_s, retry_s, failures), timeout_s)
        except asyncio.TimeoutError:
            before = f"; the attempt before: {failures[-1]}" if failures else ""
            raise CallTimedOut(f"{request.path} gave no answer within {timeout_s:g} s{before}") from None

    async def healthy(self, *, timeout_s: float) -> bool:
        """Whether at least one host answers its health check within `timeout_s`."""
        return any(await asyncio.gather(*(self._is_well(host, timeout_s) for host in self._hosts)))

    async def look_at_all(self) -> None:
        """Check the health of every host now and record the results; takes at most the connect timeout."""

        async def look(host: Host) -> None:
            (MEMORY.answered if await self._is_well(host, connect_s()) else MEMORY.failed)(host.url)

        await asyncio.gather(*map(look, self._hosts))

    async def look_again(self) -> None:
        """Start background health checks of the failed hosts whose next check is due."""
        for host in self._hosts:
            if MEMORY.claim_look(host.url):
                task = asyncio.ensure_future(self._look(host))
                self._looks.add(task)
                task.add_done_callback(self._looks.discard)

    async def aclose(self) -> None:
        """Cancel running health checks and close the connections."""
        for task in self._looks:
            task.cancel()
        await asyncio.gather(*self._looks, return_exceptions=True)
        await self._http.aclose()

    async def _look(self, host: Host) -> None:
        if await self._is_well(host, _LOOK_S):
            MEMORY.answered(host.url)

    async def _is_well(self, host: Host, timeout_s: float) -> bool:
        try:
            asking = self._http.get(f"{host.url}/healthz", timeout=timeout_s)
            return (await asyncio.wait_for(asking, timeout_s)).status_code == 200
        except (httpx.RequestError, asyncio.TimeoutError):
            return False

    async def _until_answered(
        self, request: Request, attempt_s: float | None, retry_s: float, failures: list[SandboxError]
    ) -> httpx.Response:
        hosts = Round(self._hosts)
        last_start = time.monotonic() + retry_s
        attempt = 0
        while True:
            await self.look_again()
            host = hosts.next()
            attempt += 1
            # Jitter of up to half, so that the rollouts of a batch do not all retry at the same moment.
            pause = min(_FIRST_PAUSE_S * 2 ** min(attempt, 10), _LONGEST_PAUSE_S) * DICE.uniform(0.5, 1.0)
            failure: SandboxError
            try:
                answer = await self._attempt(host, request, attempt_s)
            except (Unreachable, CallTimedOut) as error:
                self._note(host, error, retry_s)
                failure = error
            else:
                MEMORY.answered(host.url)
                parsed = _json_or_none(answer) if request.wants_json or answer.status_code >= 400 else None
                if answer.status_code < 400:
                    fault = _fault_of(request, parsed)
                    if not fault:
                        return answer
                    failure = BadAnswer(f"the answer of {host.url}{request.path} {fault}")
                else:
                    failure = answered_error(answer.status_code, parsed)
                    if not _may_be_tried_again(answer.status_code, parsed):
                        raise failure
                    asked_s = _retry_after_s(answer)
                    if failure.code == f"http_{answer.status_code}":  # from a proxy, which may ask for an hour
                        asked_s = min(asked_s, _LONGEST_PAUSE_S)
                    pause = asked_s or pause
            failures.append(failure)
            if hosts.has_another:
                continue  # it may be healthy, and a Retry-After applies only to the host that sent it
            if time.monotonic() + pause > last_start:
                raise failure
            await asyncio.sleep(pause)

    @staticmethod
    def _note(host: Host, failure: SandboxError, retry_s: float) -> None:
        """Remember that the host did not answer; log it once for all calls, until it answers again."""
        if MEMORY.failed_at(host.url) is None:
            _LOGGER.warning("%s; calls are tried again, this one for up to %g s", failure, retry_s)
        MEMORY.failed(host.url)

    async def _attempt(self, host: Host, request: Request, attempt_s: float | None) -> httpx.Response:
        """Send the request once. Raises Unreachable, CallTimedOut: this host gave no answer."""
        ends = None if attempt_s is None else time.monotonic() + attempt_s
        asking = asyncio.ensure_future(self._exchange(host, request))
        try:
            while True:
                left_s = _LOOK_AFTER_S if ends is None else min(_LOOK_AFTER_S, ends - time.monotonic())
                await asyncio.wait({asking}, timeout=max(0.0, left_s))
                if asking.done():
                    return asking.result()
                if ends is not None and time.monotonic() >= ends:
                    raise CallTimedOut(f"{host.url}{request.path} gave no answer within {attempt_s:g} s")
                if ends is None or not self._others_are_well(host):
                    continue  # no timeout, or no healthy host to retry on: keep waiting
                look_s = min(_LOOK_S, ends - time.monotonic())
                if not await self._is_well(host, look_s) and not asking.done():
                    raise Unreachable(f"{host.url}{request.path}: the host accepted the request and answers nothing")
        except httpx.RequestError as error:
            raise Unreachable(f"{host.url}{request.path}: {type(error).__name__}: {error}") from error
        finally:
            if not asking.done():
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)

    async def _exchange(self, host: Host, request: Request) -> httpx.Response:
        headers = {"Content-Type": request.content_type, **host.headers}
        if self._run:
            headers["Sandbox-Run"] = self._run
        if request.idempotency_key:
            headers["Idempotency-Key"] = request.idempotency_key
        if traced := traceparent():
            headers["traceparent"] = traced
        return await self._http.request(
            request.method,
            f"{host.url}{request.path}",
            params=request.params or None,
            content=request.content if isinstance(request.content, bytes) else request.content(),
            headers=headers,
        )

    def _others_are_well(self, host: Host) -> bool:
        return any(other.url != host.url and MEMORY.failed_at(other.url) is None for other in self._hosts)


def _may_be_tried_again(status: int, parsed: object) -> bool:
    if isinstance(parsed, dict) and isinstance(parsed.get("code"), str):  # from the service itself
        return status in _RETRIED and parsed.get("retryable") is not False
    return status in _RETRIED or status >= 500  # from a proxy or balancer in between; its `code` may be a number


def _fault_of(request: Request, parsed: object) -> str:
    """Why a successful answer cannot be the service's; "" if it can."""
    if not request.wants_json:
        return ""
    if not isinstance(parsed, dict):
        return "is not a JSON object"
    if request.any_of and not any(key in parsed for key in request.any_of):
        return f"has no {' and no '.join(request.any_of)}: check that SANDBOX_URL names the sandbox service"
    return ""


def _json_or_none(answer: httpx.Response) -> object:
    try:
        return answer.json()
    except ValueError:
        return None


def json_object(answer: httpx.Response, path: str) -> dict[str, Any]:
    """Parse the answer's body. Raises BadAnswer: it is not a JSON object."""
    parsed = _json_or_none(answer)
    if not isinstance(parsed, dict):
        raise BadAnswer(f"the answer of {path} is not a JSON object")
    return parsed


def _retry_after_s(answer: httpx.Response) -> float:
    """Seconds from the Retry-After header, which may also be a date; 0.0 if missing or invalid."""
    value = answer.headers.get("Retry-After", "")
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return 0.0
