"""Everything that is stored about sessions, behind one name."""

from dataclasses import dataclass

from sandbox_server.catalogue.history import History
from sandbox_server.catalogue.instances import Instances
from sandbox_server.catalogue.rollouts import Rollouts
from sandbox_server.records import SessionRecord
from sandbox_server.state.store import Store


@dataclass(frozen=True, slots=True)
class SessionData:
    """Live sessions in Redis, their history in SQL, the tasks that they solve, and what trainers report on them."""

    store: Store
    history: History
    instances: Instances
    rollouts: Rollouts

    async def session(self, sid: str) -> SessionRecord | None:
        """The session's record, from Redis or else from SQL; None if neither has it.

        Raises:
            StateUnavailable, CatalogueUnavailable.
        """
        return await self.store.session(sid) or await self.history.session(sid)
