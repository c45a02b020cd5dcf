"""Builds the images of templates: a recipe's steps, run in a container of its base that is then committed.

A build is code that a client runs. Its container has a box's limits, network and network rules; its time, its disk
and the size of its log are bounded. An image is named by a hash of all its inputs and of its owner, so that builds of
the same inputs share it and no owner gets another owner's.
"""

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from importlib import resources

from sandbox_server import clock, telemetry
from sandbox_server.catalogue.templates import Recipe, Result, Step, Templates
from sandbox_server.errors import (
    RequestError,
    SandboxDiskFull,
    SandboxLost,
    ServiceError,
    UnknownUser,
)
from sandbox_server.images.preparing import REPOSITORY
from sandbox_server.images.template_files import Copy, rewritten
from sandbox_server.images.template_state import StepState
from sandbox_server.sandbox.base import ContainerSpec, ImageInfo, Limits, Role, Runtime, Sandbox

log = telemetry.logger(__name__)

OWNER_LABEL = "sandbox.template_owner"
"""Marks the image of a template."""
USER, HOME = "user", "/home/user"
"""Default user and working directory of a template, as at E2B; the user is created if it is missing."""
_WATCH_S = 5.0
_READY_EVERY_S = 0.2
_READY_ONCE_S = 10.0
_CHUNK = 16 << 20
_TOLD_LINES, _TOLD_CHARACTERS = 200, 1000
_UPLOADED = "/var/lib/sandbox-copy.tar"
_MAKE_USER = r"""
id -u user >/dev/null 2>&1 || useradd -m -s /bin/bash user 2>/dev/null || {
  id=1000; while grep -q "^[^:]*:[^:]*:$id:" /etc/passwd; do id=$((id + 1)); done
  echo "user:x:$id:$id::/home/user:/bin/bash" >>/etc/passwd && echo "user:x:$id:" >>/etc/group || exit
}
mkdir -p /home/user && chown "$(id -u user):$(id -g user)" /home/user
"""
_WHOSE = 'id -u "$U"; if [ -n "$G" ]; then getent group "$G" | cut -d: -f3; else id -g "$U"; fi; [ -d "$T" ]; echo $?'
_AS_USER = 'unset HOME; export HOME=~ USER="$(id -un)"; exec bash -c "$0"'
_READY = resources.files(__package__).joinpath("ready.bash").read_text()
_START = "exec >>/tmp/start-command.log 2>&1; " + _AS_USER
_TOLD = re.compile(r"[0-9]{1,10}\s+[0-9]{1,10}\s+[01]")
Tell = Callable[[str], Awaitable[None]]
"""Adds lines to the build's log."""


class StepFailed(RequestError):
    """A step of the build failed: the recipe is to blame."""

    code = "template_build_failed"

    def __init__(self, step: str, detail: str) -> None:
        super().__init__(detail)
        self.step = step


class NotReady(RequestError):
    """The template's start command did not become ready in a new container."""

    code = "template_not_ready"


@dataclass(frozen=True, slots=True)
class BuildLimits:
    """Bounds of one build."""

    limits: Limits
    network: str
    build_s: float
    """Seconds for all steps together."""
    ready_s: float
    """Seconds for the start command to become ready."""
    copy_bytes: int
    """Maximum bytes of the contents of one archive."""
    setuid: bool = False
    """See `ContainerSpec`."""


@dataclass(slots=True)
class _BuildContainer(StepState):
    """The container of the steps, with their time limit and the uploaded archives."""

    sandbox: Sandbox
    left_s: Callable[[], float]
    archive: Callable[[str], Awaitable[bytes | None]]
    """The uploaded archive with this hash."""


