"""Images made from an instance's repository on the real engine, and what an agent finds in them."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sandbox_server.catalogue.git_fetch import MirrorConfig
from sandbox_server.catalogue.instance import GitSource, SandboxSpec, TaskInstance
from sandbox_server.catalogue.repositories import Mirrors
from sandbox_server.errors import ImageUnavailable, RepositoryUnavailable
from sandbox_server.images.built_images import BuiltImages
from sandbox_server.images.preparing import REPOSITORY, Preparing
from sandbox_server.images.repository_images import LEFT_OUT_LABEL, RepositoryImages
from sandbox_server.images.workspaces import Workspaces
from sandbox_server.sandbox.base import ContainerSpec, ImageInfo, Limits, Role, Sandbox
from sandbox_server.sandbox.docker.engine import Engine
from sandbox_server.sandbox.docker.runtime import DockerRuntime, RuntimeConfig
from tests.deployment import BASE_IMAGE
from tests.repository import BUG_PATCH, FIX, Repository, make_repository

LIMITS = Limits(memory_mb=512, cpus=2.0, pids=256, disk_mb=256)

COMMITTED: set[str] = set()
"""Every name that an image was committed as; other tests make images on this engine meanwhile."""


@pytest.fixture(scope="module")
async def runtime(sample_images: dict[str, str]) -> AsyncIterator[DockerRuntime]:
    """A runtime with a unique node name; containers and prepared images are removed after the module."""
    runtime = DockerRuntime(
        Engine(None, timeout_s=60), RuntimeConfig(node=f"test-sources-{secrets.token_hex(4)}", pull=False)
    )
    commit = runtime.images.commit

    async def noted(container_id: str, name: str, labels: Mapping[str, str]) -> ImageInfo:
        COMMITTED.add(name)
        return await commit(container_id, name, labels)

    runtime.images.commit = noted  # type: ignore[method-assign]
    yield runtime
    left = await runtime.list()
    await asyncio.gather(*(runtime.remove(container.container_id) for container in left))
    # children first
    for name in sorted(COMMITTED, key=lambda name: (":repository-" in name, ":sealed-" in name)):
        assert name.startswith(REPOSITORY)
        await runtime.images.remove(name)
    runtime.close()
    assert not left, f"{len(left)} containers were left behind"


@pytest.fixture
async def mirrors(tmp_path: Path) -> AsyncIterator[Mirrors]:
    mirrors = Mirrors(MirrorConfig(folder=tmp_path / "mirrors", folders=(tmp_path,), attempts=1))
    yield mirrors
    await mirrors.close()


@pytest.fixture
def workspaces(runtime: DockerRuntime, mirrors: Mirrors) -> Workspaces:
    """As in a server; the samples' base image has everything that a sandbox needs."""
    preparing = Preparing(runtime, limits=LIMITS, timeout_s=60)
    repositories = RepositoryImages(mirrors, preparing)
    return Workspaces(
        runtime, preparing, repositories, BuiltImages(runtime, preparing), limits=LIMITS, search_image=BASE_IMAGE
    )


@pytest.fixture
def remote(tmp_path: Path) -> Repository:
    """A remote for this test alone: a unique `README.md` makes all its commits new."""
    made = make_repository(tmp_path / "remote", title=f"Library {secrets.token_hex(4)}\n")
    made.git("update-index", "--add", "--cacheinfo", f"160000,{made.first},vendored")
    return made


def instance(remote: Repository, commit: str = "", **fields: Any) -> TaskInstance:
    """An instance of the remote at a commit, by default the base."""
    source = GitSource(path=str(remote.path), commit=commit or remote.base, **fields)
    sandbox = SandboxSpec(source=source, workdir="/testbed")
    return TaskInstance(instance_id="owner__name-1", repo="owner/name", version="1", sandbox=sandbox)


@pytest.fixture
async def start(runtime: DockerRuntime, workspaces: Workspaces) -> AsyncIterator[Callable[[TaskInstance], Any]]:
    """start(instance): a sandbox like that of a session."""
    started: list[Sandbox] = []

    async def begin(task: TaskInstance) -> Sandbox:
        image = (await workspaces.prepared(task)).image
        deadline = datetime.now(UTC) + timedelta(minutes=5)
        spec = ContainerSpec(image, Role.SESSION, "4711", deadline, workdir=task.workspace, limits=LIMITS)
        started.append(await runtime.create(spec))
        return started[-1]

    yield begin
    await asyncio.gather(*(runtime.remove(sandbox.container_id) for sandbox in started))


async def said(sandbox: Sandbox, script: str) -> str:
    """Run a script in the repository as the agent would; return its output."""
    done = await sandbox.exec(["bash", "-c", script], timeout_s=60, cwd="/testbed", merge_streams=True)
    assert done.exit_code == 0, done.stdout.text()
    return done.stdout.text().rstrip("\n")


async def images(runtime: DockerRuntime) -> set[str]:
    """The images there are of those that were committed here."""
    return {image.name for image in await runtime.images.all()} & COMMITTED


