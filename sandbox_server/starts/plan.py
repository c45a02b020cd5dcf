"""Plans of starts: a session of an instance, or a box (`boxes.plan`)."""

from typing import Protocol

from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.images.workspaces import Workspaces
from sandbox_server.records import SessionRecord
from sandbox_server.sandbox.base import ContainerSpec, Sandbox
from sandbox_server.state.store import Store


class Plan(Protocol):
    """The session that a start creates."""

    @property
    def name(self) -> str:
        """Common name of equivalent starts: they form groups, and share parked containers."""
        ...

    @property
    def instance_id(self) -> str:
        """Empty for a box."""
        ...

    @property
    def cwd(self) -> str:
        """Initial working directory of its shell."""
        ...

    @property
    def lasts_s(self) -> float:
        """Seconds from its start to its deadline."""
        ...

    async def spec(self) -> ContainerSpec:
        """Prepare the image and return the container's spec, without sid and deadline.

        Raises:
            ImageUnavailable, EngineUnavailable.
        """
        ...

    async def begin(self, record: SessionRecord, sandbox: Sandbox) -> SessionRecord:
        """Write the session to Redis, which makes it exist, and return its record as written.

        `sandbox`: the session's container, in which nothing has run yet.

        Raises:
            StateUnavailable. For a copy of a session, see `sessions.forking`.
        """
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

    async def begin(self, record: SessionRecord, sandbox: Sandbox) -> SessionRecord:
        """See `Plan.begin`."""
        await self._store.put_session(record)
        return record
