"""Pausing and resuming boxes: with the real SDK, with plain requests, and directly on the engine."""

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from .e2b import TEMPLATES, Control, sdk
from .serving import Server, docker, serving, until


@pytest.fixture(scope="module")
def server(rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = {"box_templates": TEMPLATES, "reaper_period_s": 0.5, "pool_size": 0}
    with serving(tmp_path_factory.mktemp("paused"), rows, **settings) as server:
        yield server


def state(control: Control, sid: str) -> str:
    """The box's state as reported; "" once it has ended."""
    answer = control.call("GET", f"/sandboxes/{sid}")
    return str(answer.json()["state"]) if answer.is_success else ""


def frozen(server: Server, sid: str) -> bool:
    """Whether the engine reports the container as paused."""
    return bool(json.loads(docker("inspect", server.container(sid)))[0]["State"]["Paused"])


def health(server: Server, made: dict[str, str]) -> int:
    """Status of a health request to the box."""
    headers = {"E2b-Sandbox-Id": made["sandboxID"], "X-Access-Token": made["envdAccessToken"]}
    return httpx.get(f"{server.url}/health", headers=headers, timeout=20, trust_env=False).status_code


def test_the_sdk_pauses_and_connects(server: Server, control: Control) -> None:
    """A pause ends a process or its time runs on, a request hangs on a paused box, or a state is wrong."""
    result = sdk(
        server,
        "newest",
        """
import time
from e2b import Sandbox, SandboxQuery, SandboxState
box, other = Sandbox.create(timeout=120), Sandbox.create(timeout=120)
counted = box.commands.run("for n in $(seq 30); do sleep 0.1; done; echo done", background=True, timeout=10)
failures = []
def failing(call):
    began = time.monotonic()
    try:
        call()
    except Exception as error:
        failures.append((type(error).__name__, time.monotonic() - began))
def ids(*states):
    return [found.sandbox_id for found in Sandbox.list(query=SandboxQuery(state=list(states))).next_items()]
result = {"ids": [box.sandbox_id, other.sandbox_id], "failures": failures}
result["paused"] = [box.pause(), box.pause()]
result["running"] = [box.is_running(), other.is_running()]
info = box.get_info()
result["state"], result["lifecycle"] = info.state, info.lifecycle
result["left"] = info.end_at.timestamp() - time.time()
result["lists"] = [ids(SandboxState.PAUSED), ids(SandboxState.RUNNING), ids(*SandboxState)]
failing(lambda: box.commands.run("true"))
failing(lambda: box.files.read("/etc/hostname"))
failing(lambda: box.set_timeout(30))
result["paused"].append(box.pause(mode="filesystem"))
time.sleep(9)
again = box.connect(timeout=40)
result["again"] = [again.sandbox_id, box.is_running(), box.get_info().state, Sandbox.pause(other.sandbox_id)]
result["left again"] = box.get_info().end_at.timestamp() - time.time()
# by a new stream: the SDK itself ends the first one at its timeout, whatever the sandbox does
result["told"] = again.commands.connect(counted.pid).wait().stdout
result["says"] = box.commands.run("echo here").stdout
result["killed"] = [other.kill(), other.kill(), box.kill()]
failing(lambda: Sandbox.connect(other.sandbox_id))
failing(lambda: other.pause())
""",
    )
    box, other = result["ids"]
    assert result["paused"] == [True, False, False] and result["running"] == [False, True]
    assert result["state"] == "paused" and result["lifecycle"] == {"on_timeout": "kill", "auto_resume": False}
    assert result["left"] > 10_000  # SANDBOX_BOX_PAUSED_MAX_S, no more the two minutes that it was made for
    assert result["lists"] == [[box], [other], [other, box]]
    assert result["again"] == [box, True, "running", True] and 30 < result["left again"] <= 40
    assert result["told"] == "done\n" and result["says"] == "here\n"
    assert result["killed"] == [True, False, True]
    names, took = zip(*result["failures"], strict=True)
    not_running, unknown = "SandboxNotRunningException", "SandboxNotFoundException"
    assert list(names) == [not_running, not_running, unknown, unknown, unknown]
    assert max(took) < 40, result["failures"]


def test_an_end_that_is_a_pause(server: Server, control: Control) -> None:
    """A box's timeout ends it instead of pausing it, or traffic does not resume it."""
    waking = control.create(timeout=2, autoPause=True, autoResume={"enabled": True})
    asleep = control.create(timeout=2, autoPause=True)
    sids = [waking["sandboxID"], asleep["sandboxID"]]
    until(lambda: all(frozen(server, sid) for sid in sids), 10, "both paused")
    assert [state(control, sid) for sid in sids] == ["paused", "paused"]
    assert control.call("GET", f"/sandboxes/{sids[0]}").json()["lifecycle"] == {
        "autoResume": True,
        "onTimeout": "pause",
    }
    assert health(server, waking) == 204 and health(server, asleep) == 502
    assert [state(control, sid) for sid in sids] == ["running", "paused"]
    assert not frozen(server, sids[0])
    again = control.call("POST", f"/sandboxes/{sids[1]}/resume", {"timeout": 30, "autoPause": False})
    assert again.status_code == 201 and again.json()["envdAccessToken"] == asleep["envdAccessToken"]
    assert control.call("POST", f"/sandboxes/{sids[1]}/resume", {"timeout": 30}).status_code == 409
    assert control.call("GET", f"/sandboxes/{sids[1]}").json()["lifecycle"]["onTimeout"] == "kill"
    assert control.call("POST", f"/sandboxes/{sids[1]}/connect", {"timeout": 30}).status_code == 200
    assert control.call("POST", f"/sandboxes/{sids[0]}/connect", {"memory": False}).status_code == 200  # it is running
    plain = control.call("GET", "/sandboxes").json()
    assert {found["sandboxID"] for found in plain} == set(sids)
    control.call("POST", f"/sandboxes/{sids[0]}/pause")
    assert [found["sandboxID"] for found in control.call("GET", "/sandboxes").json()] == [sids[1]]
    assert control.call("POST", f"/sandboxes/{sids[0]}/connect", {"memory": False}).status_code == 201


def test_over_a_restart_and_behind_its_back(server: Server, control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    """A box that a restart woke or forgot; one that somebody else unpaused or paused; one lost and still told; a slot
    that was given to another while its box was paused; a pause without end. The file's last: its server is another.
    """
    made, other = control.create(timeout=300), control.create(timeout=300)
    sid, running = made["sandboxID"], other["sandboxID"]
    assert control.call("POST", f"/sandboxes/{sid}/pause").status_code == 204
    paused = f"deadline > {time.time() + 1000}"  # its box is written before it
    until(lambda: server.in_sql("sessions", sid, paused) and server.in_sql("sessions", running), what="both in SQL")
    server.kill(signal.SIGKILL)
    os.kill(server.redis(), signal.SIGKILL)
    for path in (server.folder / "data" / "redis").iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    monkeypatch.setitem(server.environment, "SANDBOX_BOX_PAUSED_MAX_S", "2")
    server.start()
    assert state(control, sid) == "paused" and frozen(server, sid) and health(server, made) == 502
    until(
        lambda: [node["used"] for node in httpx.get(f"{server.url}/v1/nodes", timeout=5).json()] == [2],
        10,
        "a slot each",
    )
    docker("unpause", server.container(sid))
    docker("pause", server.container(running))
    until(lambda: frozen(server, sid) and not frozen(server, running), 10, "the engine as the records say")
    assert state(control, sid) == "paused" and health(server, other) == 204
    assert control.call("POST", f"/sandboxes/{sid}/connect", {"timeout": 200}).status_code == 201
    assert health(server, made) == 204
    assert control.call("POST", f"/sandboxes/{sid}/pause").status_code == 204
    docker("rm", "-f", server.container(sid))
    until(lambda: state(control, sid) == "", 10, "a paused box whose container is gone is lost")
    brief = control.create(timeout=60)["sandboxID"]
    assert control.call("POST", f"/sandboxes/{brief}/pause").status_code == 204
    until(lambda: state(control, brief) == "", 15, "its pause over")
    until(lambda: not server.containers(f"sid={brief}"), 20, "its container removed")
    assert control.call("GET", f"/v1/sessions/{brief}").json()["end_reason"] == "timeout"
