"""Snapshots and copies of boxes, by the real SDK and by plain requests; pauses that keep only files."""

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from sandbox_client.boxes import Box
from sandbox_client.errors import RequestRejected, UnknownImage

from .e2b import BASE, TEMPLATES, Control, sdk
from .fleet import fleet
from .serving import Server, serving, until

BUSY_S = (0.15, 0.5)
"""Seconds after a request at which the server is killed."""
FILL = "dd if=/dev/urandom of=/tmp/large bs=1M count=16 status=none; echo once >> /tmp/n"
LOOK = "cksum < /tmp/large; wc -l < /tmp/n"


@pytest.fixture(scope="module")
def server(rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = {"box_templates": TEMPLATES, "reaper_period_s": 0.5, "hibernate_s": 2, "snapshots": 3}
    with serving(tmp_path_factory.mktemp("snapshots"), rows, **settings) as server:
        yield server


def standing(server: Server) -> list[str]:
    """Names of the checkpoints that stand."""
    stored = [json.loads(path.read_text()) for path in (server.folder / "data" / "checkpoints").glob("*.json")]
    return [one["sid"] for one in stored if one["stands"]]


def run(control: Control, sid: str, cmd: str) -> str:
    """What the command prints in the box."""
    done = control.call("POST", f"/v1/boxes/{sid}/commands", {"cmd": cmd, "wait_s": 50})
    assert done.is_success and done.json()["state"] == "ended", done.text
    return str(done.json()["stdout"])


def test_the_sdk_takes_snapshots_and_copies(server: Server, control: Control) -> None:
    """A box from a snapshot lacks files, shares them, or the list and the delete are wrong."""
    result = sdk(
        server,
        "newest",
        """
import asyncio
from e2b import AsyncSandbox, Sandbox
box = Sandbox.create(timeout=120, envs={"KEPT": "yes"})
box.commands.run("mkdir -p /opt/d && echo 1 > /opt/d/f && chmod 640 /opt/d/f && rm -rf /srv && ln -s f /opt/d/l")
box.commands.run("exec sleep 1000", background=True)
look = "cat /opt/d/l; stat -c %a /opt/d/f; [ -e /srv ] || echo gone; pgrep -cxf 'sleep 1000'; echo $KEPT"
result = {"before": box.commands.run(look).stdout}
taken, named = box.create_snapshot(), box.create_snapshot(name="Kept.one", mode="filesystem")
result["ids"] = [taken.snapshot_id, named.snapshot_id, taken.names, named.names]
box.commands.run("echo 2 > /opt/d/f")
made = [Sandbox.create(one) for one in (taken.snapshot_id, "kept.one")]
result["made"] = [one.commands.run(look).stdout for one in made]
made[0].files.write("/opt/d/f", "3")
result["apart"] = [one.files.read("/opt/d/f") for one in (box, *made)]
result["template"] = made[0].get_info().template_id
def ids(pages):
    found = []
    while pages.has_next:
        found.append([one.snapshot_id for one in pages.next_items()])
    return found
result["lists"] = [ids(Sandbox.list_snapshots(limit=1)), ids(box.list_snapshots()), ids(made[0].list_snapshots()),
                   ids(Sandbox.list_snapshots(name="kept.one")), ids(Sandbox.list_snapshots(name="other"))]
forks = box.fork(count=2, timeout=60)
result["forks"] = [one.commands.run("cat /opt/d/f; echo $KEPT").stdout for one in forks]
result["deleted"] = [Sandbox.delete_snapshot(taken.snapshot_id), Sandbox.delete_snapshot(taken.snapshot_id)]
def failing(call):
    try:
        call()
    except Exception as error:
        return [type(error).__name__, str(error)]
result["failures"] = [failing(lambda: Sandbox.create(taken.snapshot_id)),
                      failing(lambda: box.create_snapshot(mode="full"))]
async def main():
    box = await AsyncSandbox.create(named.snapshot_id)
    (copy,) = await box.fork()
    snapshot = await copy.create_snapshot()
    (listed,) = await copy.list_snapshots().next_items()
    told = [await copy.files.read("/opt/d/f"), listed.snapshot_id == snapshot.snapshot_id]
    await asyncio.gather(box.kill(), copy.kill())
    deleted = [await AsyncSandbox.delete_snapshot(one) for one in (snapshot.snapshot_id, "kept.one")]
    return told + deleted
result["async"] = asyncio.run(main())
box.kill()
result["failures"].append(failing(lambda: box.fork()))
for one in (*made, *forks):
    one.kill()
""",
    )
    one, named, *names = result["ids"]
    assert (named, names) == ("kept.one:default", [[], ["kept.one:default"]])
    files = "1\n640\ngone\n"
    assert result["before"] == f"{files}1\nyes\n"
    assert result["made"] == [f"{files}0\nyes\n"] * 2, "all but what ran"
    assert result["apart"] == ["2\n", "3", "1\n"] and result["template"] == one
    assert result["lists"] == [[[named], [one]], [[named, one]], [[]], [[named]], [[]]]
    assert result["forks"] == ["2\nyes\n"] * 2 and result["deleted"] == [True, False]
    gone, memory, killed = result["failures"]
    assert gone[0] == "SandboxException" and "does not exist" in gone[1]
    assert memory[0] == "SandboxException" and "mode filesystem" in memory[1]
    assert killed[0] == "SandboxNotFoundException"
    assert result["async"] == ["1\n", True, True, True]
    assert standing(server) == [], "files of deleted snapshots, or of copies"


def test_the_sdk_pauses_without_memory(server: Server, control: Control) -> None:
    """A paused box costs a container or a slot, loses files, keeps programs, or wakes by itself."""
    result = sdk(
        server,
        "newest",
        """
from e2b import Sandbox
box = Sandbox.create(timeout=120)
def failing(call):
    try:
        call()
    except Exception as error:
        return type(error).__name__
box.commands.run("echo kept > /opt/f; chown daemon /opt/f; rm -rf /srv")
box.commands.run("exec sleep 1000", background=True)
look = "cat /opt/f; stat -c %U /opt/f; [ -e /srv ] || echo gone; pgrep -cxf 'sleep 1000' || true"
result = {"paused": [box.pause(mode="filesystem"), box.pause(mode="filesystem")]}
info = box.get_info()
result["info"] = [info.state, box.is_running(), failing(lambda: box.commands.run("true"))]
result["same"] = box.connect(timeout=60).sandbox_id == box.sandbox_id
result["resumed"] = [box.commands.run(look).stdout, box.is_running(), box.get_info().state]
box.commands.run("exec sleep 1000", background=True)
box.pause()
result["frozen"] = [box.connect().commands.run(look).stdout]
box.pause()
result["rebooted"] = box.connect(on_resume="reboot").commands.run(look).stdout
result["sid"] = box.sandbox_id
box.pause(keep_memory=False)
""",
    )
    files = "kept\ndaemon\ngone\n"
    assert result["paused"] == [True, False]
    assert result["info"] == ["paused", False, "SandboxNotRunningException"]
    assert result["same"] and result["resumed"] == [f"{files}0\n", True, "running"]
    assert result["frozen"] == [f"{files}1\n"] and result["rebooted"] == f"{files}0\n"
    sid = result["sid"]
    until(lambda: not server.containers(), 10, "no container")
    until(lambda: [node["used"] for node in control.call("GET", "/v1/nodes").json()] == [0], 10, "no slot")
    assert standing(server) == [f"box-{sid}"]
    control.kill(sid)
    assert standing(server) == []


def test_an_idle_box_sleeps(server: Server, control: Control) -> None:
    """It keeps its container, or loses files or what runs in it; or its client sees that it slept."""
    quiet, busy = (control.create(timeout=300)["sandboxID"] for _ in range(2))
    run(control, quiet, "echo kept > /opt/f")
    run(control, busy, "setsid sleep 1000 > /dev/null 2>&1 &")
    until(lambda: len(server.containers()) == 1, 10, "no container")
    shown = control.call("GET", f"/v1/boxes/{quiet}").json()
    assert (shown["state"], shown["container_id"]) == ("live", "")
    assert control.call("GET", f"/sandboxes/{quiet}").json()["state"] == "running"
    control.call("POST", f"/sandboxes/{quiet}/timeout", {"timeout": 200})
    assert run(control, quiet, "cat /opt/f") == "kept\n" and len(server.containers()) == 2
    said = {"event": "box does not sleep", "sid": busy, "why": "it has running program sleep"}
    until(lambda: any(said.items() <= entry.items() for entry in server.entries()), 10, "an attempt")
    assert run(control, busy, "pgrep -cxf 'sleep 1000'") == "1\n"
    until(lambda: len(server.containers()) == 1, 10, "no container again")
    assert control.call("POST", f"/sandboxes/{quiet}/pause").status_code == 204  # no container is needed for that
    assert control.call("POST", f"/sandboxes/{quiet}/connect", {"timeout": 60}).status_code == 201
    assert run(control, quiet, "cat /opt/f") == "kept\n"
    control.kill(quiet, busy)
    assert standing(server) == []


async def test_our_own_client(server: Server, control: Control) -> None:
    """A snapshot or a copy is not what the box was, or cannot be used as a box."""
    async with Box(BASE, base_url=server.url, lifetime_s=300) as box:
        await box.write("/opt/kept", b"1")
        taken = await box.snapshot("ours:v1")
        assert (taken.name, taken.sid) == ("ours:v1", box.sid)
        assert await box.snapshots("ours:v1") == await box.snapshots() == [taken]
        await box.write("/opt/kept", b"2")
        (copy,) = await box.fork(lifetime_s=200)
        async with Box(snapshot="ours:v1", base_url=server.url) as other:
            assert [await one.read("/opt/kept") for one in (box, copy, other)] == [b"2", b"2", b"1"]
        await copy.pause()
        assert control.call("GET", f"/v1/boxes/{copy.sid}").json()["paused"]
        await copy.resume(100)
        assert (await copy.run("cat /opt/kept")).stdout == "2"
        await copy.kill()
        await copy.aclose()
        await box.delete_snapshot(taken.id)
        with pytest.raises(RequestRejected, match="no snapshot"):
            await box.delete_snapshot("ours:v1")
        with pytest.raises(UnknownImage):
            async with Box(snapshot="ours:v1", base_url=server.url):
                pass
    assert control.ids() == [] and standing(server) == []


def test_a_key_has_so_many_snapshots(server: Server, control: Control) -> None:
    """A key fills the disk, a repeated request takes two, or a name's old snapshot stays."""
    sid = control.create(timeout=300)["sandboxID"]
    path = f"/v1/boxes/{sid}/snapshots"

    def taken(key: str = "", **body: object) -> dict[str, Any]:
        answer = Control(server, **({"Idempotency-Key": key} if key else {})).call("POST", path, body)
        return dict(answer.json())

    first = taken("once")
    assert taken("once") == first and first["size_bytes"] > 0 and not first["shared"]
    with ThreadPoolExecutor(3) as pool:
        at_once = [pool.submit(taken, "at once", name="kept") for _ in range(3)]
        (one,) = {future.result()["id"] for future in at_once}
    assert control.call("DELETE", f"/v1/snapshots/{one}").status_code == 204
    named = [taken(name="again:v1")["id"] for _ in range(2)]
    assert [one["id"] for one in control.call("GET", "/v1/snapshots").json()] == [named[1], first["id"]]
    last = taken()["id"]
    assert taken()["code"] == "too_many_snapshots"
    assert sorted(standing(server)) == sorted(f"snapshot-{one}" for one in (first["id"], named[1], last))
    for one in ("again:v1", first["id"], last):
        assert control.call("DELETE", f"/v1/snapshots/{one}").status_code == 204
    assert control.call("DELETE", f"/v1/snapshots/{last}").status_code == 404
    control.kill(sid)
    assert standing(server) == []


def test_an_end_that_keeps_only_files(server: Server, control: Control) -> None:
    """A box's end is no such pause, or a request resumes it."""
    wanted = {"autoPause": True, "autoPauseMemory": False}
    resuming = control.call("POST", "/v2/sandboxes", {"templateID": "base", **wanted, "autoResume": {"enabled": True}})
    assert resuming.status_code == 400, resuming.text
    made = control.create(timeout=3, **wanted)
    sid = made["sandboxID"]
    run(control, sid, "echo kept > /opt/f")
    until(lambda: control.call("GET", f"/sandboxes/{sid}").json().get("pauseMode") == "filesystem", 10, "paused")
    until(lambda: not server.containers(), 10, "no container")
    refused = control.call("POST", f"/v1/boxes/{sid}/commands", {"cmd": "true"})
    assert refused.json()["code"] == "sandbox_paused"
    resumed = control.call("POST", f"/v1/boxes/{sid}/resume", {"lifetime_s": 60}).json()
    assert resumed["container_id"] and not resumed["paused"]
    assert run(control, sid, "cat /opt/f") == "kept\n"
    control.kill(sid)


def test_two_nodes(rows: Path, tmp_path: Path) -> None:
    """A box from another node's snapshot lacks its files; a snapshot that is out of reach is told wrongly, or stays."""
    objects = tmp_path / "objects"
    with fleet(tmp_path, rows, 2, box_templates=TEMPLATES) as ((a, b), _):
        near, far = Control(a), Control(b)
        sid = far.create(timeout=600)["sandboxID"]
        assert _node(near, sid) == b.node
        run(near, sid, "echo kept > /opt/f")
        there = near.call("POST", f"/sandboxes/{sid}/snapshots").json()["snapshotID"]
        copies = [near.create(templateID=there)["sandboxID"], *_forks(near, sid)]
        assert [(_node(near, one), run(near, one, "cat /opt/f")) for one in copies] == [(b.node, "kept\n")] * 2
        for server in (a, b):
            server.environment["SANDBOX_CHECKPOINTS_URL"] = f"file://{objects}"
            server.restart()
        shared = near.call("POST", f"/v1/boxes/{sid}/snapshots", {"name": "shared"}).json()
        assert shared["shared"] and shared["node"] == b.node
        b.kill()
        box = near.call("POST", "/v1/boxes", {"snapshot": "shared"}).json()
        assert (box["node"], run(near, box["sid"], "cat /opt/f")) == (a.node, "kept\n")
        away = near.call("POST", "/v1/boxes", {"snapshot": there})
        assert away.status_code == 503 and f"lies on node {b.node}" in away.json()["detail"], away.text
        assert len(near.call("GET", "/snapshots").json()) == 2
        assert near.call("DELETE", "/v1/snapshots/shared").status_code == 204
        assert not [path for path in objects.rglob("*") if path.is_file()]
        assert near.call("DELETE", f"/templates/{there}").status_code == 204
        b.start()
        assert standing(b) == [] and far.call("GET", "/snapshots").json() == []


def _node(control: Control, sid: str) -> str:
    return str(control.call("GET", f"/v1/boxes/{sid}").json()["node"])


def _forks(control: Control, sid: str) -> list[str]:
    forked = control.call("POST", f"/v1/boxes/{sid}/fork", {"n": 1}).json()
    assert forked["failed"] == []
    return list(forked["sids"])


def cut(server: Server, after_s: float, request: Callable[[], object]) -> None:
    """Send a request, kill the server meanwhile, and start it again."""
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(request)
        sleep(after_s)
        server.kill()
        sent.exception(60)  # cut off, or answered just before
    server.start()


def nothing_left(server: Server, folder: Path, sids: set[str]) -> None:
    """Each container is a live session's, and each stored block is whole and some checkpoint's."""
    until(lambda: len(server.containers()) <= len(sids), 30, "no container without a session")
    stored = folder / "data" / "checkpoints"
    assert not list(stored.rglob("*.part"))
    named = "".join(path.read_text() for path in stored.glob("*.json"))
    assert all(path.name in named for path in stored.glob("blocks/*/*"))


def test_killed_in_the_middle(server: Server, control: Control) -> None:
    """A snapshot or a box is lost, doubled or half filled, or something stays. The last: it restarts the server."""
    sid = control.create(timeout=600)["sandboxID"]
    run(control, sid, FILL)
    state = run(control, sid, LOOK)
    for after_s in BUSY_S:
        cut(server, after_s, lambda: control.call("POST", f"/sandboxes/{sid}/snapshots"))
        assert run(control, sid, LOOK) == state
        for request in ("pause", "connect"):
            cut(
                server,
                after_s,
                lambda name=request: control.call("POST", f"/sandboxes/{sid}/{name}", {"memory": False}),
            )
            assert control.call("POST", f"/sandboxes/{sid}/connect", {"timeout": 600}).is_success
            assert run(control, sid, LOOK) == state
            control.call("POST", f"/sandboxes/{sid}/pause", {"memory": False})  # 409: it is
        assert control.call("POST", f"/sandboxes/{sid}/connect", {"timeout": 600}).is_success
    control.call("POST", f"/sandboxes/{sid}/pause", {"memory": False}).raise_for_status()
    server.kill()
    os.kill(server.redis(), signal.SIGKILL)
    for path in (server.folder / "data" / "redis").iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    server.start()
    assert control.call("POST", f"/sandboxes/{sid}/connect", {"timeout": 600}).is_success
    assert run(control, sid, LOOK) == state
    taken = [one["snapshotID"] for one in control.call("GET", "/snapshots").json()]
    for one in taken:
        copy = control.create(templateID=one)["sandboxID"]
        assert run(control, copy, LOOK) == state
        control.kill(copy)
    until(lambda: sorted(standing(server)) == sorted(f"snapshot-{one}" for one in taken), 10, "no others stand")
    nothing_left(server, server.folder, {sid})
    for one in taken:
        assert control.call("DELETE", f"/templates/{one}").status_code == 204
    control.kill(sid)
    nothing_left(server, server.folder, set())
    assert standing(server) == []
