"""Prepares images and parks containers for the starts that a trainer announces, in the given order."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from sandbox_server import telemetry
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.errors import ServiceError
from sandbox_server.images.workspaces import Workspaces
from sandbox_server.pool.groups import Groups
from sandbox_server.pool.pool import Pool
from sandbox_server.sandbox.faults import Faults

log = telemetry.logger(__name__)

QUEUE = 4096
"""Maximum number of instances waiting for preparation; more than a trainer needs for its next steps."""
TOGETHER = 2  # images pulled or prepared at a time: live sessions share the disk and the network with this
_FAILURES = 100  # most recent failures that are kept for display


@dataclass(frozen=True, slots=True)
class Failure:
    """An image that could not be prepared."""

    instance_id: str
    code: str
    detail: str


class Lookahead:
    """Queue of announced instances whose images are to be prepared."""

    def __init__(
        self, workspaces: Workspaces, pool: Pool, groups: Groups, *, wanted_s: float, faults: Faults | None = None
    ) -> None:
        """`wanted_s`: how long an announced instance is expected. While there are `faults`, nothing is prepared."""
        self._workspaces = workspaces
        self._pool = pool
        self._groups = groups
        self._wanted_s = wanted_s
        self._faults = faults or Faults()
        self._waiting: OrderedDict[str, TaskInstance] = OrderedDict()
        self._preparing: set[str] = set()
        self._failures: OrderedDict[str, Failure] = OrderedDict()
        self._added = asyncio.Event()

    def add(self, instances: Sequence[TaskInstance]) -> int:
        """Queue the instances, each once, while there is room; returns how many of them are queued now."""
        for instance in instances:
            if len(self._waiting) < QUEUE:
                self._waiting[instance.instance_id] = instance
                self._failures.pop(instance.instance_id, None)
        self._added.set()
        return sum(instance.instance_id in self._waiting for instance in instances)

    @property
    def waiting(self) -> list[str]:
        """Ids of the instances whose images are queued or being prepared."""
        return [*self._preparing, *self._waiting]

    @property
    def failures(self) -> list[Failure]:
        """The most recent failures, newest last."""
        return list(self._failures.values())

    async def prepare(self) -> None:
        """Wait for an announced instance and prepare it; `TOGETHER` loops run this."""
        while not self._waiting:
            self._added.clear()
            await self._added.wait()
        await self._faults.gone()  # a pull onto a nearly full disk would break live sessions
        if not self._waiting:
            return
        instance_id, instance = self._waiting.popitem(last=False)
        self._preparing.add(instance_id)
        try:
            spec = await self._workspaces.spec(instance)
            expected = self._groups.expected(instance_id)
            self._pool.want(instance_id, spec, expected, for_s=self._wanted_s, now=False)
        except ServiceError as e:
            log.warning("not prepared ahead", instance_id=instance_id, code=e.code, error=e.detail)
            self._failures[instance_id] = Failure(instance_id, e.code, e.detail)
            if len(self._failures) > _FAILURES:
                self._failures.popitem(last=False)
        finally:
            self._preparing.discard(instance_id)