async def prepare_containers(runtime: DockerRuntime) -> int:
    return len([container for container in await runtime.list() if container.role is Role.PREPARE])


def tree(remote: Repository, commit: str) -> dict[str, tuple[str, str]]:
    """Path -> mode and hash of its bytes, of all files of a commit."""
    found = {}
    for entry in remote.git("ls-tree", "-r", "-z", commit).split("\0"):
        if entry:
            (mode, kind, name), path = entry.partition("\t")[0].split(), entry.partition("\t")[2]
            if kind == "blob":
                found[path] = mode, name
    return found


async def test_the_tree_is_the_commits(start: Callable[[TaskInstance], Any], remote: Repository) -> None:
    """Identical byte for byte, with any names, modes, links and attributes; git reports no changes."""
    sandbox = await start(instance(remote))
    listed = await said(
        sandbox,
        "find . -path ./.git -prune -o \\( -type f -o -type l \\) -printf '%m %y %p\\0' | "
        "while IFS= read -r -d '' one; do printf '%s\\0' \"$one\"; done | tr '\\0' '\\n'",
    )
    expected = tree(remote, remote.base)
    modes = {}
    for line in listed.splitlines():
        mode, kind, path = line.split(" ", 2)
        modes[path.removeprefix("./")] = "120000" if kind == "l" else "100755" if mode == "755" else "100644"
    assert modes == {path: mode for path, (mode, _) in expected.items()}
    for path, (mode, blob) in expected.items():
        shown = f"readlink -n '{path}'" if mode == "120000" else f"cat '{path}'"
        assert await said(sandbox, f"{shown} | git hash-object --stdin --no-filters") == blob, path
    assert await said(sandbox, "git status --porcelain --ignored && git diff HEAD && git stash list") == ""
    assert await said(sandbox, "./bin/run") == "run"
    # after the first look the index knows every file: the second does not read them again
    assert await said(sandbox, "git diff-files --quiet && echo clean") == "clean"


@pytest.mark.parametrize("history", [False, True])
async def test_nothing_of_later(start: Callable[[TaskInstance], Any], remote: Repository, history: bool) -> None:
    """`git log --all` ends at the base; no ref, reflog, tag, remote or object tells of the fix."""
    sandbox = await start(instance(remote, history=history))
    log = [remote.base, remote.first] if history else [remote.base]
    assert (await said(sandbox, "git log --all --reflog --format=%H")).split() == log
    assert await said(sandbox, "git rev-parse HEAD; git symbolic-ref HEAD") == f"{remote.base}\nrefs/heads/main"
    assert await said(sandbox, "git for-each-ref --format='%(refname)'; git remote; git tag") == "refs/heads/main"
    objects = await said(sandbox, "git cat-file --batch-all-objects --batch-check='%(objectname)'")
    for later in (remote.fix, remote.later, remote.git("rev-parse", f"{remote.fix}:src/sum.py")):
        assert later not in objects
    assert await said(sandbox, "git fsck --no-dangling 2>&1 | grep -v '^Checking' || true") == ""
    assert await said(sandbox, "git reflog; ls .git/*_HEAD .git/logs 2> /dev/null || true") == ""
    where = await said(sandbox, f"grep -rlF {remote.fix} /testbed /var/lib/sandbox 2> /dev/null || true")
    assert where == ""
    # the agent's own commits work too
    await said(sandbox, "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m mine && git log --oneline")


async def test_the_bug_is_committed(start: Callable[[TaskInstance], Any], remote: Repository) -> None:
    """If a patch adds the bug, no diff, log or blame shows the code before it."""
    sandbox = await start(instance(remote, patch=BUG_PATCH))
    assert "3 * a" in await said(sandbox, "cat src/right.py")
    assert await said(sandbox, "git diff; git diff --cached; git status --porcelain; git stash list") == ""
    assert await said(sandbox, "git log --all --format=%s") == "The base"
    assert "2 * a" not in await said(sandbox, "git log -p --all; git blame src/right.py; git show HEAD")
    fine = remote.git("rev-parse", f"{remote.base}:src/right.py")
    assert fine not in await said(sandbox, "git cat-file --batch-all-objects --batch-check")


async def test_eight_at_once(
    start: Callable[[TaskInstance], Any], workspaces: Workspaces, remote: Repository, runtime: DockerRuntime
) -> None:
    """One preparation, eight separate trees."""
    before = await images(runtime)
    task = instance(remote)
    sandboxes = await asyncio.gather(*(start(task) for _ in range(8)))
    made = await images(runtime) - before
    assert len(made) == 2 and len([name for name in made if ":repository-" in name]) == 1, made
    await asyncio.gather(*(said(one, f"echo {n} > src/sum.py") for n, one in enumerate(sandboxes)))
    shown = await asyncio.gather(*(said(one, "cat src/sum.py; git diff --numstat") for one in sandboxes))
    assert [text.splitlines()[0] for text in shown] == [str(n) for n in range(8)]
    # an instance with another workspace and setup stands on the same repository image
    other = task.model_copy(
        update={"version": "2", "sandbox": task.sandbox.model_copy(update={"hidden_paths": ("x",)})}
    )
    await workspaces.prepared(other)
    assert len(await images(runtime) - before) == 3


