"""The health check of a sandbox's own container: nobody gets the container before it succeeds."""

from dataclasses import replace

import pytest

from sandbox_server.errors import ImageUnavailable
from sandbox_server.sandbox.services import HealthCheck, ServiceBounds

from .backends import Backend
from .specs import say, spec

THIRD = HealthCheck(
    ("bash", "-c", "echo x >>/tmp/tries; (($(wc -l </tmp/tries) > 2)) || { echo not yet; exit 9; }"),
    interval_s=0.1,
    retries=3,
    start_interval_s=0.1,
)
"""Succeeds the third time."""


async def test_a_container_is_given_once_it_is_healthy(backend: Backend) -> None:
    """An agent begins before what it needs is there, or a failure within the start period ends the start."""
    runtime = backend.runtime("test-health")
    for check in (THIRD, replace(THIRD, retries=1, start_period_s=30)):
        sandbox = await runtime.create(spec(health=check))
        try:
            assert await say(sandbox, "wc -l </tmp/tries") == "3"
        finally:
            await runtime.remove(sandbox.container_id)


async def test_one_that_never_is_healthy_fails_and_leaves_nothing(backend: Backend) -> None:
    """A start hangs, fails without a reason that the task's author could mend, or leaves its container."""
    runtime = backend.runtime("test-health", services=ServiceBounds(start_s=3))
    refusals = {
        "failed 2 times in a row: bash -c .*ended with 9 and said 'not yet'": replace(THIRD, retries=2),
        "did not succeed within 3 s .SANDBOX_SERVICE_START_S.*ended with 1": HealthCheck(("false",)),
        "failed 1 times in a row.*took over 0.5 s": HealthCheck(("sleep", "60"), timeout_s=0.5, retries=1),
    }
    for why, check in refusals.items():
        with pytest.raises(ImageUnavailable, match=why):
            await runtime.create(spec(health=check))
        assert not await runtime.list()
