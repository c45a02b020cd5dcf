"""Whose starts they are, and what a refusal tells."""

from __future__ import annotations

import asyncio
import json

import pytest
from stand import Fault, Stand

from sandbox_client import NoCapacity, SandboxClient, SettingsError, Timeouts
from sandbox_client.swedev_utils import initialize_runtime

REFUSED = {
    "code": "no_capacity",
    "detail": "full",
    "retryable": False,
    "reason": "queue",
    "position": 7,
    "estimate_s": 12.5,
}


async def test_every_request_names_the_run(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service would share its room between trainers by their keys alone."""
    monkeypatch.setenv("SANDBOX_RUN", "from-the-environment")
    for run, sent in ((None, "from-the-environment"), ("grpo-7b/a", "grpo-7b/a"), ("", None)):
        stand.seen.clear()
        async with SandboxClient(stand.url, run=run) as client:
            await client.start(1)
        assert [seen.headers.get("sandbox-run") for seen in stand.seen] == [sent]


async def test_the_drop_in_names_the_run(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """veRL knows nothing of runs; a name set later in the same process would be missed."""
    for run in ("first", "second"):
        monkeypatch.setenv("SANDBOX_RUN", run)
        assert (await asyncio.gather(initialize_runtime(1)))[0]["sid"]
        assert stand.seen[-1].headers["sandbox-run"] == run


@pytest.mark.parametrize("run", ["two words", "a\nb", "\u00e4", "x" * 101])
def test_a_name_that_is_none(run: str) -> None:
    """It would fail at the first start, or end the header."""
    with pytest.raises(SettingsError):
        SandboxClient("http://localhost:1", run=run)


async def test_what_a_refusal_tells(stand: Stand) -> None:
    """A trainer could not tell a full host from a sick one, nor how long to wait."""
    strange = {**REFUSED, "reason": None, "position": "7", "estimate_s": None}
    bodies = [json.dumps(body).encode() for body in (REFUSED, strange)]
    stand.fail("/start_instance", *(Fault(503, body) for body in bodies))
    async with SandboxClient(stand.url, timeouts=Timeouts(start_s=5)) as client:
        for reason, position, estimate_s in (("queue", 7, 12.5), ("", None, None)):
            with pytest.raises(NoCapacity) as caught:
                await client.start(1)
            error = caught.value
            assert (error.reason, error.position, error.estimate_s) == (reason, position, estimate_s)
