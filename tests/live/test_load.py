"""Overload and unhealthy nodes: who is served, and what the refused requests are told."""

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.documents import blocks, learn

from .serving import UNREAD, Server, bash, until
from .wire import Wire, wired

LEDGER = "samples__ledger-12"
REFUSAL = {"code", "detail", "retryable", "reason", "position", "estimate_s"}


@pytest.fixture
def wire() -> Iterator[Wire]:
    with wired() as wire:
        yield wire


@pytest.fixture
def disk(tmp_path: Path, missing: Callable[[str], None]) -> Iterator[Path]:
    """A file system of 20 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid():
        missing("root, to mount a small file system")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def start(server: Server, run: str = "", timeout: float = 120) -> httpx.Response:
    return server.post("/start_instance", {"instance_hash": UNREAD}, timeout=timeout, headers={"Sandbox-Run": run})


def metric(server: Server, name: str) -> float:
    """The value of one metric series; 0.0 if missing."""
    lines = httpx.get(f"{server.url}/metrics").text.splitlines()
    return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name} ")), 0.0)


def as_printed(printed: str, refused: httpx.Response, named: dict[str, str]) -> None:
    """Compare what a document prints with the answer, in which the document's names stand for real ones."""
    said = f"HTTP/1.1 {refused.status_code}\nRetry-After: {refused.headers['Retry-After']}\n{refused.text}"
    for real, name in named.items():
        said = said.replace(real, name)
    learn(printed, said, {})


def fault(server: Server, reason: str) -> bool:
    return metric(server, f'sandbox_node_fault{{reason="{reason}"}}') == 1


def test_two_runs_share_the_slots(serve: Callable[..., Server]) -> None:
    """A trainer with many starts blocks another one until all of its own are served."""
    server = serve(max_sessions=2, start_timeout_s=100)
    order: list[tuple[str, str]] = []

    def go(run: str) -> None:
        answer = start(server, run)
        assert answer.status_code == 200, answer.text
        order.append((run, answer.json()["sid"]))

    with ThreadPoolExecutor(14) as pool:
        for run, count, waiting in (("greedy", 10, 8), ("small", 3, 11)):
            for _ in range(count):
                pool.submit(go, run)
            until(lambda waiting=waiting: metric(server, 'sandbox_starts_waiting{reason="slots"}') == waiting, 60, run)
        until(lambda: len(order) == 2, 60, "those with a slot are through")
        assert [run for run, _ in order] == ["greedy"] * 2
        assert metric(server, 'sandbox_run_starts{run="greedy",state="waiting"}') == 8
        assert metric(server, 'sandbox_run_starts{run="small",state="waiting"}') == 3
        for number in range(13):
            until(lambda number=number: len(order) > number, 60, "the next start")
            server.finish(order[number][1])
    went = [run for run, _ in order]
    # two starts at a time may be answered in another order than they began
    assert "small" in went[2:4] and max(n for n, run in enumerate(went) if run == "small") <= 7, went
    mine = httpx.get(f"{server.url}/v1/sessions", params={"run": "small"}).json()
    assert {session["sid"] for session in mine} == {sid for run, sid in order if run == "small"}
    receipt = server.get(f"/v1/receipts/{server.reward(mine[0]['sid'])['receipt']}")
    assert receipt["run"] == "small"
    assert {entry["run"] for entry in server.entries() if entry["event"] == "started"} == {"greedy", "small"}


