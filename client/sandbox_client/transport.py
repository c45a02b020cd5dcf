"""One call on the wire: which host, how often, how long.

What this knowingly leaves open: a start whose answer was lost on the way is sent again, so the first session stays
behind until the service's idle limit ends it. Actions carry a key, so they run once; ends and rewards may repeat.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import unquote

import httpx

from sandbox_client.errors import BadAnswer, CallTimedOut, SandboxError, SettingsError, Unreachable, answered_error

_RETRIED = frozenset({502, 503, 504})
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 10.0
_KEEPALIVE_S = 4.0  # below uvicorn's 5 s, so that we drop an idle connection before the server does
_CONNECT_S = 10.0
_RUN = re.compile(r"[A-Za-z0-9._:/@+-]{1,100}")

# Its own source: the global one is seeded by trainers, and a call must not move it.
_DICE = random.SystemRandom()


@dataclass(frozen=True)
class Host:
    """A base URL without its user and password, and the header made of them."""

    url: str
    headers: Mapping[str, str] = field(repr=False)


def parse_host(base_url: str, api_key: str | None = None) -> Host:
    """Split `http://user:password@host:port/prefix`; `api_key` goes before the URL's own user and password.

    Raises:
        SettingsError: not an http(s) URL. The message does not repeat it, for it may hold a key.
    """
    try:
        url = httpx.URL(base_url.strip())
    except httpx.InvalidURL:
        raise SettingsError("a base URL of the sandbox service is not a URL") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise SettingsError("a base URL of the sandbox service does not begin with http:// or https:// and a host")
    headers: dict[str, str] = {}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    elif url.userinfo:
        user, _, password = url.userinfo.decode().partition(":")
        credentials = httpx.BasicAuth(unquote(user), unquote(password))
        headers["Authorization"] = next(credentials.auth_flow(httpx.Request("POST", url))).headers["Authorization"]
    return Host(str(url.copy_with(userinfo=b"", query=None, fragment=None)).rstrip("/"), headers)


@dataclass(frozen=True)
class Request:
    """One call. It may be sent more than once: it is harmless then, or bears a key."""

    method: str
    path: str
    content: bytes | Callable[[], AsyncIterator[bytes]] = b""
    """A function gives it anew for each attempt."""
    content_type: str = "application/octet-stream"
    idempotency_key: str = ""
    params: Mapping[str, str] = field(default_factory=dict)


class Transport:
    """Sends requests to any of several equal hosts. Belongs to one event loop, and must be closed on it."""

    def __init__(self, hosts: Sequence[Host], *, run: str = "") -> None:
        """`run` is what the service calls the starts of this client, "" leaves it to the API key.

        Connections are kept alive and not bounded in number: a rollout worker has all its calls open at once.
        """
        if not hosts:
            raise SettingsError("no base URL of the sandbox service is given")
        if run and not _RUN.fullmatch(run):
            raise SettingsError("a run's name is 1 to 100 letters, digits and . _ : / @ + -, no other sign")
        self._run = run
        self._hosts = list(hosts)
        self._http = httpx.AsyncClient(
            limits=httpx.Limits(max_connections=None, keepalive_expiry=_KEEPALIVE_S),
            timeout=httpx.Timeout(None, connect=_CONNECT_S),
            # Loading the machine's certificates takes 0.1 s, which a first plain http request need not wait for.
            verify=ssl.create_default_context() if any(host.url.startswith("https") for host in hosts) else False,
            # Trainers set proxies for downloads; the sandbox hosts stand in the same network.
            trust_env=False,
        )

    async def post(
        self, path: str, body: Mapping[str, Any], *, timeout_s: float, retry_s: float, idempotency_key: str = ""
    ) -> dict[str, Any]:
        """Send `body` and give the JSON object of the answer.

        Broken connections and 502, 503, 504 are tried again, each time on the next host, with growing pauses (or
        Retry-After), as long as the next attempt begins within `retry_s`. All of it ends after `timeout_s`.

        Raises:
            Unreachable, CallTimedOut, BadAnswer, RequestRejected, ServiceFault.
        """
        # ASCII: a lone surrogate in a decoded action still travels
        request = Request("POST", path, json.dumps(body).encode("ascii"), "application/json", idempotency_key)
        return json_object(await self.send(request, timeout_s=timeout_s, retry_s=retry_s), path)

    async def send(self, request: Request, *, timeout_s: float, retry_s: float) -> httpx.Response:
        """As `post`, of any request; its answer, whole, with a status below 400.

        Raises:
            Unreachable, CallTimedOut, RequestRejected, ServiceFault.
        """
        failures: list[SandboxError] = []
        try:
            return await asyncio.wait_for(self._until_answered(request, retry_s, failures), timeout_s)
        except asyncio.TimeoutError:
            before = f"; the attempt before: {failures[-1]}" if failures else ""
            raise CallTimedOut(f"{request.path} gave no answer within {timeout_s:g} s{before}") from None

    async def healthy(self, *, timeout_s: float) -> bool:
        """Whether at least one host answers its health check within `timeout_s`."""

        async def answers(host: Host) -> bool:
            try:
                return (await self._http.get(f"{host.url}/healthz", timeout=timeout_s)).status_code == 200
            except httpx.TransportError:
                return False

        return any(await asyncio.gather(*map(answers, self._hosts)))

    async def aclose(self) -> None:
        """Close the kept connections."""
        await self._http.aclose()

    async def _until_answered(self, request: Request, retry_s: float, failures: list[SandboxError]) -> httpx.Response:
        headers = {"Content-Type": request.content_type}
        if self._run:
            headers["Sandbox-Run"] = self._run
        if request.idempotency_key:
            headers["Idempotency-Key"] = request.idempotency_key
        hosts = _DICE.sample(self._hosts, len(self._hosts))
        last_start = time.monotonic() + retry_s
        attempt = 0
        while True:
            host = hosts[attempt % len(hosts)]
            attempt += 1
            # Up to half is cut off at random, or all rollouts of a batch come back at the same moment.
            pause = min(_FIRST_PAUSE_S * 2 ** min(attempt, 10), _LONGEST_PAUSE_S) * _DICE.uniform(0.5, 1.0)
            failure: SandboxError
            try:
                answer = await self._http.request(
                    request.method,
                    f"{host.url}{request.path}",
                    params=request.params or None,
                    content=request.content if isinstance(request.content, bytes) else request.content(),
                    headers={**headers, **host.headers},
                )
            except httpx.RequestError as error:
                failure = Unreachable(f"{host.url}{request.path}: {type(error).__name__}: {error}")
            else:
                if answer.status_code < 400:
                    return answer
                parsed = _json_or_none(answer)
                failure = answered_error(answer.status_code, parsed)
                final = isinstance(parsed, dict) and parsed.get("retryable") is False
                if answer.status_code not in _RETRIED or final:
                    raise failure
                pause = _retry_after_s(answer) or pause
            if attempt < len(hosts):
                pause = 0.0  # another host may be well, and a Retry-After speaks for its own
            failures.append(failure)
            if time.monotonic() + pause > last_start:
                raise failure
            await asyncio.sleep(pause)


def _json_or_none(answer: httpx.Response) -> object:
    try:
        return answer.json()
    except ValueError:
        return None


def json_object(answer: httpx.Response, path: str) -> dict[str, Any]:
    """The answer's body. Raises BadAnswer: it is no JSON object."""
    parsed = _json_or_none(answer)
    if not isinstance(parsed, dict):
        raise BadAnswer(f"the answer of {path} is not a JSON object")
    return parsed


def _retry_after_s(answer: httpx.Response) -> float:
    """Seconds of the Retry-After header, which may also be a date; 0.0 without a usable one."""
    value = answer.headers.get("Retry-After", "")
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return 0.0
