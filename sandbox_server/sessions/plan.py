"""What a start begins: a session of a task's instance, or (`boxes.plan`) a box."""

from typing import Protocol

from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.images.workspaces import Workspaces
from sandbox_server.records import SessionRecord
from sandbox_server.sandbox.base import ContainerSpec
from sandbox_server.state.store import Store


class Plan(Protocol):
    """All that a start needs to know of what it begins."""

    @property
    def name(self) -> str:
        """What alike starts have in common: they come in groups, and find containers parked for each other."""
        ...

    @property
    def instance_id(self) -> str:
        """Empty for a box."""
        ...

    @property
    def cwd(self) -> str:
        """Where its shell stands at first."""
        ...

    @property
    def lasts_s(self) -> float:
        """Seconds from its start to its deadline."""
        ...

    async def spec(self) -> ContainerSpec:
        """Its container, the image ready to start from; sid and deadline are left open.

        Raises:
            ImageUnavailable, EngineUnavailable.
        """
        ...

    async def keep(self, record: SessionRecord) -> None:
        """Write it into Redis; from then on the session is there. Raises StateUnavailable."""
        ...


class TaskPlan:
    """A session of an instance."""

    def __init__(self, instance: TaskInstance, workspaces: Workspaces, store: Store, lasts_s: float) -> None:
        self._instance = instance
        self._workspaces = workspaces
        self._store = store
        self.name = self.instance_id = instance.instance_id
        self.cwd = instance.workspace
        self.lasts_s = lasts_s

    async def spec(self) -> ContainerSpec:
        """See `Plan.spec`."""
        return await self._workspaces.spec(self._instance)

    async def keep(self, record: SessionRecord) -> None:
        """See `Plan.keep`."""
        await self._store.put_session(record)
