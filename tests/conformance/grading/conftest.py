"""The tiny repository in an image of its own, and gradings of it on the real engine."""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta

import pytest

from sandbox_server.catalogue.git_fetch import MirrorConfig
from sandbox_server.catalogue.repositories import Mirrors
from sandbox_server.errors import EngineUnavailable, ImageUnavailable
from sandbox_server.grading.registry import load_graders
from sandbox_server.images.built_images import BuiltImages
from sandbox_server.images.preparing import Preparing
from sandbox_server.images.repository_images import RepositoryImages
from sandbox_server.images.workspaces import Workspaces
from sandbox_server.sandbox.base import ContainerSpec, ImageInfo, Limits, Role
from sandbox_server.sandbox.docker.engine import Engine
from sandbox_server.sandbox.docker.runtime import DockerRuntime, RuntimeConfig
from tests.conformance.grading.calc_bench import Bench
from tests.conformance.grading.calc_repository import Repository

_BASE_IMAGE = "sandbox-samples/base:latest"


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return Repository(tmp_path_factory.mktemp("grading") / "calc")


@pytest.fixture(scope="session")
async def runtime() -> AsyncIterator[DockerRuntime]:
    """The real engine, under a node name of this run alone; no container of it outlives the run."""
    runtime = DockerRuntime(
        Engine(None, timeout_s=60), RuntimeConfig(node=f"test-grading-{secrets.token_hex(4)}", pull=False)
    )
    try:
        await runtime.ping()
        await runtime.images.resolve([_BASE_IMAGE])
    except (EngineUnavailable, ImageUnavailable) as error:
        runtime.close()
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(error.detail)
    yield runtime
    for _ in range(1000):  # a verdict does not wait for the end of its container
        if not (left := await runtime.list()):
            break
        await asyncio.sleep(0.05)
    for container in left:
        await runtime.remove(container.container_id)
    runtime.close()
    assert not left, f"{len(left)} grading containers were left behind"


@pytest.fixture(scope="session")
async def image(
    runtime: DockerRuntime, repository: Repository, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[str]:
    """The repository at /testbed on the base image."""
    bundle = tmp_path_factory.mktemp("bundle") / "calc.bundle"
    repository.git("bundle", "create", "-q", str(bundle), "HEAD")
    deadline = datetime.now(UTC) + timedelta(minutes=5)
    sandbox = await runtime.create(ContainerSpec(_BASE_IMAGE, Role.PREPARE, "", deadline, with_shell=False))
    name = f"sandbox-test/grading:{secrets.token_hex(6)}"
    try:
        await sandbox.write_file("/calc.bundle", bundle.read_bytes())
        script = (
            f"git clone -q /calc.bundle /testbed && cd /testbed && git checkout -q {repository.head} && rm /calc.bundle"
        )
        made = await sandbox.exec(["bash", "-c", script], timeout_s=60, merge_streams=True)
        assert made.exit_code == 0, made.stdout.text()
        await runtime.images.commit(sandbox.container_id, name, {})
    finally:
        await runtime.remove(sandbox.container_id)
    yield name
    await runtime._engine.call(lambda api: api.remove_image(name, force=True))


@pytest.fixture(scope="session")
async def workspaces(
    runtime: DockerRuntime, image: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Workspaces]:
    """What gradings start from, made as a server does; no image of it outlives the run."""
    limits = Limits(memory_mb=512, cpus=1.0)
    preparing = Preparing(runtime, limits=limits, timeout_s=60)
    mirrors = Mirrors(MirrorConfig(folder=tmp_path_factory.mktemp("mirrors")))
    repositories = RepositoryImages(mirrors, preparing)
    commit, made = runtime.images.commit, set()

    async def noted(container_id: str, name: str, labels: Mapping[str, str]) -> ImageInfo:
        made.add(name)
        return await commit(container_id, name, labels)

    # noted, not listed: other tests prepare images on this engine meanwhile, and need them
    runtime.images.commit = noted  # type: ignore[method-assign]
    yield Workspaces(
        runtime, preparing, repositories, BuiltImages(runtime, preparing), limits=limits, search_image=_BASE_IMAGE
    )
    runtime.images.commit = commit  # type: ignore[method-assign]
    await mirrors.close()
    for name in sorted(made, key=lambda name: ":sealed-" in name):  # those that stand on others first
        await runtime.images.remove(name)


@pytest.fixture(scope="session")
async def bench(
    runtime: DockerRuntime, image: str, repository: Repository, workspaces: Workspaces
) -> AsyncIterator[Bench]:
    """One set of graders for all tests: the library's worker takes seconds to start."""
    graders = load_graders()
    yield Bench(runtime, image, repository, graders, workspaces)
    for grader in graders.values():
        await grader.close()
