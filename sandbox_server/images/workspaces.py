"""Makes sealed and prepared images, each once, under a name that is a hash of all its inputs.

Sealed image, for gradings: the task image after its setup commands, without any history after HEAD.
Prepared image, for sessions: the sealed image without the paths hidden from the agent, with the agent's workspace path
and the git store that its patch is taken against.
"""

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from importlib import resources

from sandbox_server.catalogue.instance import GitSource, HarborGrader, TaskInstance
from sandbox_server.catalogue.swepro import TESTS_FOLDER, setup_commands, tests_checkout_of
from sandbox_server.errors import ImageUnavailable
from sandbox_server.images import carried
from sandbox_server.images.built_images import BuiltImages
from sandbox_server.images.preparing import REPOSITORY, Preparing
from sandbox_server.images.repository_images import LEFT_OUT_LABEL, RepositoryImages
from sandbox_server.images.services import service_specs, with_services
from sandbox_server.sandbox.base import ContainerSpec, ImageInfo, Limits, Role, Runtime, Sandbox
from sandbox_server.sandbox.egress import allowing

TASK_IMAGE_LABEL = "sandbox.task_image"
"""Names the task image that a prepared image was made from, in the form in which nodes report it."""
_BASE_LABEL = "sandbox.base_commit"
_DIGEST_LABEL = "sandbox.task_digest"
_SEAL = resources.files(__package__).joinpath("seal.bash").read_text()
_PREPARE = resources.files(__package__).joinpath("prepare.bash").read_text()
_Step = Callable[[TaskInstance, ImageInfo, Sandbox], Awaitable[Mapping[str, str]]]
"""(instance, image of the container, container) -> labels."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """An image that sessions of an instance start from."""

    image: str
    base_commit: str
    """The task image's own HEAD."""
    left_out: str
    """The parts of the instance's repository that are missing in it; "" for none."""


