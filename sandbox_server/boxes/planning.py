"""Plans a box from a client's request; the policy and the client's template decide what the request leaves out."""

import json
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial

from sandbox_server.boxes.allowed_images import AllowedImages
from sandbox_server.boxes.base_images import BaseImages
from sandbox_server.boxes.network import egress_of
from sandbox_server.boxes.plan import BoxPlan, ContainerSource, Lifetime
from sandbox_server.boxes.policy import BoxPolicy
from sandbox_server.boxes.snapshots import BoxSnapshots, Source
from sandbox_server.boxes.states import BoxStates
from sandbox_server.boxes.templates import TemplateBuilds
from sandbox_server.catalogue.snapshots import Snapshot
from sandbox_server.catalogue.templates import Result, TemplateBuild
from sandbox_server.errors import MalformedRequest, UnknownImage
from sandbox_server.images.box_images import INSTANCE_KEY, VIEW_KEY
from sandbox_server.records import BoxKind, BoxRecord, OnTimeout
from sandbox_server.sandbox.base import ImageInfo, Limits, Sandbox
from sandbox_server.state.boxes import BoxFacts
from sandbox_server.state.store import Store

_TOKEN_BYTES = 32
_MOST_TEXT = 256 << 10  # characters
_VIEW_KEYS = (VIEW_KEY, INSTANCE_KEY)


@dataclass(frozen=True, slots=True)
class BoxRequest:
    """A client's request for a box; the policy fills in what it leaves out."""

    kind: BoxKind
    image: str = ""
    """"": taken from the metadata or the template."""
    template: str = ""
    snapshot: str = ""
    """Id or name of a snapshot, instead of an image and a template."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    """User of commands that name none; "": the policy's default."""
    timeout_s: float | None = None
    """Lifetime from creation; None: SANDBOX_BOX_DEFAULT_S."""
    cpus: float | None = None
    memory_mb: int | None = None
    """None: from the metadata's size, else a session's default."""
    on_timeout: OnTimeout = OnTimeout.KILL
    timeout_files: bool = False
    """A pause at its end keeps only files."""
    auto_resume: bool = False
    """Requests to the paused box resume it."""
    internet: bool | None = None
    """False: no network, whatever the policy allows."""
    allow_out: tuple[str, ...] = ()
    deny_out: tuple[str, ...] = ()
    private: bool = False
    """Its ports accept only requests with its traffic token."""
    host_mask: str = ""
    """See `BoxRecord.host_mask`."""
    owner: str = ""
    """Name of the API key."""
    run: str = ""
    """Run that it counts for in the fair queue."""
    idempotency_key: str = ""
    """A repeated request with the same key returns the first one's box while it is live."""

    @property
    def text(self) -> str:
        """The request as JSON, without default values: it stays the same if a newer server adds fields."""
        given = {one.name: getattr(self, one.name) for one in fields(self) if getattr(self, one.name) != one.default}
        return json.dumps(given, sort_keys=True)


