"""Expected starts: parked containers, groups, lookahead; and removal of unused containers."""

import json
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from .serving import SCRIPTED, UNGRADED, UNREAD, Server, bash, docker, serving, until

LEDGER = "samples__ledger-12"


def parked(server: Server) -> list[str]:
    """Sids of the containers that are ready."""
    buckets = server.get("/v1/pool")["buckets"]
    return [] if any(bucket["making"] for bucket in buckets) else [sid for bucket in buckets for sid in bucket["sids"]]


def test_siblings_are_parked_and_taken(serve: Callable[..., Server]) -> None:
    """The second start of a group waits for a container; or a parked one answers before it is taken."""
    server = serve(pool_group=3)
    server.begin()
    until(lambda: len(parked(server)) == 2, 30, "two siblings parked")
    waiting = parked(server)
    assert httpx.get(f"{server.url}/v1/sessions/{waiting[0]}").status_code == 404
    assert server.say(waiting[0], bash("ls"))["error"]["code"] == "unknown_session"
    containers = {sid: server.container(sid) for sid in waiting}
    second = server.begin()
    assert second in waiting and server.session(second)["container_id"].startswith(containers[second])
    timings_s = server.session(second)["timings_s"]
    assert timings_s["start_container"] < timings_s["start_create"], "it waited for the making"
    assert "\r\n/workspace/samples__ledger__1.2[" in server.run(second, "pwd")
    server.run(second, "echo mine > mine.txt")
    assert "mine.txt" not in server.run(server.begin(), "ls")


def test_what_was_parked_goes(serve: Callable[..., Server]) -> None:
    """Unused containers stay forever, or outlive their server."""
    server = serve(pool_group=3, pool_idle_s=15, pool_group_window_s=2, reaper_period_s=1)
    sid = server.begin()
    until(lambda: len(parked(server)) == 2, 30, "two siblings parked")
    until(lambda: len(server.containers()) == 1, 30, "only the session's container")
    server.post("/v1/lookahead", {"instances": [LEDGER]})
    until(lambda: parked(server), 30, "one parked again")
    server.kill(signal.SIGTERM)
    assert len(server.containers()) == 1, "only the session's"
    server.start()
    assert "\r\nok[" in server.run(sid, "echo ok")


def test_a_killed_server_leaks_nothing_that_was_parked(serve: Callable[..., Server]) -> None:
    """After kill -9 the parked containers have no owner, and stay."""
    server = serve(pool_group=5)
    sid = server.begin()
    until(lambda: len(parked(server)) >= 1, 30, "a sibling parked")
    server.restart()
    assert server.container(sid)[:12] in server.containers()
    until(lambda: len(server.containers()) == 1, 10, "only the session's container")


def test_a_parked_container_that_died_is_not_given_out(serve: Callable[..., Server]) -> None:
    """A start gets a dead container."""
    server = serve(pool_group=4)
    server.begin()
    until(lambda: len(parked(server)) == 3, 30, "three siblings parked")
    sick = [server.container(sid) for sid in parked(server)]
    for verb, container in zip(("kill", "rm -f", "pause"), sick, strict=True):
        docker(*verb.split(), container)
    sid = server.begin()  # looks at each of them, since none is left
    assert server.container(sid) not in sick
    assert "\r\nwell[" in server.run(sid, "echo well")
    until(lambda: not set(sick) & set(server.containers()), 30, "the sick ones are gone")


def test_a_group_in_one_call(serve: Callable[..., Server]) -> None:
    """A group is one session short, its sessions share one, or a bad or repeated request starts some."""
    server = serve(max_sessions=6, start_timeout_s=10, pool_size=16)
    once = {"Idempotency-Key": "a group"}
    answer = server.post("/v1/groups", {"instance": UNREAD, "n": 5}, headers=once)
    assert answer.status_code == 200, answer.text
    assert server.post("/v1/groups", {"instance": UNREAD, "n": 5}, headers=once).json() == answer.json()
    sids = answer.json()["sids"]
    assert len(set(sids)) == 5 and answer.json()["failed"] == []
    with ThreadPoolExecutor(5) as pool:
        said = list(pool.map(lambda sid: server.run(sid, f"echo {sid} > who; cat who; ls who*"), sids))
    assert all(f"\r\n{sid}\r\nwho" in text for sid, text in zip(sids, said, strict=True))

    more = server.post("/v1/groups", {"instance": UNREAD, "n": 3}).json()
    assert len(more["sids"]) == 1 and [fault["code"] for fault in more["failed"]] == ["no_capacity"] * 2
    full = server.post("/v1/groups", {"instance": UNREAD, "n": 2})
    assert (full.status_code, full.json()["code"]) == (503, "no_capacity") and full.headers["Retry-After"]
    assert server.post("/v1/groups", {"instance": "nobody__knows-1", "n": 2}).status_code == 404
    for path, body in (
        ("/v1/groups", {"instance": UNGRADED, "n": 2}),
        ("/start_instance", {"instance_hash": UNGRADED}),
    ):
        ungradable = server.post(path, body)
        assert (ungradable.status_code, ungradable.json()["code"]) == (409, "ungradable")
    for wrong in ({"instance": LEDGER, "n": 0}, {"instance": LEDGER}, {"instance": None, "n": 1}, {"n": 10**30}, []):
        assert server.post("/v1/groups", wrong).status_code == 422
    for sid in [*sids, *more["sids"]]:
        assert server.finish(sid)["state"] == "ended"
    until(lambda: server.in_use("role=session") == [], 20, "no container of a session")