class Workspaces:
    """Prepares images; concurrent requests for an image share one preparation."""

    def __init__(
        self,
        runtime: Runtime,
        preparing: Preparing,
        repositories: RepositoryImages,
        built: BuiltImages,
        *,
        limits: Limits,
        search_image: str,
    ) -> None:
        """`search_image` is the base of instances that have a `source` and name no image."""
        self._built = built
        self._runtime = runtime
        self._preparing = preparing
        self._repositories = repositories
        self._limits = limits
        self._search_image = search_image

    async def prepared(self, instance: TaskInstance) -> Prepared:
        """The image that sessions of `instance` start from; makes it, and those of its services, if necessary.

        Raises:
            ImageUnavailable: the task image is missing or cannot be prepared; RepositoryUnavailable: its repository
                cannot be fetched; EngineUnavailable.

        """
        base = await self._base(instance)
        name = _name(instance, base)
        made = await self._preparing.once(name, partial(self._make, instance, base, name))
        await service_specs(instance, self._runtime, self._built)
        return Prepared(name, made.labels.get(_BASE_LABEL, ""), made.labels.get(LEFT_OUT_LABEL, ""))

    async def fetch(self, instances: Sequence[TaskInstance]) -> None:
        """Fetch the repositories of the unprepared instances, each once; `prepared` reports a failed fetch.

        Raises:
            ImageUnavailable: a base image is missing; EngineUnavailable.

        """
        wanted = []
        for instance in instances:
            if instance.sandbox.source and not await self._runtime.images.find(
                _name(instance, await self._base(instance))
            ):
                wanted.append(instance.sandbox.source)
        await self._repositories.fetch(wanted)

    async def sealed(self, instance: TaskInstance) -> ImageInfo:
        """The image that gradings of `instance` start from, with the task image's digest; makes it if necessary.

        The setup commands have run, no paths are hidden, and there is no history after HEAD. Tests that are checked
        out from a later commit are stored outside the tree, for the grader.

        Raises:
            As `prepared`.

        """
        made = await self._sealed(instance, await self._grading_base(instance))
        return replace(made, digest=made.labels[_DIGEST_LABEL])

    async def boxed(self, instance: TaskInstance) -> ImageInfo:
        """The image that a box of the task's image starts from; it has what a session sees. Makes it if necessary.

        Without a repository in the work directory there can be no sessions; then only the hidden paths are removed.

        Raises:
            As `prepared`.

        """
        base = await self._base(instance)
        name = _name(instance, base)
        if found := await self._runtime.images.find(name):
            return found
        if instance.carried:
            await self.prepared(instance)
            return await self._runtime.images.resolve([name])
        sealed = await self._sealed(instance, base)
        if not sealed.labels.get(_BASE_LABEL):
            if not instance.sandbox.hidden_paths and not setup_commands(instance):
                return base
            name = _named("box-", [_sealed_name(instance, base), instance.sandbox.hidden_paths], None)
            await self._preparing.once(name, partial(self._freeze, instance, sealed, name, self._hide))
        else:
            await self.prepared(instance)
        # resolve it again: the result of making it lacks the image's environment
        return await self._runtime.images.resolve([name])

    async def spec(self, instance: TaskInstance) -> ContainerSpec:
        """Prepare the image and return the container spec of a session of `instance`, without sid and deadline.

        Raises:
            As `prepared`.
        """
        own = instance.sandbox
        named = {name: getattr(own, name) for name in ("memory_mb", "cpus", "pids", "disk_mb")}
        spec = ContainerSpec(
            image=(await self.prepared(instance)).image,
            role=Role.SESSION,
            sid="",
            deadline=datetime.max.replace(tzinfo=UTC),
            workdir=own.workdir if instance.carried else instance.workspace,
            env=own.env,
            user=own.user,
            activate=own.activate,
            network=own.network,
            egress=allowing(own.allowed),
            limits=replace(self._limits, **{name: value for name, value in named.items() if value is not None}),
        )
        return await self.with_services(spec, instance)

    async def with_services(self, spec: ContainerSpec, instance: TaskInstance) -> ContainerSpec:
        """`spec` with the services of a sandbox of `instance` and its health check; makes the services' images.

        Raises:
            ImageUnavailable, EngineUnavailable.
        """
        return await with_services(spec, instance, self._runtime, self._built)

    async def _base(self, instance: TaskInstance) -> ImageInfo:
        own = instance.sandbox
        if own.build is not None:
            return await self._built.image(own.build, instance.instance_id)
        if own.images or own.source is None:
            return await self._runtime.images.resolve(own.images)
        try:
            return await self._runtime.images.resolve((self._search_image,))
        except ImageUnavailable as e:
            what = f"{self._search_image} (SANDBOX_SEARCH_IMAGE), which {instance.instance_id} starts from"
            raise ImageUnavailable(
                f"{what}: make it on this host: `sandbox-server images build search`. {e.detail}", absent=e.absent
            ) from e

    async def _grading_base(self, instance: TaskInstance) -> ImageInfo:
        grader = instance.grader
        if not isinstance(grader, HarborGrader) or not grader.images:
            return await self._base(instance)
        if grader.build is not None:
            return await self._built.image(grader.build, f"{instance.instance_id}'s verifier")
        return await self._runtime.images.resolve(grader.images)

    async def _task_image(self, instance: TaskInstance, base: ImageInfo) -> ImageInfo:
        own = instance.sandbox
        return base if own.source is None else await self._repositories.image(own.source, base, own.workdir)

    async def _sealed(self, instance: TaskInstance, base: ImageInfo) -> ImageInfo:
        name = _sealed_name(instance, base)
        return await self._preparing.once(name, partial(self._make_sealed, instance, base, name))

    async def _make_sealed(self, instance: TaskInstance, base: ImageInfo, name: str) -> ImageInfo:
        return await self._freeze(instance, await self._task_image(instance, base), name, self._seal)

    async def _make(self, instance: TaskInstance, base: ImageInfo, name: str) -> ImageInfo:
        if instance.carried:  # from the task's image, so that no layer of the session's image has the tests
            return await self._freeze(instance, base, name, self._open_carried)
        opening = partial(self._open, base)
        if instance.grader is not None and not instance.localizes:
            return await self._freeze(instance, await self._sealed(instance, base), name, opening)
        # no grading needs the sealed image, so one container does both steps
        return await self._freeze(instance, await self._task_image(instance, base), name, self._seal, opening)

    async def _freeze(self, instance: TaskInstance, image: ImageInfo, name: str, *steps: _Step) -> ImageInfo:
        async def change(sandbox: Sandbox) -> Mapping[str, str]:
            labels: dict[str, str] = {}
            for step in steps:
                labels |= await step(instance, image, sandbox)
            return labels

        own = instance.sandbox
        made = await self._preparing.freeze(name, image.name, change, env=own.env, network=own.network)
        return replace(made, labels={**image.labels, **made.labels})

    async def _seal(self, instance: TaskInstance, image: ImageInfo, sandbox: Sandbox) -> Mapping[str, str]:
        """Run the setup commands, store the tests aside and scrub the history."""
        if instance.carried:
            return {**await carried.seal(self._preparing, instance, sandbox), _DIGEST_LABEL: image.digest}
        workdir = instance.sandbox.workdir
        what = f"{instance.instance_id} (repair the image or the instance's setup_commands)"
        for command in setup_commands(instance):
            await self._preparing.run(sandbox, ["bash", "-c", command], cwd=workdir, what=what)
        if instance.sandbox.source is not None:
            # the files' inodes differ from those in the index; without a refresh the first `git status` reads them all
            refresh = ["git", "-c", "safe.directory=*", "update-index", "-q", "--refresh"]
            await self._preparing.run(sandbox, refresh, cwd=workdir, what=what)
        scrub = ["bash", "-c", _SEAL, "seal", workdir, tests_checkout_of(instance), TESTS_FOLDER]
        base_commit = await self._preparing.run(sandbox, scrub, cwd="/", what=what)
        return {_BASE_LABEL: base_commit, _DIGEST_LABEL: image.digest}

    async def _open_carried(self, instance: TaskInstance, image: ImageInfo, sandbox: Sandbox) -> Mapping[str, str]:
        await carried.open_workspace(self._preparing, instance, sandbox)
        return {TASK_IMAGE_LABEL: image.name}

    async def _hide(self, instance: TaskInstance, image: ImageInfo, sandbox: Sandbox) -> Mapping[str, str]:
        """Remove the paths hidden from the agent."""
        argv = ["rm", "-rf", "--", TESTS_FOLDER, *instance.sandbox.hidden_paths]
        await self._preparing.run(sandbox, argv, cwd="/", what=f"{instance.instance_id} (mend its hidden_paths)")
        return {TASK_IMAGE_LABEL: instance.sandbox.images[0]}

    async def _open(
        self, base: ImageInfo, instance: TaskInstance, image: ImageInfo, sandbox: Sandbox
    ) -> Mapping[str, str]:
        """Turn a sealed tree into the agent's workspace."""
        own = instance.sandbox
        argv = ["bash", "-c", _PREPARE, "prepare", own.workdir, instance.workspace, TESTS_FOLDER, *own.hidden_paths]
        await self._preparing.run(sandbox, argv, cwd="/", what=f"{instance.instance_id} (mend the image)")
        for alias in instance.workspace_aliases:
            link = ["ln", "-sfn", "--", own.workdir, alias]
            await self._preparing.run(sandbox, link, cwd="/", what=f"{instance.instance_id} (mend the image)")
        return {TASK_IMAGE_LABEL: own.source.name if own.source else base.name}


