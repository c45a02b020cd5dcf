"""Parts of a service that has no containers: for what they do not know they answer as the real ones do."""

import time
from collections.abc import Coroutine

from sandbox_server.boxes.boxes import BoxView
from sandbox_server.boxes.copies import OpenedCopy
from sandbox_server.boxes.planning import BoxRequest
from sandbox_server.catalogue.insight.records import SessionWithVerdict
from sandbox_server.catalogue.snapshots import Snapshot
from sandbox_server.errors import ServiceError, UnknownImage, UnknownSession
from sandbox_server.fleet.runs import RunEnd
from sandbox_server.sessions.rollback import RollbackResult


class NoRuns:
    """A node where no run has a session, and every run is the caller's."""

    async def started(self, run: str, key: str) -> None:
        """No owner."""

    async def check(self, run: str, key: str) -> None:
        """No owner."""

    async def keep(self, run: str, ttl_s: float) -> float:
        return time.time() + ttl_s

    async def release(self, run: str) -> bool:
        return False

    async def end(self, run: str, *, owner: str = "", wait_s: float) -> RunEnd:
        return RunEnd((), ())


class KeptLogouts:
    """In this process's memory."""

    def __init__(self) -> None:
        self._ended: set[str] = set()

    async def add(self, login: str, *, left_s: float) -> None:
        assert left_s > 0
        self._ended.add(login)

    async def has(self, login: str) -> bool:
        return login in self._ended


class NoCopies:
    """Copies nothing, and takes nothing back: for an unknown session it answers as the real parts do."""

    async def fork(self, sid: str, n: int, **_: object) -> tuple[list[str], list[ServiceError]]:
        raise UnknownSession.of(sid)

    async def tree(self, sid: str) -> list[SessionWithVerdict]:
        raise UnknownSession.of(sid)

    async def open(self, sid: str, at: int | None) -> OpenedCopy:
        raise UnknownSession.of(sid)

    async def rollback(self, sid: str, to: int, **_: object) -> RollbackResult:
        raise UnknownSession.of(sid)


class NoBoxes:
    """A node without boxes; for an unknown box it answers as the real one does."""

    async def get(self, sid: str) -> BoxView:
        raise UnknownSession(f"no box {sid}")

    find = get

    async def here(self, view: BoxView) -> None:
        """Nothing is on another node."""

    async def set_timeout(self, sid: str, seconds: float, **_: object) -> BoxView:
        return await self.get(sid)

    async def set_network(self, sid: str, *_: object, **__: object) -> BoxView:
        return await self.get(sid)

    async def pause(self, sid: str, **_: object) -> BoxView:
        return await self.get(sid)

    async def resume(self, sid: str, *_: object) -> BoxView:
        return await self.get(sid)

    async def kill(self, sid: str) -> bool:
        return False

    async def list(self, *, owner: str | None = None) -> list[BoxView]:
        return []


class NoSnapshots:
    """A node without snapshots, which neither takes one nor copies a box."""

    async def take(self, sid: str, *_: object, **__: object) -> Snapshot:
        raise UnknownSession(f"no box {sid}")

    async def listed(self, owner: str | None, **_: object) -> list[Snapshot]:
        return []

    async def delete(self, owner: str | None, snapshot: str) -> bool:
        return False

    async def fork(self, sid: str, n: int, **_: object) -> list[BoxView | ServiceError]:
        raise UnknownSession(f"no box {sid}")


class NoCreation:
    """Creates no box."""

    async def create_while(self, asked: BoxRequest, gone: Coroutine[None, None, None]) -> BoxView:
        gone.close()
        raise UnknownImage("no image may run here")
