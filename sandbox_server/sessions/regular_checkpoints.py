"""Regular checkpoints of working sessions, so that a restore or a copy has few actions to run again."""

from collections.abc import MutableMapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from sandbox_server import telemetry
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.errors import NotForkable, ServiceError, SessionBusy
from sandbox_server.lifecycle import SessionState
from sandbox_server.sandbox.base import Sandbox
from sandbox_server.sessions.checkpointing import Checkpointing
from sandbox_server.sessions.config import RegularConfig
from sandbox_server.sessions.data import SessionData
from sandbox_server.tasks import TaskSet

log = telemetry.logger(__name__)

_FREE_WITHIN_S = 2.0
"""To wait for the session's lock, which the action has just given back: Redis and the loop of a busy host take a while.
If the next action gets it first, the checkpoint is tried again after that action."""


@dataclass(slots=True)
class _Since:
    """The actions of a sandbox since its last checkpoint."""

    actions: int = 0
    seconds: float = 0.0
    """Total run time of the actions."""
    under_way: bool = False


class RegularCheckpoints:
    """Takes a checkpoint of a session, between two actions, after a number of actions or of seconds that they ran."""

    def __init__(self, data: SessionData, checkpointing: Checkpointing, config: RegularConfig) -> None:
        self._data = data
        self._checkpointing = checkpointing
        self._config = config
        self._since: MutableMapping[Sandbox, _Since] = WeakKeyDictionary()
        self._tasks = TaskSet("checkpoints")

    def acted(self, sid: str, sandbox: Sandbox, instance: TaskInstance, duration_s: float) -> None:
        """An action that took `duration_s` has been acknowledged. Returns at once."""
        every, every_s = self._config.every, self._config.every_s
        if not (every or every_s) or instance.localizes or instance.sandbox.services or instance.sandbox.user:
            return
        since = self._since.setdefault(sandbox, _Since())
        since.actions += 1
        since.seconds += duration_s
        due = bool(every and since.actions >= every) or bool(every_s and since.seconds >= every_s)
        if due and not since.under_way:
            since.under_way = True
            self._tasks.start(self._take(sid, sandbox, instance, since))

    async def close(self) -> None:
        """Cancel the checkpoints in progress."""
        await self._tasks.cancel()

    async def _take(self, sid: str, sandbox: Sandbox, instance: TaskInstance, since: _Since) -> None:
        store = self._data.store
        try:
            async with store.lock(sid, _FREE_WITHIN_S):
                record = await store.session(sid)
                live = record is not None and record.state == SessionState.LIVE
                if record is None or not live or record.container_id != sandbox.container_id:
                    return
                if not await store.interrupted(sid):
                    await self._checkpointing.take(record, sandbox, instance)
                since.actions, since.seconds = 0, 0.0
        except SessionBusy:
            pass
        except ServiceError as error:
            note = log.info if isinstance(error, NotForkable) else log.warning
            note("no regular checkpoint", sid=sid, code=error.code, error=error.detail)
            since.actions, since.seconds = 0, 0.0  # otherwise it would be tried after each action
        finally:
            since.under_way = False
