"""Templates: images that clients build and name, each for the API key that made it.

A build waits in a fair queue of its node, which runs few at a time. Its definition and its result are in SQL, so any
node can report it, and a node whose engine lacks the image builds it again from the definition.
"""

import asyncio
import re
import secrets
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from sandbox_server import clock, telemetry
from sandbox_server.boxes.policy import BoxPolicy
from sandbox_server.catalogue.templates import (
    BUILDING,
    ERROR,
    READY,
    BuildState,
    LogEntry,
    Recipe,
    Result,
    Tag,
    Template,
    TemplateBuild,
    Templates,
)
from sandbox_server.errors import (
    CapacityError,
    MalformedRequest,
    RequestError,
    RequestTooLarge,
    ServiceError,
    UnknownImage,
)
from sandbox_server.images.template_images import BuildLimits, StepFailed, TemplateImages
from sandbox_server.pool.fair_queue import FairQueue, QueueFull, Ticket
from sandbox_server.sandbox.base import ImageInfo, Limits, Runtime
from sandbox_server.state.nodes import NodeRecord
from sandbox_server.tasks import TaskSet

log = telemetry.logger(__name__)

DEFAULT_TAG = "default"
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,127}")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_MOST_STEPS = 1000
_MOST_TEXT = 1 << 20
_MOST_TAGS = 50
_MOST_UPLOADS = 8  # at a time on a node; each holds up to SANDBOX_TEMPLATE_FILES_MB in memory
_ARGS = {"RUN": (1, 2), "COPY": (2, 4), "ENV": (2, 10_000), "USER": (1, 1), "WORKDIR": (1, 1)}
Base = Callable[[str], Awaitable[ImageInfo]]
"""Name of an image -> the image from which a box with this name would start."""


class UnknownTemplate(RequestError):
    """The key has no such template, build or tag."""

    code = "unknown_template"
    http_status = 404


@dataclass(frozen=True, slots=True)
class TemplateBounds:
    """The operator's settings SANDBOX_TEMPLATE_*. All times in seconds."""

    builds: int
    """Concurrent builds on this node; 0: builds are off."""
    queue: int
    """Maximum waiting builds."""
    build_s: float
    ready_s: float
    files_bytes: int
    """Maximum size of one archive, and of its contents."""
    files_total_bytes: int
    """Maximum size of all archives of a key's templates."""


def parsed(name: str) -> tuple[str, str]:
    """`name[:tag]` as name and tag; "" for no tag. Raises MalformedRequest."""
    name, _, tag = name.strip().lower().partition(":")
    if not _NAME.fullmatch(name) or (tag and not _TAG.fullmatch(tag)):
        raise MalformedRequest(
            f"{name[:100]!r} cannot name a template: name[:tag] of lower-case letters, digits and - _ ."
        )
    return name, tag


