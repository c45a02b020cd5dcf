"""How a box starts: from its image, in a container without the persistent shell, with a BoxRecord for its session."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from sandbox_server.images.box_images import INSTANCE_KEY, VIEW_KEY, BoxImages
from sandbox_server.records import BoxRecord, SessionRecord
from sandbox_server.sandbox.base import ContainerSpec, ImageInfo, Limits, Role, Sandbox
from sandbox_server.sandbox.egress import Egress
from sandbox_server.state.boxes import BoxFacts
from sandbox_server.state.store import Store


@dataclass(frozen=True, slots=True)
class Life:
    """Limits in seconds since the box's creation."""

    lasts_s: float
    """Requested lifetime."""
    most_s: float
    """Latest time that its end can be moved to."""


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
        built: Callable[[], Awaitable[ImageInfo]] | None = None,
        setuid: bool = False,
    ) -> None:
        """`box` still lacks `sid`, `last_s` and `image_path`, which are known only when it starts.

        `built()`: the image of its template, instead of `images`. `setuid`: see `ContainerSpec`.
        """
        self._setuid = setuid
        self._built = built
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
        """See `Plan.spec`. Without the box's environment, so that boxes of one image share pooled containers."""
        info = await (self._built() if self._built else self._images.of(self.box.image, self.box.metadata))
        self.box = replace(self.box, image_path=self.box.env.get("PATH", "") or info.env.get("PATH", ""))
        return ContainerSpec(
            image=info.name,
            role=Role.SESSION,
            sid="",
            deadline=datetime.max.replace(tzinfo=UTC),
            network=self.box.network,
            egress=self._egress,
            limits=self._limits,
            with_shell=False,
            setuid=self._setuid,
        )

    async def begin(self, record: SessionRecord, sandbox: Sandbox) -> SessionRecord:
        """See `Plan.begin`."""
        self.box = replace(self.box, sid=record.sid, last_s=record.created_at + self._life.most_s)
        await self._facts.put(self.box, record.deadline)
        await self._store.put_session(record)
        return record
