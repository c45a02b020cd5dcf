"""How a box begins: its image as it is, a container without a shell of ours, and its facts beside the session."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from sandbox_server.images.box_images import INSTANCE_KEY, VIEW_KEY, BoxImages
from sandbox_server.records import BoxRecord, SessionRecord
from sandbox_server.sandbox.base import ContainerSpec, Limits, Role
from sandbox_server.sandbox.egress import Egress
from sandbox_server.state.boxes import BoxFacts
from sandbox_server.state.store import Store


@dataclass(frozen=True, slots=True)
class Life:
    """Seconds from the beginning of a box."""

    lasts_s: float
    """To its end, as asked for."""
    most_s: float
    """To the last moment that its end can be moved to."""


class BoxPlan:
    """A `sessions.plan.Plan`."""

    instance_id = ""
    cwd = ""

    def __init__(
        self,
        box: BoxRecord,
        limits: Limits,
        egress: Egress | None,
        life: Life,
        *,
        images: BoxImages,
        store: Store,
        facts: BoxFacts,
    ) -> None:
        """`box` has all but its sid, its last moment and what its image says: known only when it begins."""
        self._limits = limits
        self._egress = egress
        self._life = life
        self._images = images
        self._store = store
        self._facts = facts
        self.box = box
        reach = " ".join((box.network, *box.allow_out, "-", *box.deny_out))
        view = " ".join(box.metadata.get(key, "") for key in (VIEW_KEY, INSTANCE_KEY))
        self.name = f"box {box.image} {view} {reach} {limits.cpus:g} {limits.memory_mb}"
        self.lasts_s = life.lasts_s

    async def spec(self) -> ContainerSpec:
        """See `Plan.spec`. Without the box's environment: boxes of one image find containers parked for each other."""
        info = await self._images.of(self.box.image, self.box.metadata)
        self.box = replace(self.box, image_path=info.env.get("PATH", ""))
        return ContainerSpec(
            image=info.name,
            role=Role.SESSION,
            sid="",
            deadline=datetime.max.replace(tzinfo=UTC),
            network=self.box.network,
            egress=self._egress,
            limits=self._limits,
            with_shell=False,
        )

    async def keep(self, record: SessionRecord) -> None:
        """See `Plan.keep`."""
        self.box = replace(self.box, sid=record.sid, last_s=record.created_at + self._life.most_s)
        await self._facts.put(self.box, record.deadline)
        await self._store.put_session(record)