def for_gradings_only(image: ImageInfo) -> bool:
    """Whether the image is sealed but not prepared for sessions: such an image contains hidden tests."""
    return _DIGEST_LABEL in image.labels and TASK_IMAGE_LABEL not in image.labels


def _sealed_name(instance: TaskInstance, base: ImageInfo) -> str:
    own = instance.sandbox
    if instance.carried:
        return _named("sealed-", [base.digest, *carried.facts(instance)], None)
    facts = [
        base.digest,
        own.workdir,
        setup_commands(instance),
        tests_checkout_of(instance),
        own.env,
        own.network,
        _SEAL,
    ]
    return _named("sealed-", facts, own.source)


def _name(instance: TaskInstance, base: ImageInfo) -> str:
    own = instance.sandbox
    if instance.carried:
        inputs = [base.digest, own.workdir, instance.workspace, *instance.workspace_aliases, *carried.facts(instance)]
        return _named("", inputs, None)
    facts = [_sealed_name(instance, base), instance.workspace, *instance.workspace_aliases, own.hidden_paths, _PREPARE]
    return _named("", facts, None)


def _named(kind: str, facts: Sequence[object], source: GitSource | None) -> str:
    said = json.dumps([*facts, *(RepositoryImages.facts(source) if source else ())])
    return f"{REPOSITORY}:{kind}{hashlib.sha256(said.encode()).hexdigest()[:24]}"
