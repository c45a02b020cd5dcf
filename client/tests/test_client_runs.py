"""Whose starts they are, and what a refusal tells."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys

import pytest
from stand import Fault, Stand

from sandbox_client import BadAnswer, CallTimedOut, NoCapacity, SandboxClient, SettingsError, Timeouts
from sandbox_client.blocking import BlockingClient
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


async def test_the_end_of_a_run_waits_for_all_of_it(stand: Stand) -> None:
    """A trainer that begins again would find the slots still taken."""
    path = "/v1/runs/team/a%3A1/sessions"
    stand.answer(path, {"ended": ["1", "2"], "ending": ["3"]}, {"ended": ["3"], "ending": []})
    async with SandboxClient(stand.url, run="team/a:1") as client:
        assert await client.end_run() == 3
    assert [(seen.path, seen.headers["method"]) for seen in stand.seen] == [(path, "DELETE")] * 2
    async with SandboxClient(stand.url) as client:
        with pytest.raises(SettingsError, match="SANDBOX_RUN"):
            await client.end_run()
        await client.end_run("other")
    assert BlockingClient(stand.url).end_run("other") == 0
    stand.answer("/v1/runs/other/sessions", *[{"ended": [], "ending": ["3"]}] * 999)
    async with SandboxClient(stand.url, timeouts=Timeouts(finish_s=0.3)) as client:
        with pytest.raises(CallTimedOut):
            await client.end_run("other")


async def test_a_run_says_that_it_lives(stand: Stand) -> None:
    """The service would end the sessions of a trainer that lives; or never those of one that does not."""
    async with SandboxClient(stand.url, run="a") as client, client.keep_run_alive(2.0):
        await asyncio.to_thread(stand.until_seen, "/v1/runs/a/lease", 4)
    methods = [seen.headers["method"] for seen in stand.seen if seen.path == "/v1/runs/a/lease"]
    assert methods.count("PUT") >= 4 and methods[-1] == "DELETE" and methods.count("DELETE") == 1


async def test_a_batch_without_sessions(stand: Stand) -> None:
    """/v1/grade had no call."""
    items = [{"instance": "a__b-1", "patch": "diff"}]
    stand.answer("/v1/grade", *[{"results": [{"total": 1.0, "mask": False}]}] * 2, {"results": []})
    async with SandboxClient(stand.url) as client:
        assert (await client.grade(items, rewards="multilevel"))[0]["total"] == 1.0
        assert stand.seen[-1].body == {"items": items, "rewards": "multilevel"}
        assert (await asyncio.to_thread(BlockingClient(stand.url).grade, items))[0]["mask"] is False
        with pytest.raises(BadAnswer):
            await client.grade(items)


TRAINER = """
import asyncio, os, sys
from sandbox_client import runs
from sandbox_client.swedev_utils import initialize_runtime
runs.end_at_start()
runs.end_at_start()
print(initialize_runtime(1)["sid"])
sys.stdin.read()
"""


@pytest.mark.usefixtures("light_torch")
def test_a_trainer_begins_its_run_and_says_that_it_lives(stand: Stand) -> None:
    """Its former self, killed, would hold the slots; and every process that it begins would end what it has."""
    variables = {
        **os.environ,
        "SANDBOX_URL": stand.url,
        "SANDBOX_RUN": "grpo",
        "SANDBOX_END_RUN_AT_START": "1",
        "SANDBOX_RUN_LEASE_S": "0.6",
    }
    ends, renewals = [], 0
    for more in ({}, {"SANDBOX_RUN_BEGUN": "1"}):
        command, pipe = [sys.executable, "-c", TRAINER], subprocess.PIPE
        with subprocess.Popen(
            command, env=variables | more, stdin=pipe, stdout=pipe, stderr=pipe, text=True
        ) as trainer:
            try:
                stand.until_seen("/v1/runs/grpo/lease", renewals := renewals + 3)
                _, said = trainer.communicate("", timeout=60)
            finally:
                trainer.kill()
        assert trainer.returncode == 0, said
        ends.append([seen.path for seen in stand.seen].count("/v1/runs/grpo/sessions"))
    assert ends == [1, 1]
    assert stand.seen[0].path == "/v1/runs/grpo/sessions"
    assert [seen.path for seen in stand.seen].count("/v1/runs/grpo/lease") >= 6


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
