"""A real engine, and sandboxes on it that no run leaves behind."""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator

import pytest

from sandbox_server.errors import EngineUnavailable, ImageUnavailable
from sandbox_server.sandbox.bash.sandbox import BashSandbox
from sandbox_server.sandbox.docker.engine import Engine
from sandbox_server.sandbox.docker.runtime import DockerRuntime, RuntimeConfig

from .specs import IMAGE, spec


@pytest.fixture(scope="session")
async def engine() -> AsyncIterator[Engine]:
    """The engine of this machine; without it the suite is skipped, but fails in CI."""
    try:
        engine = Engine(None, timeout_s=60)
        await engine.call(lambda api: api.inspect_image(IMAGE))  # type: ignore[no-untyped-call]  # the SDK's stubs
    except (EngineUnavailable, ImageUnavailable) as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(error.detail)
    yield engine
    await asyncio.sleep(0.1)  # for the streams closed last to be given back by the loop
    engine.close()


@pytest.fixture(scope="session")
async def runtime(engine: Engine) -> AsyncIterator[DockerRuntime]:
    """Under a node name of this run alone; every test removes what it made."""
    runtime = DockerRuntime(engine, RuntimeConfig(node=f"test-{secrets.token_hex(4)}", pull=False))
    yield runtime
    left = await runtime.list()
    for container in left:
        await runtime.remove(container.container_id)
    assert not left, f"{len(left)} containers were left behind"


@pytest.fixture
async def sandbox(runtime: DockerRuntime) -> AsyncIterator[BashSandbox]:
    """A fresh one for this test alone."""
    sandbox = await runtime.create(spec())
    yield sandbox
    await runtime.remove(sandbox.container_id)


@pytest.fixture(scope="module")
async def shared(runtime: DockerRuntime) -> AsyncIterator[BashSandbox]:
    """One for all tests of a module that leave its shell as they found it."""
    sandbox = await runtime.create(spec())
    yield sandbox
    await runtime.remove(sandbox.container_id)