def test_what_a_refusal_says(serve: Callable[..., Server]) -> None:
    """A refusal does not say what was lacking or when to retry; or a full queue makes the start hang."""
    server = serve(max_sessions=1, start_timeout_s=15, start_queue=2)
    for _ in range(2):
        server.finish(server.begin(UNREAD))
    sid = server.begin(UNREAD)
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(start, server, "a") for _ in range(2)]
        until(lambda: metric(server, 'sandbox_starts_waiting{reason="slots"}') == 2, 10, "two wait")
        refused = start(server, "a")
        assert not any(one.done() for one in waiting), "it was refused at once"
        body = refused.json()
        assert refused.status_code == 503 and body.keys() == REFUSAL
        assert (body["reason"], body["position"], body["retryable"]) == ("queue", 3, True)
        assert "SANDBOX_START_QUEUE" in body["detail"]
        other = pool.submit(start, server, "b")  # another run still has its share of the queue
        answers = [answer.result() for answer in [*waiting, other]]
    bodies = [answer.json() for answer in answers]
    # the last of the longer part was put out; the other two were the next one when each gave up
    assert sorted((body["reason"], body["position"]) for body in bodies) == [("queue", 2), ("slots", 1), ("slots", 1)]
    for body in bodies:
        assert body["estimate_s"] > 0, "two sessions have ended lately"
    at_once, late = blocks("docs/load.md", "## What each 503 means")
    as_printed(at_once.text, refused, {server.node: "sandbox-1"})
    as_printed(
        late.text, next(answer for answer in answers if answer.json()["reason"] == "slots"), {server.node: "sandbox-1"}
    )
    refused = start(server)
    assert 1 <= int(refused.headers["Retry-After"]) <= 60
    assert int(refused.headers["Retry-After"]) >= min(60, refused.json()["estimate_s"]) - 1
    assert metric(server, 'sandbox_starts_refused_total{reason="queue"}') == 2
    assert metric(server, 'sandbox_starts_refused_total{reason="slots"}') == 3
    server.finish(sid)
    server.finish(server.begin(UNREAD))


def test_clients_that_leave_free_their_places(serve: Callable[..., Server]) -> None:
    """Starts of disconnected clients fill the queue, so that others are refused."""
    server = serve(max_sessions=1, start_queue=3, start_timeout_s=60)
    sid = server.begin(UNREAD)
    full = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        gone = pool.submit(server.hang_up, "/v1/groups", {"instance": LEDGER, "n": 3}, 0, full.is_set)
        until(lambda: metric(server, 'sandbox_starts_waiting{reason="slots"}') == 3, 10, "three wait")
        assert start(server).json()["reason"] == "queue"
        full.set()
        gone.result()
    until(lambda: metric(server, 'sandbox_starts_waiting{reason="slots"}') == 0, 10, "none waits")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(start, server)
        until(lambda: metric(server, 'sandbox_starts_waiting{reason="slots"}') == 1, 10, "it waits")
        server.finish(sid)
        assert waiting.result().status_code == 200


def test_an_engine_that_is_gone(wire: Wire, serve: Callable[..., Server]) -> None:
    """Every start and grading waits its full timeout for a missing daemon; or none is accepted ever again."""
    server = serve(docker_url=wire.url, breaker_failures=3, breaker_probe_s=0.5, pool_size=0, reaper_period_s=0.5)
    sid, ended = server.begin(), server.begin()
    server.run(ended, "echo x > x.txt")
    wire.cut()
    until(lambda: fault(server, "daemon"), 30, "the breaker is open")
    began = time.monotonic()
    refused = start(server)
    assert time.monotonic() - began < 20
    body = refused.json()
    assert refused.status_code == 503 and body.keys() == REFUSAL and int(refused.headers["Retry-After"]) == 10
    assert (body["reason"], body["position"], body["estimate_s"]) == ("daemon", None, None)
    (shown,) = blocks("docs/load.md", "## When the engine does not answer")
    as_printed(f"HTTP/1.1 503\nRetry-After: 10\n{shown.text}", refused, {wire.url: "tcp://127.0.0.1:43575"})
    group = server.post("/v1/groups", {"instance": LEDGER, "n": 2})
    assert (group.status_code, group.json()["reason"]) == (503, "daemon")
    assert server.say(sid, bash("echo tried"))["error"]["code"] == "engine_unavailable", "actions still try"
    wire.mend()
    until(lambda: start(server).status_code == 200, 15, "starts again")
    assert "\r\nstill here[" in server.run(sid, "echo still here")
    assert server.reward(ended)["verdict"] == "unresolved"


