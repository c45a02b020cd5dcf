"""Which sessions a round puts to sleep, by what Redis says of them: the containers are not there."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast

from sandbox_server.errors import SandboxLost
from sandbox_server.sessions.config import SleepConfig
from sandbox_server.sessions.sleeping import Sleeping
from sandbox_server.state.store import Store
from tests.waiting import eventually

from .rollout import session


class Gone:
    """An engine whose containers are gone, as it answers once it may."""

    def __init__(self) -> None:
        self.asked: set[str] = set()
        self.answers = asyncio.Event()

    async def full(self) -> bool:
        """Whether as many wait for it as are tried at once."""
        return len(self.asked) == 4

    async def attach(self, container_id: str) -> None:
        """See `Runtime.attach`."""
        self.asked.add(container_id)
        await self.answers.wait()
        raise SandboxLost("it is gone")


async def test_one_that_was_used_meanwhile_stays_awake(store: Store) -> None:
    """Where hundreds fall asleep, one that was idle when the round began loses its container under a busy policy."""
    sids = [f"{number}" for number in range(6)]
    for sid in sids:
        await store.put_session(session(sid, container_id=f"c{sid}", touched_at=time.time() - 90))
    engine = Gone()
    nothing = cast(Any, SimpleNamespace(by_id=_by_id, pinned=set()))
    data = cast(Any, SimpleNamespace(store=store, instances=nothing, history=nothing))
    config = SleepConfig(node="n1", hibernate_s=60, wake_timeout_s=5)
    sleeping = Sleeping(cast(Any, engine), data, nothing, nothing, nothing, nothing, config)
    round_ = asyncio.create_task(sleeping.look())
    await eventually(engine.full)
    waiting = [sid for sid in sids if f"c{sid}" not in engine.asked]
    await store.touch(waiting[0])
    engine.answers.set()
    await round_
    assert engine.asked == {f"c{sid}" for sid in sids} - {f"c{waiting[0]}"}
    await sleeping.look()
    assert len(engine.asked) == 5, "none is tried again before it was idle for as long"


async def _by_id(instance_id: str) -> None:
    return None