async def start_ready(sandbox: Sandbox, result: Result, *, env: Mapping[str, str], user: str, within_s: float) -> None:
    """Run a template's start command in a new container and wait until its ready command succeeds.

    Raises:
        NotReady: not within `within_s` seconds. UnknownUser, InfrastructureError.
    """
    if not result.start:
        return
    where = result.workdir or "/"
    process = await sandbox.start(["bash", "-c", _START, result.start], cwd=where, env=env, user=user)
    process.detach()
    if not result.ready:
        return
    loop = asyncio.get_running_loop()
    until = loop.time() + within_s
    last = ""
    while (left_s := until - loop.time()) > 0:
        tried = await sandbox.exec(
            ["bash", "-c", _READY, result.ready], timeout_s=left_s, cwd=where, env=env, user=user, merge_streams=True
        )
        if tried.exit_code == 0:
            return
        if not tried.timed_out or not last:  # the end of the wait may cut the last try off, which proves nothing
            ended = "it did not end" if tried.timed_out else f"exit code {tried.exit_code}"
            last = f"{ended}, {tried.stdout.text().strip()[-_TOLD_CHARACTERS:] or 'no output'}"
        await asyncio.sleep(_READY_EVERY_S)
    said = await sandbox.exec(["tail", "-c", "500", "/tmp/start-command.log"], timeout_s=_READY_ONCE_S, user="root")
    raise NotReady(
        f"the template's ready command did not succeed within {within_s:g} s (SANDBOX_TEMPLATE_READY_S) after its"
        f" start command: {last}; the start command said: {said.stdout.text().strip() or 'nothing'}"
    )


