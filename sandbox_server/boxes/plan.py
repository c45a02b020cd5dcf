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
class Lifetime:
    """Limits in seconds since the box's creation."""

    lasts_s: float
    """Requested lifetime."""
    most_s: float
    """Latest time that its end can be moved to."""


@dataclass(frozen=True, slots=True)
class ContainerSource:
    """How a box's container is made, if it is not made from the requested image alone."""

    image: Callable[[], Awaitable[ImageInfo]] | None = None
    """The image that it is made from instead, e.g. its template's."""
    restore_files: Callable[[Sandbox], Awaitable[None]] | None = None
    """Gives the fresh container the files of another box."""
    setuid: bool = False
    """See `ContainerSpec`."""


class BoxPlan:
    """A `starts.plan.Plan`."""

    instance_id = ""
    cwd = ""

    def __init__(
        self,
        box: BoxRecord,
        limits: Limits,
        egress: Egress | None,
        lifetime: Lifetime,
        *,
        images: BoxImages,
        store: Store,
        facts: BoxFacts,
        source: ContainerSource,
    ) -> None:
        """`box` still lacks `sid`, `last_s`, `base` and `image_path`, which are known only when it starts."""
        self._source = source
        self._limits = limits
        self._egress = egress
        self._lifetime = lifetime
        self._images = images
        self._store = store
        self._facts = facts
        self.box = box
        reach = " ".join((box.network, *box.allow_out, "-", *box.deny_out))
        view = " ".join(box.metadata.get(key, "") for key in (VIEW_KEY, INSTANCE_KEY))
        self.name = f"box {box.image} {view} {reach} {limits.cpus:g} {limits.memory_mb}"
        self.lasts_s = lifetime.lasts_s

    async def spec(self) -> ContainerSpec:
        """See `Plan.spec`. Without the box's environment, so that boxes of one image share pooled containers."""
        image = self._source.image
        info = await (image() if image else self._images.of(self.box.image, self.box.metadata))
        path = self.box.env.get("PATH", "") or info.env.get("PATH", "")
        self.box = replace(self.box, image_path=path, base=info.name)
        return ContainerSpec(
            image=info.name,
            role=Role.SESSION,
            sid="",
            deadline=datetime.max.replace(tzinfo=UTC),
            network=self.box.network,
            egress=self._egress,
            limits=self._limits,
            with_shell=False,
            setuid=self._source.setuid,
        )

    async def begin(self, record: SessionRecord, sandbox: Sandbox) -> SessionRecord:
        """See `Plan.begin`. With files of another box, raises as `BoxStates.restore` too."""
        if self._source.restore_files is not None:
            await self._source.restore_files(sandbox)
        self.box = replace(self.box, sid=record.sid, last_s=record.created_at + self._lifetime.most_s)
        await self._facts.put(self.box, record.deadline)
        await self._store.put_session(record)
        return record