class TemplateBuilds:
    """Builds templates on this node, and finds those of all nodes. The owner None stands for all owners."""

    def __init__(
        self,
        runtime: Runtime,
        store: Templates,
        base: Base,
        policy: BoxPolicy,
        bounds: TemplateBounds,
        *,
        node: str,
        alive: Callable[[], Awaitable[Sequence[NodeRecord]]],
    ) -> None:
        """`base` also checks that boxes may run the image; `alive` is `Nodes.alive`."""
        self.store = store
        self.bounds = bounds
        self._images = TemplateImages(runtime, store)
        self._runtime = runtime
        self._base = base
        self._policy = policy
        self._node = node
        self._alive = alive
        self._queue = FairQueue(max(1, bounds.builds), most_waiting=bounds.queue)
        self._tasks = TaskSet("template builds")
        self._making: dict[str, asyncio.Task[Result]] = {}
        self._begun: set[str] = set()
        self._uploads = 0

    async def recover(self) -> None:
        """Mark the unfinished builds of an earlier server of this node as failed."""
        for state in await self.store.left_by(self._node):
            left = state.build.model_copy(update={"reason": "the server restarted during the build; build it again"})
            await self.store.save(left, ERROR, node=self._node, log=state.log)

    async def close(self) -> None:
        """Cancel the running builds."""
        await self._tasks.cancel()

    # ---- what clients ask

    async def request(
        self, owner: str, name: str, tags: Sequence[str], cpus: float | None, memory_mb: int | None
    ) -> TemplateBuild:
        """A new build of the template `name[:tag]`, which waits for its recipe."""
        if not self.bounds.builds:
            raise MalformedRequest("this server builds no templates: SANDBOX_TEMPLATE_BUILDS is 0")
        name, tag = parsed(name)
        given = [tag, *tags] if tag else [*tags]
        if len(given) > _MOST_TAGS or not all(_TAG.fullmatch(one) for one in given):
            raise MalformedRequest(f"a build has at most {_MOST_TAGS} tags, of letters, digits and - _ .")
        template = await self.store.ensure(secrets.token_hex(10), owner, name)
        build = TemplateBuild(
            build_id=str(uuid.uuid4()),
            template_id=template.template_id,
            owner=template.owner,
            name=name,
            tags=tuple(dict.fromkeys(given)) or (DEFAULT_TAG,),
            cpus=cpus,
            memory_mb=memory_mb,
            created_at=clock.now(),
        )
        await self.store.add(build)
        return build

    async def trigger(self, build: TemplateBuild, recipe: Recipe, base_template: str) -> None:
        """Start a build. Raises MalformedRequest, UnknownTemplate; CapacityError: too many builds wait."""
        self._check(recipe)
        if named := self._policy.templates.get(base_template.partition(":")[0]):  # settings win, as when a box starts
            recipe = recipe.model_copy(update={"image": named})
        elif base_template:
            parent = await self.ready(build.owner, base_template)
            if parent is None:
                raise UnknownTemplate(f"template {base_template[:100]!r} does not exist or has no ready build")
            recipe = recipe.model_copy(update={"base_build": parent.build_id})
        if self._queue.waiting >= self.bounds.queue:
            raise CapacityError(f"{self._queue.waiting} builds wait already (SANDBOX_TEMPLATE_QUEUE)", reason="queue")
        build = build.model_copy(update={"recipe": recipe})
        if build.build_id in self._begun or not await self._take(build):
            raise MalformedRequest(f"build {build.build_id} was started before; request a new one")
        self._tasks.start(self._build(build))

    async def _take(self, build: TemplateBuild) -> bool:
        self._begun.add(build.build_id)  # first, so that concurrent readers do not see it as lost
        taken = False
        try:
            taken = await self.store.trigger(build, self._node)
        finally:
            if not taken:
                self._begun.discard(build.build_id)
        return taken

    def _check(self, recipe: Recipe) -> None:
        if len(recipe.steps) > _MOST_STEPS:
            raise MalformedRequest(f"a template has at most {_MOST_STEPS} steps")
        texts = [recipe.image, recipe.start, recipe.ready, *(arg for step in recipe.steps for arg in step.args)]
        if sum(map(len, texts)) > _MOST_TEXT:  # every list of templates reads them all
            raise MalformedRequest(f"the steps of a template have at most {_MOST_TEXT >> 20} MB of text; COPY files")
        for number, step in enumerate(recipe.steps, 1):
            least, most = _ARGS.get(step.kind, (1, 0))
            if not least <= len(step.args) <= most or any("\0" in arg for arg in step.args):
                raise MalformedRequest(f"step {number}, {step.kind[:20]!r}: unknown, or its arguments do not fit")

    async def find(self, owner: str | None, named: str) -> Template:
        """The template of this id or name, without its tag. Raises UnknownTemplate."""
        name = named.partition(":")[0].lower()
        found = await self.store.by_id(name)
        if found is None or owner not in (None, found.owner):
            found = await self.store.named(owner or "", name)
        if found is None:
            raise UnknownTemplate(f"template {named[:100]!r} does not exist")
        return found

    async def build_of(self, owner: str | None, template_id: str, build_id: str) -> BuildState:
        """The present state of the build. Raises UnknownTemplate."""
        template = await self.find(owner, template_id)
        state = await self.store.build(build_id)
        if state is None or state.build.template_id != template.template_id:
            raise UnknownTemplate(f"build {build_id[:100]!r} does not exist")
        if await self._goes_on(state):
            return state
        state = await self.store.build(build_id) or state  # it may have ended since it was read
        if await self._goes_on(state):
            return state
        lost = state.build.model_copy(update={"reason": "the node that built it is gone; build it again"})
        return replace(state, status=ERROR, build=lost)

    async def _goes_on(self, state: BuildState) -> bool:
        """Whether the build has ended, or is queued or running on some node."""
        if state.status in (READY, ERROR) or not state.node:
            return True
        if state.node == self._node:  # False if it has ended, but its result could not be written to SQL
            return state.build.build_id in self._begun
        return state.node in {node.node for node in await self._alive()}

    async def ready(self, owner: str | None, named: str) -> TemplateBuild | None:
        """The ready build that `name[:tag]` or `name:build_id` names for boxes of this owner; None: there is none."""
        try:
            template = await self.find(owner, named)
        except UnknownTemplate:
            return None
        tag = named.partition(":")[2] or DEFAULT_TAG
        tags = {one.tag: one.build_id for one in await self.store.tags(template.template_id)}
        state = await self.store.build(tags.get(tag, tag))
        if state is None or state.build.template_id != template.template_id or state.status != READY:
            return None
        return state.build

    async def tag(self, owner: str | None, target: str, tags: Sequence[str]) -> str:
        """Add tags to the build that `target` refers to; return its id. Raises UnknownTemplate."""
        if len(tags) > _MOST_TAGS or not all(_TAG.fullmatch(one) for one in tags):
            raise MalformedRequest(f"at most {_MOST_TAGS} tags, of letters, digits and - _ .")
        build = await self.ready(owner, target)
        if build is None:
            raise UnknownTemplate(f"template {target[:100]!r} does not exist")
        await self.store.tag(build.template_id, tags, build.build_id)
        return build.build_id

    async def tags(self, owner: str | None, named: str) -> list[Tag]:
        """The template's tags."""
        return await self.store.tags((await self.find(owner, named)).template_id)

    async def expect_file(self, owner: str | None, template_id: str, files_hash: str) -> tuple[bool, str]:
        """Whether the archive is already there, and the token for its upload. Raises UnknownTemplate."""
        template = await self.find(owner, template_id)
        if not re.fullmatch("[A-Za-z0-9_-]{1,100}", files_hash):
            raise MalformedRequest("a hash of files is 1 to 100 letters and digits")
        token = secrets.token_urlsafe(32)
        return await self.store.expect_file(template.template_id, files_hash, token), token

    async def room_for(self, token: str) -> int:
        """Maximum size of the upload in bytes. Raises UnknownTemplate, RequestTooLarge."""
        template_id = await self.store.upload_of(token)
        template = None if template_id is None else await self.store.by_id(template_id)
        if template is None:
            raise UnknownTemplate("this upload is not expected: ask for a new link")
        used = await self.store.files_bytes(template.owner)
        if used >= self.bounds.files_total_bytes:
            raise RequestTooLarge(
                f"this key's templates hold {used >> 20} MB of files (SANDBOX_TEMPLATE_FILES_TOTAL_MB); delete some"
            )
        return min(self.bounds.files_bytes, self.bounds.files_total_bytes - used)

    # ---- images

    async def image(self, build: TemplateBuild) -> ImageInfo:
        """The build's image on this engine; builds it again if it is missing.

        Raises:
            UnknownImage: it cannot be built any more. CapacityError, InfrastructureError.
        """
        if found := await self._runtime.images.find(build.result.image):
            return found
        try:
            result = await self._once(build, _untold)
        except StepFailed as error:
            raise UnknownImage(f"template {build.name!r} does not exist here any more: {error.detail}") from error
        # look the image up: the result of its build lacks the image's environment
        return await self._runtime.images.resolve([result.image])

    @contextmanager
    def uploading(self) -> Iterator[None]:
        """Count a body that is held in memory in the context. Raises CapacityError: too many others are."""
        if self._uploads >= _MOST_UPLOADS:
            raise CapacityError(f"{self._uploads} archives are being uploaded; try again", reason="uploads")
        self._uploads += 1
        try:
            yield
        finally:
            self._uploads -= 1

    async def _build(self, build: TemplateBuild) -> None:
        try:
            await self._build_and_tell(build)
        finally:
            self._begun.discard(build.build_id)

    async def _build_and_tell(self, build: TemplateBuild) -> None:
        entries: list[LogEntry] = []

        async def tell(text: str) -> None:
            entries.extend(LogEntry(clock.now(), "info", line) for line in text.splitlines())
            await self.store.save(build, BUILDING, node=self._node, log=entries)

        try:
            result = await self._once(build, tell)
        except ServiceError as error:
            step = error.step if isinstance(error, StepFailed) else "base"
            failed = build.model_copy(update={"reason": error.detail[:4000], "step": step})
            entries.append(LogEntry(clock.now(), "error", error.detail[:1000]))
            log.info("template not built", template=build.name, build=build.build_id, step=step, code=error.code)
            await self.store.save(failed, ERROR, node=self._node, log=entries)
            return
        except Exception:
            broken = build.model_copy(update={"reason": "the server failed; its log says why; build it again"})
            await self.store.save(broken, ERROR, node=self._node, log=entries)
            raise
        entries.append(LogEntry(clock.now(), "info", "Build finished"))
        done = build.model_copy(update={"result": result})
        await self.store.save(done, READY, node=self._node, log=entries)
        await self.store.tag(build.template_id, build.tags, build.build_id)
        log.info("template built", template=build.name, build=build.build_id, image=result.image)

    async def _once(self, build: TemplateBuild, tell: Callable[[str], Awaitable[None]]) -> Result:
        """Build the image; concurrent callers share one build, which continues if a caller is cancelled."""
        task = self._making.get(build.build_id)
        if task is None:
            task = self._making[build.build_id] = self._tasks.start(self._make(build, tell), awaited=True)
            task.add_done_callback(lambda _: self._making.pop(build.build_id, None))
        return await asyncio.shield(task)

    async def _make(self, build: TemplateBuild, tell: Callable[[str], Awaitable[None]]) -> Result:
        recipe = build.recipe or Recipe()
        inherited = Result()
        if recipe.base_build:  # before this build takes a place in the queue: the base may need one for its own build
            parent = await self.store.build(recipe.base_build)
            if parent is None or parent.status != READY:
                raise StepFailed("base", "the template that it starts from does not exist any more")
            base, inherited = await self.image(parent.build), parent.build.result
        else:
            base = await self._base_image(recipe.image)
        ticket = Ticket(build.owner)
        try:
            await self._queue.acquire(ticket)
        except QueueFull:
            raise CapacityError("too many builds wait (SANDBOX_TEMPLATE_QUEUE); try again", reason="queue") from None
        try:
            return await self._images.built(
                recipe,
                base,
                inherited,
                owner=build.owner,
                template_id=build.template_id,
                bounds=self._bounds(build, inherited.root or recipe.image),
                tell=tell,
            )
        finally:
            self._queue.release(build.owner)

    async def _base_image(self, image: str) -> ImageInfo:
        try:
            return await self._base(self._policy.image(image, "", {}))
        except RequestError as error:
            raise StepFailed("base", error.detail) from error

    def _bounds(self, build: TemplateBuild, image: str) -> BuildLimits:
        return BuildLimits(
            limits=self.limits(build, {}),
            network=self._policy.network_of(image, None, None),
            build_s=self.bounds.build_s,
            ready_s=self.bounds.ready_s,
            copy_bytes=self.bounds.files_bytes,
            setuid=self._policy.may_sudo(image),
        )

    def limits(self, build: TemplateBuild, metadata: Mapping[str, str]) -> Limits:
        """Limits of its containers, as the template asks; memory is at most that of the largest box size."""
        largest = max(
            self._policy.limits.memory_mb, *(size.memory_mb or 0 for size in (*self._policy.sizes.values(),)), 0
        )
        memory_mb = None if build.memory_mb is None else min(build.memory_mb, largest)
        return self._policy.size(metadata, build.cpus, memory_mb)


async def _untold(text: str) -> None:
    """Discard the log of an image that is built again: no client reads it."""