class TemplateImages:
    """Builds images on this engine; concurrent requests for one image share its build."""

    def __init__(self, runtime: Runtime, store: Templates) -> None:
        self._runtime = runtime
        self._store = store

    async def built(
        self,
        recipe: Recipe,
        base: ImageInfo,
        inherited: Result,
        *,
        owner: str,
        template_id: str,
        bounds: BuildLimits,
        tell: Tell,
    ) -> Result:
        """Return the image of `recipe` on `base`, with what its boxes need; build it if the engine does not have it.

        `inherited`: the result of the template that `base` belongs to.

        Raises:
            StepFailed: the recipe is to blame. ImageUnavailable, InfrastructureError, CatalogueUnavailable.
        """
        sums = await self._sums(recipe, template_id)
        name = _name(recipe, base, inherited, owner, sums, bounds.network)
        found = await self._runtime.images.find(name)
        if found is None:
            archive = partial(self._store.file, template_id)  # read one at a time: together they may have gigabytes
            await self._make(name, recipe, base, inherited, archive, owner, bounds, tell)
        else:
            await tell("The image exists: its steps are not run again.")
        left = StepState(base.env, dict(inherited.env), inherited.user or USER, inherited.workdir or HOME)
        for step in recipe.steps:
            left.apply(step)
        result = Result(
            image=name,
            root=inherited.root or recipe.image,
            env=left.env,
            user=left.user,
            workdir=left.workdir,
            start=recipe.start or inherited.start,
            ready=recipe.ready or inherited.ready,
        )
        if found is None and result.start:
            await tell("Trying the start command in a new container.")
            await self._try(result, bounds)
        return result

    async def _make(
        self,
        name: str,
        recipe: Recipe,
        base: ImageInfo,
        inherited: Result,
        archive: Callable[[str], Awaitable[bytes | None]],
        owner: str,
        bounds: BuildLimits,
        tell: Tell,
    ) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + bounds.build_s
        user, workdir = inherited.user or USER, inherited.workdir or HOME
        async with self._container(base.name, bounds) as sandbox:
            container = _BuildContainer(
                base.env, dict(inherited.env), user, workdir, sandbox, lambda: until - loop.time(), archive
            )
            await self._watched(sandbox, self._steps(recipe, container, bounds, tell), bounds)
            await self._runtime.images.commit(sandbox.container_id, name, {OWNER_LABEL: owner or "-"})

    async def _sums(self, recipe: Recipe, template_id: str) -> dict[str, str]:
        """The client's hash -> SHA-256 of each uploaded archive. Raises StepFailed: the recipe copies a missing one."""
        known = await self._store.file_sums(template_id)
        for number, step in enumerate(recipe.steps, 1):
            if step.kind == "COPY" and step.files_hash not in known:
                raise StepFailed(str(number), f"COPY {' '.join(step.args[:2])}: its files were not uploaded")
        return known

    @asynccontextmanager
    async def _container(self, image: str, bounds: BuildLimits) -> AsyncIterator[Sandbox]:
        spec = ContainerSpec(
            image=image,
            role=Role.PREPARE,
            sid="",
            deadline=clock.today() + timedelta(seconds=bounds.build_s + 60),
            network=bounds.network,
            restricted=True,
            limits=bounds.limits,
            with_shell=False,
            setuid=bounds.setuid,
        )
        sandbox = await self._runtime.create(spec)
        try:
            yield sandbox
        finally:
            await asyncio.shield(self._remove(sandbox.container_id))

    async def _remove(self, container_id: str) -> None:
        try:
            await self._runtime.remove(container_id)
        except ServiceError:
            log.warning("a build's container is left to the reaper", container_id=container_id, exc_info=True)

    async def _watched(self, sandbox: Sandbox, work: Awaitable[None], bounds: BuildLimits) -> None:
        """Run the steps; break them off when the container has written more than it may."""
        working, watching = asyncio.ensure_future(work), asyncio.create_task(self._watch(sandbox, bounds))
        try:
            await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                watching.result()
            await working
        except (SandboxLost, SandboxDiskFull) as error:
            raise StepFailed("finalize", f"the build's container was lost: {error.detail}") from error
        finally:
            for task in (working, watching):
                task.cancel()
            await asyncio.gather(working, watching, return_exceptions=True)

    async def _watch(self, sandbox: Sandbox, bounds: BuildLimits) -> None:
        most = bounds.limits.disk_mb << 20
        while True:
            await asyncio.sleep(_WATCH_S)
            with suppress(ServiceError):
                used = (await self._runtime.disk_usage(sandbox.container_id)).get(sandbox.container_id, 0)
                if used > most:
                    break
        raise StepFailed("finalize", f"the build has written more than {most >> 20} MB, a box's limit; write less")

    async def _steps(self, recipe: Recipe, container: _BuildContainer, bounds: BuildLimits, tell: Tell) -> None:
        await _run(container, _MAKE_USER, "root", "/", "base", "preparing the user")
        for number, step in enumerate(recipe.steps, 1):
            shown = f"[{number}/{len(recipe.steps)}] {step.kind} {' '.join(step.args)}"
            await tell(shown[:_TOLD_CHARACTERS])
            try:
                said = await self._step(container, step, number, bounds)
            except StepFailed:
                raise
            except RequestError as error:
                raise StepFailed(str(number), f"{shown[:200]}: {error.detail}") from error
            if said:
                await tell("\n".join(line[:_TOLD_CHARACTERS] for line in said.splitlines()[-_TOLD_LINES:]))

    async def _step(self, container: _BuildContainer, step: Step, number: int, bounds: BuildLimits) -> str:
        shown = f"{step.kind} {' '.join(step.args)}"[:200]
        if step.kind == "RUN":
            user = container.expanded(step.args[1]) if len(step.args) > 1 and step.args[1] else container.user
            try:
                return await _run(container, step.args[0], user, container.workdir, str(number), shown)
            except UnknownUser:  # in E2B's words, which its clients look for
                raise StepFailed(
                    str(number),
                    f"failed to run command '{step.args[0][:200]}': command failed: unauthenticated: invalid username:"
                    f" '{user[:100]}'",
                ) from None
        if step.kind == "COPY":
            await self._copy(container, step, number, bounds)
            return ""
        container.apply(step)
        if step.kind == "WORKDIR":
            make = '[ -d "$W" ] || { mkdir -p "$W" && chown "$(id -u "$U"):$(id -g "$U")" "$W"; }'
            await _run(
                container,
                make,
                "root",
                "/",
                str(number),
                shown,
                W=container.workdir,
                U=container.user.partition(":")[0],
            )
        elif step.kind == "USER":
            await _run(container, "id", container.user, "/", str(number), shown)
        return ""

    async def _copy(self, container: _BuildContainer, step: Step, number: int, bounds: BuildLimits) -> None:
        source, target, user, mode = (*step.args, "", "", "", "")[:4]
        shown = f"COPY {source} {target}"[:200]
        owner, _, group = (container.expanded(user) or container.user).partition(":")
        place = container.at(container.expanded(target))
        told = await _run(container, _WHOSE, "root", "/", str(number), shown, U=owner, G=group, T=place)
        try:
            if not _TOLD.fullmatch(told.strip()):  # printed by the image's own `id`, which may print anything
                raise ValueError(told[:100])
            uid, gid, missing = (int(line) for line in told.split())
            bits = int(mode, 8) & 0o7777 if mode else None
        except ValueError:
            raise StepFailed(str(number), f"{shown}: no such user, group or mode: {user} {mode}") from None
        copy = Copy(container.expanded(source), place, target.endswith("/") or not missing, uid, gid, bits)
        archive = await container.archive(step.files_hash)
        if archive is None:
            raise StepFailed(str(number), f"{shown}: the template was deleted during its build")
        body = await asyncio.to_thread(rewritten, archive, copy, most_bytes=bounds.copy_bytes)
        with body:
            while chunk := await asyncio.to_thread(body.read, _CHUNK):
                await _run(container, f"cat >>{_UPLOADED}", "root", "/", str(number), shown, stdin=chunk)
        unpack = f"tar -x -p -f {_UPLOADED} -C / --numeric-owner; status=$?; rm -f {_UPLOADED}; exit $status"
        await _run(container, unpack, "root", "/", str(number), shown)

    async def _try(self, result: Result, bounds: BuildLimits) -> None:
        """Check that the start command becomes ready in a container of the image."""
        async with self._container(result.image, bounds) as sandbox:
            try:
                await start_ready(sandbox, result, env=result.env, user=result.user, within_s=bounds.ready_s)
            except RequestError as error:
                await self._runtime.images.remove(result.image)
                raise StepFailed("finalize", error.detail) from error


