"""Boxes: containers of any image, with commands and files. `sandbox_client.slime` builds slime's sandbox on them."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Mapping, Sequence
from types import TracebackType

from sandbox_client import environment
from sandbox_client.errors import BadAnswer, UnknownSession
from sandbox_client.inside import CommandResult as CommandResult  # return type of a box's methods
from sandbox_client.inside import FileInfo as FileInfo
from sandbox_client.inside import Inside
from sandbox_client.transport import Request, Transport, parse_host

_CREATE_S = 600.0
_KILL_S = 60.0


class Box(Inside):
    """One box; `async with` creates it and kills it on exit. Belongs to one event loop."""

    def __init__(
        self,
        image: str,
        *,
        size: str | None = None,
        lifetime_s: float | None = None,
        env: Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
        network: str | None = None,
        task_image: str | None = None,
        base_url: str | Sequence[str] | None = None,
        api_key: str | None = None,
        run: str | None = None,
        retry_s: float = 60.0,
    ) -> None:
        """Store the box's parameters; nothing is sent before `create`, and `sid` is "" until then.

        `base_url` None: SANDBOX_URL; `run` None: SANDBOX_RUN. `task_image` "raw": a task's image unmodified, with the
        history after HEAD, for graders; else as its sessions see it. `retry_s`: how long a call is retried while the
        service is unavailable.

        Raises:
            SettingsError.
        """
        urls = environment.base_urls() if base_url is None else [base_url] if isinstance(base_url, str) else base_url
        named = environment.run() if run is None else run
        super().__init__(Transport([parse_host(url, api_key) for url in urls], run=named), "", retry_s=retry_s)
        self._wanted = {
            "image": image,
            "size": size,
            "lifetime_s": lifetime_s,
            "env": dict(env or {}),
            "metadata": dict(metadata or {}),
            "network": network,
            "task_image": task_image,
        }

    async def create(self) -> None:
        """Create the box and set `sid`.

        Raises:
            UnknownImage, NoCapacity, and as every call: Unreachable, CallTimedOut, ServiceFault.
        """
        wanted = {name: value for name, value in self._wanted.items() if value is not None}
        made = await self._post("/v1/boxes", wanted, timeout_s=_CREATE_S, retry_s=_CREATE_S, key=uuid.uuid4().hex)
        if not isinstance(made.get("sid"), str):
            raise BadAnswer("the answer to a create holds no sid")
        self.sid = made["sid"]

    async def kill(self) -> None:
        """End the box with all its processes; no error if it has already ended."""
        with contextlib.suppress(UnknownSession):
            await self._send(Request("DELETE", f"/v1/boxes/{self.sid}"), timeout_s=_KILL_S)

    async def aclose(self) -> None:
        """Close the connections; the box keeps running."""
        await self._transport.aclose()

    async def __aenter__(self) -> Box:
        try:
            await self.create()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self.kill()
        finally:
            await self.aclose()
