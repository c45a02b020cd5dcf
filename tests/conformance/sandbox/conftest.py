"""A real engine, and sandboxes on it that are removed after the run."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandbox_server.errors import ImageUnavailable
from sandbox_server.sandbox.bash.sandbox import BashSandbox
from sandbox_server.sandbox.docker.engine import Engine
from sandbox_server.sandbox.docker.runtime import DockerRuntime

from .backends import BACKENDS, WITHOUT_FIFOS, Backend
from .specs import IMAGE, spec

TWICE = {
    "test_shell_endings",
    "test_shell_output",
    "test_shell_state",
    "test_shell_timeouts",
    "test_golden_observations",
    "test_user",
}
"""Tests of the shell alone: they run with FIFOs and without."""
OF_BASH = {
    "test_shell_settings_of_the_policy",
    "test_settings_that_a_next_shell_inherits",
    "test_traces_show_the_command_and_nothing_of_ours",
}
"""Tests of these that depend on bash, and not on what carries its bytes: 33 containers that would show the same."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run on the backend without FIFOs only what is in TWICE."""
    here = [item for item in items if item.path.parent == Path(__file__).parent]
    once = [
        item
        for item in here
        if f"[{WITHOUT_FIFOS}" in item.name
        and (item.path.stem not in TWICE or getattr(item, "originalname", "") in OF_BASH)
    ]
    config.hook.pytest_deselected(items=once)
    gone = set(once)
    items[:] = [item for item in items if item not in gone]


@pytest.fixture(scope="session", params=BACKENDS, ids=lambda made: made.__name__)
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    """Each engine that the list runs on."""
    backend: Backend = request.param()
    try:
        await backend.engine.call(lambda api: api.inspect_image(IMAGE))  # type: ignore[no-untyped-call]  # the SDK's
    except ImageUnavailable as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(error.detail)
    yield backend
    await asyncio.sleep(0.1)  # for the streams closed last to be given back by the loop
    backend.engine.close()


@pytest.fixture(scope="session")
def engine(backend: Backend) -> Engine:
    """The SDK's client, to stage what the runtime cannot."""
    return backend.engine


@pytest.fixture(scope="session")
async def runtime(backend: Backend) -> AsyncIterator[DockerRuntime]:
    """A runtime with this run's own node name; every test removes what it made."""
    runtime = backend.runtime()
    yield runtime
    left = await runtime.list()
    for container in left:
        await runtime.remove(container.container_id)
    assert not left, f"{len(left)} containers were left behind"


@pytest.fixture
async def sandbox(runtime: DockerRuntime) -> AsyncIterator[BashSandbox]:
    """A fresh sandbox for one test."""
    sandbox = await runtime.create(spec())
    yield sandbox
    await runtime.remove(sandbox.container_id)


@pytest.fixture(scope="module")
async def shared(runtime: DockerRuntime) -> AsyncIterator[BashSandbox]:
    """One sandbox for all tests of a module that leave its shell unchanged."""
    sandbox = await runtime.create(spec())
    yield sandbox
    await runtime.remove(sandbox.container_id)


@pytest.fixture
async def new_shell(shared: BashSandbox) -> AsyncIterator[BashSandbox]:
    """The module's sandbox with a shell of the test's own, in /tmp, for a test that harms nothing but its shell.

    What earlier tests exported is still there.
    """
    await _replace_shell(shared)
    yield shared
    await _replace_shell(shared)


async def _replace_shell(sandbox: BashSandbox) -> None:
    if sandbox.shell.running:  # a test failed
        await sandbox.shell.interrupt(wait_s=5)
    await sandbox.shell.run("cd /tmp; rm -f go ends deaf killed log", timeout_s=20)
    ended = await sandbox.shell.run('kill -9 "$$"', timeout_s=20)  # quoted: IFS may be digits
    assert ended.shell_replaced