class BoxPlans:
    """Plans boxes of images and of clients' templates."""

    def __init__(
        self,
        store: Store,
        facts: BoxFacts,
        policy: BoxPolicy,
        allowed: AllowedImages,
        templates: TemplateBuilds,
        bases: BaseImages,
        states: BoxStates,
        snapshots: BoxSnapshots,
    ) -> None:
        self._snapshots = snapshots
        self._bases = bases
        self._states = states
        self._store = store
        self._facts = facts
        self._policy = policy
        self._allowed = allowed
        self._templates = templates

    @property
    def ready_s(self) -> float:
        """How long a template's start command has until its box is ready, in seconds."""
        return self._templates.bounds.ready_s

    async def template(self, asked: BoxRequest) -> TemplateBuild | None:
        """The client's template that the request names; None: it names an image, or an unknown template.

        Raises CatalogueUnavailable.
        """
        if asked.snapshot or not self._policy.by_template(asked.image, asked.template, asked.metadata):
            return None
        return await self._templates.ready(asked.owner, asked.template)

    async def source(self, asked: BoxRequest, settle: Callable[[Snapshot], Awaitable[None]]) -> Source | None:
        """The snapshot that the request names, perhaps as its template; None: it names none.

        Raises:
            UnknownImage: `asked.snapshot` does not exist. As `BoxSnapshots.source`.
        """
        if asked.snapshot:
            found = await self._snapshots.source(asked.owner, asked.snapshot, settle)
            if found is None:
                raise UnknownImage(f"snapshot {asked.snapshot!r} does not exist")
            return found
        if not self._policy.by_template(asked.image, asked.template, asked.metadata):
            return None
        return await self._snapshots.source(asked.owner, asked.template, settle)

    async def permit(self, image: str) -> None:
        """Raise UnknownImage unless clients may run `image`."""
        await self._allowed.permit(image)

    def plan(self, asked: BoxRequest, template: TemplateBuild | None, source: Source | None = None) -> BoxPlan:
        """Plan a box; its sid is not known yet. Raises UnknownImage, MalformedRequest: it cannot be granted."""
        policy = self._policy
        _bound(asked)
        if source is not None:
            base = self._from_box(asked, source)
        elif template is not None:
            base = self._from_template(asked, template)
        else:
            base = self._from_image(asked)
        defaults, limits = base.defaults, base.limits
        egress = egress_of(asked.allow_out, asked.deny_out)
        life_s = policy.life_s(asked.timeout_s)
        if asked.on_timeout is OnTimeout.PAUSE and not policy.paused_max_s:
            raise MalformedRequest("boxes cannot be paused here (SANDBOX_BOX_PAUSED_MAX_S is 0); let them end")
        box = BoxRecord(
            sid="",
            kind=asked.kind.value,
            image=base.image,
            template=asked.template,
            metadata={**base.view, **asked.metadata},
            env={**defaults.env, **asked.env},
            user=asked.user or defaults.user,
            workdir=defaults.workdir,
            token=secrets.token_urlsafe(_TOKEN_BYTES),
            network=policy.network_of(base.root, asked.internet, egress),
            allow_out=tuple(asked.allow_out),
            deny_out=tuple(asked.deny_out),
            cpus=limits.cpus,
            memory_mb=limits.memory_mb,
            disk_mb=limits.disk_mb,
            last_s=0.0,
            owner=asked.owner,
            life_s=life_s,
            on_timeout=asked.on_timeout.value,
            timeout_files=asked.timeout_files,
            auto_resume=asked.auto_resume,
            pausable_s=policy.paused_max_s,
            traffic_token=secrets.token_urlsafe(_TOKEN_BYTES) if asked.private else "",
            host_mask=asked.host_mask,
            root=base.root,
            built=base.built,
            start=defaults.start,
            ready=defaults.ready,
        )
        lifetime, images = Lifetime(life_s, policy.max_s), self._allowed.images
        return BoxPlan(
            box,
            limits,
            egress,
            lifetime,
            images=images,
            store=self._store,
            facts=self._facts,
            source=ContainerSource(base.make_image, base.restore_files, policy.may_sudo(base.root)),
        )

    def _from_image(self, asked: BoxRequest) -> "_BoxBase":
        policy = self._policy
        image = policy.image(asked.image, asked.template, asked.metadata)
        limits = policy.size(asked.metadata, asked.cpus, asked.memory_mb)
        return _BoxBase(image, image, limits, Result(user=policy.user))

    def _from_template(self, asked: BoxRequest, template: TemplateBuild) -> "_BoxBase":
        own, limits = template.result, self._templates.limits(template, asked.metadata)
        make_image = partial(self._templates.image, template)
        return _BoxBase(own.image, own.root, limits, own, built=template.name, make_image=make_image)

    def _from_box(self, asked: BoxRequest, source: Source) -> "_BoxBase":
        box = source.box
        return _BoxBase(
            box.image,
            box.root or box.image,
            self._policy.size_like(box, asked.metadata, asked.cpus, asked.memory_mb),
            _result(box),
            built=box.built,
            view={key: box.metadata[key] for key in _VIEW_KEYS if key in box.metadata},
            make_image=partial(self._bases.of, box, source.checkpoint.image),
            restore_files=partial(self._states.restore, source.checkpoint),
        )


@dataclass(frozen=True, slots=True)
class _BoxBase:
    """What a new box begins with: an image, a client's template, or the files of another box."""

    image: str
    root: str
    """The image below all templates, which the operator's settings name."""
    limits: Limits
    defaults: Result
    """Environment, user, folder and commands that the request adds to."""
    built: str = ""
    """Name of the template that the image was built for; "" if none."""
    view: Mapping[str, str] = field(default_factory=dict)
    """The other box's metadata that chose its view of the image; its files need the same view in the new box."""
    make_image: Callable[[], Awaitable[ImageInfo]] | None = None
    restore_files: Callable[[Sandbox], Awaitable[None]] | None = None


def _bound(asked: BoxRequest) -> None:
    """Raise MalformedRequest if the request has too much text: every list of boxes reads it, and servers keep it."""
    texts = [asked.template, asked.user, asked.host_mask, *asked.metadata, *asked.metadata.values()]
    texts += [*asked.env, *asked.env.values()]
    if sum(map(len, texts)) > _MOST_TEXT:
        raise MalformedRequest(
            f"metadata and environment have at most {_MOST_TEXT >> 10} KB together; write long texts to files"
        )


def _result(box: BoxRecord) -> Result:
    """The box's image and settings, in the form of a build's result."""
    return Result(
        image=box.base, env=dict(box.env), user=box.user, workdir=box.workdir, start=box.start, ready=box.ready
    )
