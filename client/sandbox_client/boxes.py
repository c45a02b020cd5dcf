"""Boxes: containers of any image, with commands and files; snapshots and copies of them.

`sandbox_client.slime` builds slime's sandbox on them.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from types import TracebackType
from typing import Any
from urllib.parse import quote

from sandbox_client import environment
from sandbox_client.errors import BadAnswer, UnknownSession
from sandbox_client.inside import CommandResult as CommandResult  # return type of a box's methods
from sandbox_client.inside import FileInfo as FileInfo
from sandbox_client.inside import Inside
from sandbox_client.transport import Request, Transport, parse_host

_CREATE_S = 600.0
_KILL_S = 60.0


@dataclass(frozen=True)
class Snapshot:
    """The files of a box at one time. `Box(snapshot=found.id)` makes a box from them."""

    id: str
    name: str
    """`name:tag`, which works wherever the id does; "" for none."""

    sid: str
    """Sid of the box."""
    created_at: float
    """Unix seconds."""
    size_bytes: int
    """Compressed."""


class Box(Inside):
    """One box; `async with` creates it and kills it on exit. Belongs to one event loop."""

    def __init__(
        self,
        image: str | None = None,
        *,
        snapshot: str | None = None,
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

        `image`, or the id or name of a `snapshot`; one of the two. `base_url` None: SANDBOX_URL; `run` None:
        SANDBOX_RUN. `task_image` "raw": a task's image unmodified, with the history after HEAD, for graders; else as
        its sessions see it. `retry_s`: how long a call is retried while the service is unavailable.

        Raises:
            SettingsError.
        """
        urls = environment.base_urls() if base_url is None else [base_url] if isinstance(base_url, str) else base_url
        named = environment.run() if run is None else run
        self._hosts, self._run = [parse_host(url, api_key) for url in urls], named
        super().__init__(Transport(self._hosts, run=named), "", retry_s=retry_s)
        self._wanted = {
            "image": image,
            "snapshot": snapshot,
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

    async def snapshot(self, name: str = "") -> Snapshot:
        """Store the box's files as they are now, without its running programs. `name`: `name[:tag]`, in lower case.

        Raises:
            RequestRejected: `not_forkable` (something in the box cannot be stored), `too_many_snapshots`.
        """
        path, key = f"/v1/boxes/{self.sid}/snapshots", uuid.uuid4().hex
        return _snapshot(await self._post(path, {"name": name}, timeout_s=_CREATE_S, key=key))

    async def snapshots(self, name: str = "") -> Sequence[Snapshot]:
        """All snapshots of the API key, of any box, newest first; with `name` only the one of this name or id."""
        answer = await self._send(Request("GET", "/v1/snapshots", params={"name": name}), timeout_s=_KILL_S)
        try:
            return [_snapshot(one) for one in answer.json()]
        except ValueError as error:
            raise BadAnswer(f"the answer to a listing of snapshots cannot be read: {error}") from None

    async def delete_snapshot(self, snapshot: str) -> None:
        """Delete a snapshot by its id or name; boxes made from it live on. Raises RequestRejected: there is none."""
        await self._send(Request("DELETE", f"/v1/snapshots/{quote(snapshot, safe='')}"), timeout_s=_KILL_S)

    async def fork(self, n: int = 1, *, lifetime_s: float | None = None) -> Sequence[Box]:
        """Boxes with this one's files, image, environment, limits and network; fewer than `n` if there was no room.

        They do not have this box's running programs. Kill and close each of them as you do this one.

        Raises:
            NoCapacity: there was room for none. RequestRejected: `not_forkable`.
        """
        wanted: dict[str, Any] = {"n": n} if lifetime_s is None else {"n": n, "lifetime_s": lifetime_s}
        path, key = f"/v1/boxes/{self.sid}/fork", uuid.uuid4().hex
        made = await self._post(path, wanted, timeout_s=_CREATE_S, retry_s=_CREATE_S, key=key)
        sids = made.get("sids")
        if not isinstance(sids, list) or not sids:
            raise BadAnswer("the answer to a fork holds no sids")
        return [self._copy_named(str(sid)) for sid in sids]

    def _copy_named(self, sid: str) -> Box:
        box = Box.__new__(Box)
        box._hosts, box._run, box._wanted = self._hosts, self._run, {}
        Inside.__init__(box, Transport(self._hosts, run=self._run), sid, retry_s=self._retry_s)
        return box

    async def pause(self) -> None:
        """Store only the box's files and end its programs; until `resume` the box has no container and no slot."""
        await self._send(Request("POST", f"/v1/boxes/{self.sid}/pause"), timeout_s=_CREATE_S)

    async def resume(self, lifetime_s: float | None = None) -> None:
        """Give the paused box a container again, for `lifetime_s` from now on. Raises NoCapacity."""
        wanted = {} if lifetime_s is None else {"lifetime_s": lifetime_s}
        await self._post(f"/v1/boxes/{self.sid}/resume", wanted, timeout_s=_CREATE_S, retry_s=_CREATE_S)

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


def _snapshot(told: Any) -> Snapshot:
    """Parse a snapshot. Raises BadAnswer."""
    try:
        return Snapshot(**{field.name: told[field.name] for field in fields(Snapshot)})
    except (KeyError, TypeError) as error:
        raise BadAnswer(f"the description of a snapshot is malformed: {error}") from None
