"""Which sessions the reaper ends."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from sandbox_server import clock
from sandbox_server.records import SessionRecord
from sandbox_server.upkeep.expiry import Expiry


class Kind:
    at_deadline = "max_age"

    def idle(self, record: SessionRecord, now: float) -> bool:
        return False

    async def pause_at_end(self, record: SessionRecord) -> bool:
        return False

    async def reconcile(self, record: SessionRecord) -> bool:
        return False


async def ended(seen: SessionRecord, now: SessionRecord, present: set[str]) -> list[str]:
    """Why the session ends that was `seen` with these containers `present`, and is as `now` when its turn comes."""
    reasons: list[str] = []

    async def session(sid: str) -> SessionRecord:
        return now

    async def lose(sid: str, cause: str) -> None:
        reasons.append("lost")

    async def end(sid: str, reason: str) -> None:
        reasons.append(reason)

    async def removed(sid: str) -> None:
        """At once."""

    parts: Mapping[str, Any] = {
        "data": SimpleNamespace(store=SimpleNamespace(session=session)),
        "kinds": {seen.kind: Kind()},
        "nodes": None,
        "runs": None,
        "ownership": SimpleNamespace(is_here=lambda record: True),
        "ending": SimpleNamespace(lose=lose, wait_until_removed=removed),
        "end": end,
    }
    expiry = Expiry(**cast(Any, parts), postprocess_timeout_s=120)
    await expiry.end_if_due(asyncio.Semaphore(), seen, present)
    return reasons


async def test_a_session_that_has_another_container_since_the_look_at_the_engine() -> None:
    """It fell asleep during the look and woke while it waited for the ends of others: it was ended as lost."""
    now = clock.now()
    seen = SessionRecord("1", "live", "i", "n", "a", now, now, now + 600)
    assert await ended(seen, seen, set()) == ["lost"]
    assert await ended(seen, replace(seen, container_id="b"), set()) == []
    assert await ended(seen, replace(seen, container_id=""), set()) == []
    past = replace(seen, deadline=now - 1)
    assert await ended(past, past, {"a"}) == ["max_age"]
    assert await ended(past, seen, {"a"}) == []