def test_a_client_that_hangs_up_gets_no_group(serve: Callable[..., Server]) -> None:
    """Sessions that were never delivered stay live for half an hour."""
    server = serve(pool_size=16)
    server.finish(server.begin(UNREAD))  # the image is prepared
    server.hang_up("/v1/groups", {"instance": SCRIPTED, "n": 12}, 0.6)
    until(lambda: server.in_use() == [] and not server.get("/v1/pool")["buckets"][0]["making"], 60, "nothing is left")
    assert httpx.get(f"{server.url}/v1/sessions", params={"state": "live"}).json() == []


def test_announced_instances_are_prepared(serve: Callable[..., Server]) -> None:
    """An announcement has no effect, fails completely for one bad instance, or its failures are not reported."""
    server = serve(pool_group=2, pool_size=4)
    names = ["samples__tarif-5", "samples__absent-1", "samples__timespan-7", "samples__swatch-31", "nobody__knows-1"]
    answer = server.post("/v1/lookahead", {"instances": [*names, 2**62, -1, "a\0"]})
    assert answer.status_code == 202, answer.text
    assert answer.json() == {"queued": 4, "unknown": [-1, "a\0", "nobody__knows-1", 2**62], "dropped": 0}
    until(lambda: len(parked(server)) == 4, 120, "as many parked as there is room for")
    until(lambda: server.get("/v1/pool")["failures"], 60, "the instance without an image has been tried")
    pool = server.get("/v1/pool")
    assert [failure["code"] for failure in pool["failures"]] == ["image_unavailable"]
    buckets: list[dict[str, Any]] = pool["buckets"]
    assert sorted(bucket["parked"] for bucket in buckets) == [1, 1, 2], "one for each before a second one"
    waiting = parked(server)
    for name in ("samples__tarif-5", "samples__swatch-31"):
        assert server.begin(name) in waiting
    for wrong in ({}, {"instances": [None]}, {"instances": "all"}, {"instances": {}}):
        assert server.post("/v1/lookahead", wrong).status_code == 422


@pytest.mark.parametrize("setting", [{"pool_size": 0}, {"max_sessions": 1}, {"pool_min_free_mb": 1 << 30}])
def test_bounds_on_parking(serve: Callable[..., Server], setting: dict[str, int]) -> None:
    """More containers are parked than slots, memory or settings allow."""
    server = serve(pool_group=8, **setting)
    server.begin()
    server.post("/v1/lookahead", {"instances": ["samples__tarif-5"]})
    until(lambda: not server.get("/v1/pool")["preparing"], 60, "looked at")
    time.sleep(1.5)
    assert parked(server) == [] and len(server.containers("role=session")) == 1


def test_instances_that_need_another_container_get_it(rows: Path, tmp_path: Path) -> None:
    """An instance gets a container with memory, environment or activation of another one with the same image."""
    ledger = next(row for row in map(json.loads, rows.read_text().splitlines()) if row["instance_id"] == LEDGER)
    other = {"images": [ledger["image"]], "memory_mb": 300, "env": {"COLOUR": "blue"}}
    own = {
        "instance_id": "samples__other-1",
        "repo": ledger["repo"],
        "version": ledger["version"],
        "grader": {"kind": "script", "command": "true"},
        "sandbox": other,
    }
    both = tmp_path / "both.jsonl"
    both.write_text(f"{json.dumps(ledger)}\n{json.dumps(own)}\n")
    with serving(tmp_path, both, pool_group=2) as server:
        server.begin(LEDGER)
        until(lambda: len(parked(server)) == 1, 30, "a sibling parked")
        sid = server.begin("samples__other-1")
        assert sid not in parked(server)
        assert "\r\nblue[" in server.run(sid, "echo $COLOUR")
        memory = docker("inspect", "-f", "{{.HostConfig.Memory}}", server.container(sid)).strip()
        assert int(memory) == 300 << 20
