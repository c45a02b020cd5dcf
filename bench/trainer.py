"""The trainer's side: aiohttp with keep-alive, like veRL's client, and the protocol's four calls."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from sandbox_server.catalogue.instance import instance_hash

_TIMEOUT_S = 600.0
"""veRL's own limit for a start; longer than any other call takes."""

_ASKS = 3
"""A reward request itself waits for some minutes."""


class Refused(RuntimeError):
    """The server's response does not allow a trainer to continue."""


class Trainer:
    """A client of one server. Every call raises `Refused` on an HTTP error or an `error` in the response."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http

    async def post(self, path: str, **body: object) -> dict[str, Any]:
        async with self._http.post(path, json=body) as response:
            answer: dict[str, Any] = await response.json()
            if not response.ok or answer.get("error"):
                raise Refused(f"{path}: {response.status} {str(answer)[:500]}")
            return answer

    async def get(self, path: str) -> Any:
        async with self._http.get(path) as response:
            if response.status != 200:
                raise Refused(f"{path}: {response.status} {(await response.text())[:500]}")
            return await response.json()

    async def text(self, path: str) -> str:
        """A response that is not JSON."""
        async with self._http.get(path) as response:
            return await response.text()

    async def start(self, instance_id: str) -> str:
        return str((await self.post("/start_instance", instance_hash=instance_hash(instance_id)))["sid"])

    async def act(self, sid: str, content: str) -> str:
        return str((await self.post("/process_action", sid=sid, content=content))["content"])

    async def postprocess(self, sid: str) -> None:
        await self.post("/postprocess", sid=sid)

    async def reward(self, sid: str) -> dict[str, Any]:
        """The verdict; asks again while it is pending, as a trainer would have to."""
        for _ in range(_ASKS):
            answer = await self.post("/compute_reward", sid=int(sid))
            if answer["verdict"] != "pending":
                return answer
        raise Refused(f"session {sid}: still pending after {_ASKS} requests")

    async def receipt(self, reward: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = await self.get(f"/v1/receipts/{reward['receipt']}")
        return answer

    async def end(self, *sids: str) -> None:
        """Close sessions, several at a time."""
        turns = asyncio.Semaphore(8)

        async def one(sid: str) -> None:
            async with turns:
                await self.postprocess(sid)

        await asyncio.gather(*(one(sid) for sid in sids))


@asynccontextmanager
async def trainer(url: str) -> AsyncIterator[Trainer]:
    """A client with as many keep-alive connections as it needs."""
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60)
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
    async with aiohttp.ClientSession(url, connector=connector, timeout=timeout) as http:
        yield Trainer(http)


def bash(command: str) -> str:
    """The action that runs `command`."""
    return f"<function=execute_bash>\n<parameter=command>\n{command}\n</parameter>\n</function>"


def edit(command: str, path: str, **parameters: str) -> str:
    """The editor's action on the file at `path`."""
    given = {"command": command, "path": path, **parameters}
    inner = "".join(f"<parameter={name}>\n{value}\n</parameter>\n" for name, value in given.items())
    return f"<function=str_replace_editor>\n{inner}</function>"


class Clock:
    """`with Clock() as clock: ...`, then `clock.s` and `clock.ms`."""

    s = 0.0

    def __enter__(self) -> "Clock":
        self._began = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.s = time.perf_counter() - self._began

    @property
    def ms(self) -> float:
        return self.s * 1000
