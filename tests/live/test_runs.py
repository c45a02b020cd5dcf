"""Aborted runs on two nodes: how their slots are freed; concurrent ends and starts."""

import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from .fleet import fleet
from .serving import UNGRADED, UNREAD, Server, bash, until


@pytest.fixture(scope="module")
def nodes(rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    folder = tmp_path_factory.mktemp("runs")
    settings = {"end_grace_s": 6, "command_timeout_s": 100, "reaper_period_s": 0.5, "allow_ungradable": 1}
    with fleet(folder, rows, 2, **settings) as (servers, _):
        yield servers


def start(server: Server, run: str, key: str = "", *, instance: str = UNREAD) -> str:
    headers = {"Sandbox-Run": run} | ({"Idempotency-Key": key} if key else {})
    answer = server.post("/start_instance", {"instance_hash": instance}, timeout=120, headers=headers)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["sid"])


def live(server: Server, run: str) -> set[str]:
    found = httpx.get(f"{server.url}/v1/sessions", params={"run": run, "state": "live"}, timeout=30)
    return {str(session["sid"]) for session in found.raise_for_status().json()}


def lease(server: Server, run: str, ttl_s: float) -> httpx.Response:
    return httpx.put(f"{server.url}/v1/runs/{run}/lease", json={"ttl_s": ttl_s}, timeout=30)


@pytest.mark.parametrize("how", ["action", "batch"])
def test_an_end_interrupts_the_action(nodes: list[Server], how: str) -> None:
    """The end would wait for the rest of the action's timeout."""
    server = nodes[0]
    sid = start(server, "ends", instance=UNGRADED)
    command = "echo began > began.txt; (sleep 80; echo late > late.txt) & sleep 90; echo no > never.txt"
    with ThreadPoolExecutor(1) as pool:
        if how == "action":
            acting = pool.submit(server.say, sid, bash(command))
        else:
            acting = pool.submit(server.post, f"/v1/sessions/{sid}/exec", {"command": command})
        until(lambda: server.runs(sid, "sleep 90"), 20, "the action under way")
        began = time.monotonic()
        assert server.finish(sid)["state"] == "ended"
        took_s = time.monotonic() - began
        answer = acting.result()
    assert took_s < 60, f"the end took {took_s:.1f} s"
    if how == "action":
        assert "The session was ended while this action ran" in answer["content"]
    patch = server.patch(sid)
    assert b"began.txt" in patch and b"never.txt" not in patch and b"late.txt" not in patch
    (action,) = server.actions(sid)
    assert action["outcome"] == "interrupted"


def test_a_short_action_is_waited_for(nodes: list[Server]) -> None:
    """An end that comes slightly too early would lose the policy's last change."""
    sid = start(nodes[0], "ends", instance=UNGRADED)
    with ThreadPoolExecutor(1) as pool:
        acting = pool.submit(nodes[0].run, sid, "sleep 1.5; echo done | tee done.txt")
        until(lambda: nodes[0].runs(sid, "sleep 1.5"), what="the action under way")
        nodes[0].finish(sid)
        assert "done" in acting.result() and b"done.txt" in nodes[0].patch(sid)


def test_all_sessions_of_a_run_end_on_every_node(nodes: list[Server]) -> None:
    """A killed trainer would block its own restart for half an hour."""
    a, b = nodes
    run = "team/killed:1"
    sids = {start(server, run) for server in (a, b, a, b)}
    assert {a.session(sid)["node"] for sid in sids} == {a.node, b.node}
    other = start(a, "another")
    began = time.monotonic()
    answer = httpx.delete(f"{b.url}/v1/runs/{run}/sessions", timeout=60)
    assert answer.status_code == 200, answer.text
    assert set(answer.json()["ended"]) == sids and answer.json()["ending"] == []
    assert time.monotonic() - began < 30
    assert not live(a, run) and live(a, "another") == {other}
    assert {a.session(sid)["end_reason"] for sid in sids} == {"run_ended"}
    assert a.cli("sessions", "close", "--run", "another").startswith("1 sessions of run another ended")
    assert httpx.delete(f"{a.url}/v1/runs/nobody/sessions", timeout=60).json()["ended"] == []
    assert httpx.delete(f"{a.url}/v1/runs/two words/sessions", timeout=60).status_code == 422


def test_a_start_that_is_sent_again_is_one_session(nodes: list[Server]) -> None:
    """A lost answer would leave a session behind, which keeps its slot."""
    a, b = nodes
    first = start(a, "again", "k1")
    assert start(b, "again", "k1") == start(a, "again", "k1") == first
    assert start(a, "again", "k2") != first and start(a, "another", "k1") != first
    a.finish(first)
    assert start(a, "again", "k1") != first, "a session that is over is no answer to a start"
    with ThreadPoolExecutor(4) as pool:
        answers = set(pool.map(lambda server: start(server, "at-once", "k"), (a, b, a, b)))
    assert len(answers) == 1
    until(lambda: live(a, "at-once") == answers, 20, "one of them is left")


def test_a_run_that_stops_saying_that_it_lives_ends(nodes: list[Server]) -> None:
    """Its sessions would keep their slots until the idle timeout."""
    a, b = nodes
    begun = [start(server, "leased") for server in (a, b)]
    unleased = start(a, "unleased")
    for _ in range(12):
        assert lease(a, "leased", 5).json()["run"] == "leased"
        time.sleep(0.5)
    assert live(a, "leased") == set(begun), "it ended although its lease was renewed"
    until(lambda: not live(a, "leased"), 15, "the sessions of the run whose lease ran out end")
    assert {a.session(sid)["end_reason"] for sid in begun} == {"lease"}
    after = start(a, "leased")
    time.sleep(1.5)
    assert live(a, "leased") == {after} and live(a, "unleased") == {unleased}
    assert httpx.delete(f"{a.url}/v1/runs/leased/lease", timeout=30).json()["released"] is True
    for bad in (0, -1, "soon", 1e9, None):
        answer = httpx.put(f"{a.url}/v1/runs/leased/lease", json={"ttl_s": bad}, timeout=30)
        assert answer.status_code == 422, (bad, answer.text)


def test_a_service_that_was_away_ends_no_run_for_it(nodes: list[Server]) -> None:
    """No lease could be renewed while the service was down, so after its start it would end the run."""
    sid = start(nodes[0], "patient")
    assert lease(nodes[0], "patient", 2).is_success
    for server in nodes:
        server.tell(signal.SIGSTOP)
    time.sleep(2.8)
    for server in nodes:
        server.tell(signal.SIGCONT)
    for _ in range(4):
        assert lease(nodes[0], "patient", 20).is_success  # longer: the time until its next renewal is not the question
        time.sleep(0.4)
    assert live(nodes[0], "patient") == {sid}