async def _run(
    container: _BuildContainer,
    command: str,
    user: str,
    cwd: str,
    step: str,
    shown: str,
    *,
    stdin: bytes = b"",
    **env: str,
) -> str:
    """Run a command of a step; return its output. Raises StepFailed, InfrastructureError."""
    left_s = container.left_s()
    if left_s > 0:
        given = env or container.env
        argv = ["bash", "-c", command] if user == "root" and (env or stdin) else ["bash", "-c", _AS_USER, command]
        done = await container.sandbox.exec(
            argv, timeout_s=left_s, cwd=cwd, env=given, user=user, stdin=stdin, merge_streams=True
        )
        said = done.stdout.text()
        if done.exit_code == 0 and not done.timed_out:
            return said
        if not done.timed_out:
            raise StepFailed(step, f"{shown} failed with exit code {done.exit_code}: {said.strip()[-1000:]}")
    raise StepFailed(step, f"{shown}: the build took longer than SANDBOX_TEMPLATE_BUILD_S allows; do less in it")


def _name(recipe: Recipe, base: ImageInfo, inherited: Result, owner: str, sums: Mapping[str, str], network: str) -> str:
    steps = [(step.kind, step.args, sums.get(step.files_hash, "")) for step in recipe.steps]
    state = (dict(inherited.env), inherited.user, inherited.workdir)
    started = (recipe.start or inherited.start, recipe.ready or inherited.ready)
    facts = json.dumps([owner, base.digest, state, steps, started, recipe.nonce, network, _MAKE_USER])
    return f"{REPOSITORY}:template-{hashlib.sha256(facts.encode()).hexdigest()[:24]}"