def test_an_engine_that_hangs(wire: Wire, serve: Callable[..., Server]) -> None:
    """A daemon that accepts calls but does not answer blocks every start for its full timeout."""
    server = serve(docker_url=wire.url, docker_timeout_s=8, breaker_failures=2, breaker_probe_s=0.5, reaper_period_s=1)
    sid = server.begin()
    wire.hush()
    until(lambda: fault(server, "daemon"), 60, "the breaker is open")
    began = time.monotonic()
    assert start(server).json()["reason"] == "daemon" and time.monotonic() - began < 20
    wire.mend()
    until(lambda: start(server).status_code == 200, 30, "starts again")
    assert "\r\nok[" in server.run(sid, "echo ok")


def test_starts_under_way_wait_for_the_engine(wire: Wire, serve: Callable[..., Server]) -> None:
    """A restart of the daemon that takes seconds fails all starts that were waiting for their containers."""
    server = serve(docker_url=wire.url, breaker_failures=1, breaker_probe_s=0.5, pool_size=0, boot_concurrency=1)
    server.finish(server.begin(UNREAD))
    with ThreadPoolExecutor(6) as pool:
        starts = [pool.submit(start, server) for _ in range(6)]
        until(lambda: metric(server, 'sandbox_starts_waiting{reason="daemon"}') >= 4, 10, "under way")
        wire.cut()
        until(lambda: fault(server, "daemon"), 10, "the breaker is open")
        assert start(server).json()["reason"] == "daemon", "new ones are refused"
        time.sleep(2)
        wire.mend()
        answers = [one.result() for one in starts]
    went_on = [answer for answer in answers if answer.status_code == 200]
    late = [answer.json() for answer in answers if answer.status_code != 200]  # when the outage was already known
    assert len(went_on) >= 4 and all(body["code"] == "no_capacity" for body in late), late
    for answer in went_on:
        assert "\r\nwell[" in server.run(answer.json()["sid"], "echo well")
    until(
        lambda: len(server.containers("role=session")) == len(went_on),
        20,
        "what was being made when the wire broke is gone",
    )


def fill(disk: Path, percent: int) -> None:
    (disk / "filler").write_bytes(bytes(20 * 2**20 * percent // 100))


def test_a_disk_that_is_nearly_full(disk: Path, serve: Callable[..., Server]) -> None:
    """Sessions are begun until the engine's disk is full, which ends them all; or none is begun when there is room."""
    # pinned: other tests' prepared images are on this engine too
    server = serve(disk_path=disk, disk_period_s=0.2, pinned_images="*", pool_group=3, reward_wait_s=3)
    fill(disk, 90)
    sid = server.begin()
    server.run(sid, "echo x > x.txt")
    until(lambda: len(server.containers("role=session")) == 3, 30, "two are parked")
    fill(disk, 96)
    until(lambda: fault(server, "disk"), 10, "it is measured")
    body = start(server).json()
    assert body.keys() == REFUSAL and body["reason"] == "disk" and "SANDBOX_DISK_REFUSE_PCT=95" in body["detail"]
    until(lambda: len(server.containers("role=session")) == 1, 20, "what was parked is given up")
    assert "\r\ngoes on[" in server.run(sid, "echo goes on")
    server.finish(sid)
    got = server.reward(sid)
    assert (got["verdict"], got["mask"]) == ("pending", True), "it is graded where and when there is room"
    assert 0.9 < metric(server, "sandbox_engine_disk_used_ratio") < 1
    fill(disk, 50)
    until(lambda: start(server).status_code == 200, 10, "starts again")
    until(lambda: server.reward(sid)["verdict"] == "unresolved", 60, "graded after all")
    assert [entry for entry in server.entries() if entry["event"] == "image removed for room"] == []
