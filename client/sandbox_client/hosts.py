"""Choose the host of a call among several equivalent ones, and remember the hosts that do not answer.

After a refused or broken connection or an attempt that timed out, the whole process avoids the host until its /healthz
succeeds. A frozen or unreachable host thus costs each running call one timeout, and later calls nothing. If no
host is healthy, all are tried.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote

import httpx

from sandbox_client.errors import SettingsError

FIRST_LOOK_S = 2.0
"""Delay of the first health check of a failed host; doubled for each further one."""
LONGEST_LOOK_S = 30.0

# Not the global random generator: trainers seed it, and a call must not advance it.
DICE = random.SystemRandom()


@dataclass(frozen=True)
class Host:
    """A base URL without its user and password, and the Authorization header for them."""

    url: str
    headers: Mapping[str, str] = field(repr=False, hash=False)


def parse_host(base_url: str, api_key: str | None = None) -> Host:
    """Split `http://user:password@host:port/prefix`; `api_key` takes precedence over the URL's user and password.

    Raises:
        SettingsError: not an http(s) URL. The message does not repeat it, because it may contain a key.
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


@dataclass
class _Bad:
    failed_at: float
    look_at: float
    pause_s: float


class HostMemory:
    """The hosts that do not answer, by URL. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bad: dict[str, _Bad] = {}

    def failed(self, url: str) -> None:
        """Record that the host did not answer; it is avoided from now on."""
        now = time.monotonic()
        with self._lock:
            known = self._bad.get(url)
            if known is None:
                self._bad[url] = _Bad(now, now + FIRST_LOOK_S, FIRST_LOOK_S)
            else:
                known.failed_at = now

    def answered(self, url: str) -> None:
        """Record that the host answered, with whatever status."""
        with self._lock:
            self._bad.pop(url, None)

    def failed_at(self, url: str) -> float | None:
        """Monotonic time of the host's last failure; None: no known failure."""
        with self._lock:
            known = self._bad.get(url)
            return None if known is None else known.failed_at

    def claim_look(self, url: str) -> bool:
        """Whether a health check of the host is due. If true, the caller must do it; the next one is due later."""
        now = time.monotonic()
        with self._lock:
            known = self._bad.get(url)
            if known is None or now < known.look_at:
                return False
            known.pause_s = min(2 * known.pause_s, LONGEST_LOOK_S)
            known.look_at = now + known.pause_s
            return True

    def forget(self) -> None:
        """Forget all failures."""
        with self._lock:
            self._bad.clear()


MEMORY = HostMemory()
"""Shared by all clients of the process, so that only one of them has to notice a failure."""


class Round:
    """Choose the hosts for the attempts of one call; each host is tried once before any is tried again."""

    def __init__(self, hosts: Sequence[Host], memory: HostMemory = MEMORY) -> None:
        self._hosts = hosts
        self._memory = memory
        self._tried: set[str] = set()

    def next(self) -> Host:
        """Choose a healthy host at random; if there is none, the one that failed longest ago."""
        fresh = self._fresh()
        if not fresh:
            self._tried.clear()
            fresh = self._fresh()
        failed_at = {host.url: self._memory.failed_at(host.url) for host in fresh}
        well = [host for host in fresh if failed_at[host.url] is None]
        host = DICE.choice(well) if well else min(fresh, key=lambda one: failed_at[one.url] or 0.0)
        self._tried.add(host.url)
        return host

    @property
    def has_another(self) -> bool:
        """Whether this call has not tried every host yet (every healthy host, if there are any)."""
        return bool(self._fresh())

    def _fresh(self) -> list[Host]:
        well = [host for host in self._hosts if self._memory.failed_at(host.url) is None]
        return [host for host in well or self._hosts if host.url not in self._tried]
