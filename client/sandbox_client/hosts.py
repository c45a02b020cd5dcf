"""Which of several equal hosts a call goes to, and what is remembered of those that do not answer.

A host that refused a connection, broke one off or let an attempt run out is avoided, by all of this process, until a
look at its /healthz succeeds: so a host that is frozen or cut off costs the calls under way one bound each, once, and
later ones nothing. Where no host is well, all are tried.
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
"""Pause before the first look at a host that failed; twice as long before each further one."""
LONGEST_LOOK_S = 30.0

# Its own source: the global one is seeded by trainers, and a call must not move it.
DICE = random.SystemRandom()


@dataclass(frozen=True)
class Host:
    """A base URL without its user and password, and the header made of them."""

    url: str
    headers: Mapping[str, str] = field(repr=False, hash=False)


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


@dataclass
class _Bad:
    failed_at: float
    look_at: float
    pause_s: float


class HostMemory:
    """The hosts that do not answer, by URL; for any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bad: dict[str, _Bad] = {}

    def failed(self, url: str) -> None:
        """It did not answer; it is avoided from now on."""
        now = time.monotonic()
        with self._lock:
            known = self._bad.get(url)
            if known is None:
                self._bad[url] = _Bad(now, now + FIRST_LOOK_S, FIRST_LOOK_S)
            else:
                known.failed_at = now

    def answered(self, url: str) -> None:
        """It answered, whatever it said."""
        with self._lock:
            self._bad.pop(url, None)

    def failed_at(self, url: str) -> float | None:
        """When it failed last, by the monotonic clock; None: it is well, as far as is known."""
        with self._lock:
            known = self._bad.get(url)
            return None if known is None else known.failed_at

    def claim_look(self, url: str) -> bool:
        """Whether it is time to look at it again; the asker does, and nobody else for a while."""
        now = time.monotonic()
        with self._lock:
            known = self._bad.get(url)
            if known is None or now < known.look_at:
                return False
            known.pause_s = min(2 * known.pause_s, LONGEST_LOOK_S)
            known.look_at = now + known.pause_s
            return True

    def forget(self) -> None:
        """All hosts are well."""
        with self._lock:
            self._bad.clear()


MEMORY = HostMemory()
"""Of this process: one client's failure spares the others."""


class Round:
    """Which hosts one call has tried; each one once before any is tried again."""

    def __init__(self, hosts: Sequence[Host], memory: HostMemory = MEMORY) -> None:
        self._hosts = hosts
        self._memory = memory
        self._tried: set[str] = set()

    def next(self) -> Host:
        """One that is well, at random; where none is, the one that failed longest ago."""
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
        """Whether a host is left that this call has not tried."""
        return bool(self._fresh())

    def _fresh(self) -> list[Host]:
        well = [host for host in self._hosts if self._memory.failed_at(host.url) is None]
        return [host for host in well or self._hosts if host.url not in self._tried]