async def test_failures_are_not_kept(
    workspaces: Workspaces, remote: Repository, runtime: DockerRuntime, mirrors: Mirrors
) -> None:
    """An unreachable repository, a failing patch, a used workdir: reported, cleaned up, retried."""
    away = remote.path.with_name("away")
    remote.path.rename(away)
    task = instance(remote)
    with pytest.raises(RepositoryUnavailable, match="no such folder"):
        await workspaces.prepared(task)
    away.rename(remote.path)
    with pytest.raises(ImageUnavailable, match="does not apply"):
        await workspaces.prepared(instance(remote, remote.first, patch=BUG_PATCH))
    busy = task.model_copy(update={"sandbox": task.sandbox.model_copy(update={"workdir": "/usr"})})
    with pytest.raises(ImageUnavailable, match="/usr is not empty in the base image"):
        await workspaces.prepared(busy)
    setup = task.sandbox.model_copy(update={"setup_commands": ("echo no good >&2; exit 7",)})
    with pytest.raises(ImageUnavailable, match="no good"):
        await workspaces.prepared(task.model_copy(update={"sandbox": setup}))
    assert await prepare_containers(runtime) == 0
    assert (await workspaces.prepared(task)).base_commit == remote.base


async def test_ended_in_the_middle(
    runtime: DockerRuntime, mirrors: Mirrors, workspaces: Workspaces, remote: Repository
) -> None:
    """If the container is killed while an image is made: reported, no image of that name, complete the next time."""
    task = instance(remote)
    await workspaces.sealed(task)
    before = await images(runtime)
    slow = task.sandbox.model_copy(update={"setup_commands": ("sleep 60",)})
    task = task.model_copy(update={"sandbox": slow})
    making = asyncio.create_task(workspaces.prepared(task))
    running: list[str] = []
    while not running:
        await asyncio.sleep(0.05)
        running = [one.container_id for one in await runtime.list() if one.role is Role.PREPARE and one.running]
    await asyncio.sleep(0.3)
    await runtime._engine.call(lambda api: api.kill(running[0]))
    with pytest.raises(ImageUnavailable, match="broke off"):
        await making
    assert await images(runtime) == before
    assert await prepare_containers(runtime) == 0
    again = task.sandbox.model_copy(update={"setup_commands": ()})
    assert (await workspaces.prepared(task.model_copy(update={"sandbox": again}))).base_commit == remote.base


async def test_no_search_image(runtime: DockerRuntime, mirrors: Mirrors, remote: Repository) -> None:
    """The search image is in no registry, so advice to load it or to correct the instance would be wrong."""
    preparing = Preparing(runtime, limits=LIMITS, timeout_s=60)
    repositories = RepositoryImages(mirrors, preparing)
    absent = Workspaces(
        runtime,
        preparing,
        repositories,
        BuiltImages(runtime, preparing),
        limits=LIMITS,
        search_image="sandbox-samples/absent:latest",
    )
    with pytest.raises(ImageUnavailable, match="`sandbox-server images build search`"):
        await absent.prepared(instance(remote))


async def test_submodules_are_told(
    start: Callable[[TaskInstance], Any], remote: Repository, runtime: DockerRuntime, workspaces: Workspaces
) -> None:
    """They stay empty folders; the image says so."""
    remote.git("commit", "-q", "-m", "With a submodule")
    task = instance(remote, remote.git("rev-parse", "HEAD"))
    prepared = await workspaces.prepared(task)
    assert prepared.left_out == "submodules, which are empty folders: vendored"
    found = await runtime.images.find(prepared.image)
    assert found is not None and found.labels[LEFT_OUT_LABEL] == prepared.left_out
    assert (await workspaces.prepared(task)).left_out == prepared.left_out
    sandbox = await start(task)
    assert await said(sandbox, "ls -A vendored; git status --porcelain") == ""


async def test_a_second_start_needs_no_mirror(
    start: Callable[[TaskInstance], Any], workspaces: Workspaces, remote: Repository, mirrors: Mirrors
) -> None:
    """A prepared instance needs neither repository nor mirror; the task image for gradings exists too."""
    task = instance(remote)
    first = await workspaces.prepared(task)
    source = await workspaces.sealed(task)
    remote.path.rename(remote.path.with_name("gone"))
    mirror = next(iter((remote.path.parent / "mirrors" / "mirrors").iterdir()))
    mirror.rename(mirror.with_name(".gone"))
    assert await workspaces.prepared(task) == first
    assert (await workspaces.sealed(task)).digest == source.digest
    assert FIX not in await said(await start(task), "cat src/sum.py")
