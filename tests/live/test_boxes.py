"""Boxes through E2B's control plane, on a real engine, with plain requests and with the real SDK."""

import json
import re
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.conftest import ROOT

from .e2b import BASE, KEY, TEMPLATES, Control, ends_at, sdk
from .serving import Server, bash, docker, serving, until


@pytest.fixture(scope="module")
def server(rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = {"box_templates": TEMPLATES, "reaper_period_s": 0.5, "pool_size": 0}
    with serving(tmp_path_factory.mktemp("boxes"), rows, **settings) as server:
        yield server


def until_removed(server: Server, sid: str) -> None:
    until(lambda: not server.containers(f"sid={sid}"), 20, "its container removed")


@pytest.mark.parametrize("release", ["newest", "older", "oldest"])
def test_the_sdk_makes_finds_prolongs_and_kills(server: Server, control: Control, release: str) -> None:
    """The SDK misses a field, or takes a status for an error."""
    result = sdk(
        server,
        release,
        """
import time
from e2b import Sandbox, SandboxQuery
made = Sandbox.create(timeout=600, metadata={"a b": "c/d&e", "run": "1"}, envs={"X": "1"})
other = Sandbox.create("base:default", timeout=60)
info = made.get_info()
before = info.end_at.timestamp()
made.set_timeout(200)
shorter = made.get_info().end_at.timestamp()
again = Sandbox.connect(made.sandbox_id, timeout=400)
longer = made.get_info().end_at.timestamp()
page = Sandbox.list(query=SandboxQuery(metadata={"a b": "c/d&e"}))
found = [sandbox.sandbox_id for sandbox in page.next_items()]
pages, seen = Sandbox.list(limit=1), []
while pages.has_next:
    seen += [sandbox.sandbox_id for sandbox in pages.next_items()]
result = {
    "ids": [made.sandbox_id, other.sandbox_id], "found": found, "seen": seen, "metadata": info.metadata,
    "template": info.template_id, "again": again.sandbox_id, "ends": [before, shorter, longer],
    "killed": [made.kill(), made.kill(), Sandbox.kill("nonexistingsandbox")], "now": time.time(),
}
try:
    Sandbox.connect(made.sandbox_id)
except Exception as error:
    result["error"] = type(error).__name__
other.kill()
""",
    )
    made, other = result["ids"]
    assert result["found"] == [made] and result["seen"] == [other, made] and result["again"] == made
    assert result["metadata"] == {"a b": "c/d&e", "run": "1"} and result["template"] == "base"
    before, shorter, longer = (end - result["now"] for end in result["ends"])
    assert 450 < before <= 600 and 50 < shorter <= 200 and 250 < longer <= 400
    assert result["killed"] == [True, False, False]
    assert result["error"] in ("SandboxNotFoundException", "NotFoundException")


def test_the_sdk_reads_no_fix_in_a_task_image(server: Server, control: Control) -> None:
    """A policy reads history that sessions hide, or a grader cannot get it."""
    result = sdk(
        server,
        "newest",
        """
from e2b import Sandbox
result = []
for metadata in ({}, {"task_image": "raw"}):
    sandbox = Sandbox.create(timeout=60, metadata={"image": "sandbox-samples/ledger:latest", **metadata})
    result.append(sandbox.commands.run("git log --all --format=%s; git status --short", cwd="/testbed").stdout)
    sandbox.kill()
""",
    )
    assert len(result[0].splitlines()) == 3 and "Lost work" not in result[0]
    assert len(result[1].splitlines()) > 3


def test_what_a_create_says_is_what_the_box_is(server: Server, control: Control) -> None:
    """A requested size, network or run is silently not applied."""
    named = Control(server, **{"Sandbox-Run": "team"})
    made = named.create(metadata={"image": BASE, "size": "sm"}, allow_internet_access=False, templateID="nothing")
    plain = control.create()
    (first, second) = (
        json.loads(docker("inspect", *server.containers(f"sid={box['sandboxID']}")))[0] for box in (made, plain)
    )
    assert first["HostConfig"]["Memory"] == 2048 << 20 and first["HostConfig"]["NanoCpus"] == 10**9
    assert first["Config"]["NetworkDisabled"] and not second["Config"].get("NetworkDisabled")
    info = control.call("GET", f"/sandboxes/{made['sandboxID']}").json()
    assert (info["memoryMB"], info["cpuCount"], info["state"], info["allowInternetAccess"]) == (
        2048,
        1,
        "running",
        False,
    )
    assert made["envdAccessToken"] != plain["envdAccessToken"] and len(made["envdAccessToken"]) > 30
    session = server.session(made["sandboxID"])
    assert (session["instance_id"], session["state"], session["run"]) == ("", "live", "team")


def test_its_network_is_taken_and_given_back(server: Server, control: Control) -> None:
    """A network that was switched off still works."""
    sid = control.create()["sandboxID"]
    (container,) = server.containers(f"sid={sid}")

    def has_network() -> bool:
        return "eth" in docker("exec", container, "cat", "/proc/net/dev")

    assert has_network()
    for body, there in (({"allow_internet_access": False}, False), ({}, True), ({"denyOut": ["0.0.0.0/0"]}, False)):
        assert control.call("PUT", f"/sandboxes/{sid}/network", body).status_code == 204
        assert has_network() is there
        assert control.call("GET", f"/sandboxes/{sid}").json()["allowInternetAccess"] is there
    bare = control.create(allow_internet_access=False)["sandboxID"]
    assert control.call("PUT", f"/sandboxes/{bare}/network", {}).status_code == 400


def test_a_box_is_no_rollout(server: Server, control: Control) -> None:
    """An action in a box, or a reward request for it, fails with an unexpected error."""
    sid = control.create()["sandboxID"]
    said = control.call("POST", "/process_action", {"sid": sid, "content": bash("ls")}).json()
    assert said["error"]["code"] == "is_box"
    reward = control.call("POST", "/compute_reward", {"sid": sid}).json()
    assert (reward["verdict"], reward["mask"]) == ("unknown_session", True)
    assert control.call("GET", f"/v1/sessions/{sid}/patch").status_code == 409
    assert control.ids() == [sid]
    assert control.call("DELETE", f"/v1/sessions/{sid}").json()["state"] == "ended"
    assert control.call("GET", f"/sandboxes/{sid}").status_code == 404


def test_refusals_read_as_e2b_spells_them(server: Server, control: Control) -> None:
    """A client retries permanent errors forever, or gives up on temporary ones."""
    for body, words in (
        ({"metadata": {"image": "no/such-image:1"}}, "does not exist"),
        ({"metadata": {"image": "../../containers/json"}}, "does not exist"),
        ({"templateID": "unknown"}, "does not exist"),
    ):
        answer = control.call("POST", "/sandboxes", {"templateID": "base", **body})
        assert answer.status_code == 404 and answer.json()["code"] == 404, answer.text
        assert words in answer.json()["message"]
    for method, path, body, status in (
        ("POST", "/sandboxes", {"timeout": "soon"}, 400),
        ("POST", "/sandboxes", {"timeout": 10**6}, 400),
        ("POST", "/sandboxes", {"autoPause": True, "autoPauseMemory": False, "autoResume": {"enabled": True}}, 400),
        ("POST", "/v2/sandboxes", [], 400),
        ("GET", "/sandboxes/7", None, 404),
        ("GET", "/sandboxes/abc", None, 404),
        ("POST", "/sandboxes/7/timeout", {"timeout": 5}, 404),
        ("POST", "/sandboxes/7/pause", {}, 404),
        ("POST", "/sandboxes/7/resume", {"timeout": 5}, 404),
        ("POST", "/sandboxes/7/fork", {}, 404),
        ("POST", "/sandboxes/7/fork", {"count": 21}, 400),
        ("POST", "/sandboxes/7/snapshots", {}, 404),
        ("POST", "/sandboxes/7/snapshots", {"memory": True}, 501),
        ("GET", "/sandboxes/7/logs", None, 404),
        ("GET", "/sandboxes/7/metrics?start=x", None, 400),
        ("GET", "/v2/sandboxes/7/logs?level=all", None, 400),
        ("GET", "/v2/sandboxes?nextToken=x", None, 400),
        ("POST", "/v3/templates", {}, 400),
        ("GET", "/templates/aliases/no-such:one", None, 404),
        ("GET", "/templates/aliases/base:one", None, 404),
        ("GET", "/volumes", None, 501),
        ("DELETE", "/sandboxes/7", None, 404),
    ):
        answer = control.call(method, path, body)
        assert answer.status_code == status, (method, path, answer.text)
        assert answer.json() == {"code": status, "message": answer.json()["message"]}
    assert control.ids() == []


SEEN = """
import time
from e2b import CommandExitException, Sandbox
box = Sandbox.create(timeout=600)
box.files.write("/tmp/written", b"x" * 30_000_000)
first = box.get_metrics()[-1]
# half a CPU at least, and memory that is no file
busy = "x = bytes(60_000_000)\\nimport time\\nuntil = time.time() + 3\\nwhile time.time() < until: pass"
running = box.commands.run(f"printf '{busy}' | python3 - ; exit 3", background=True)
try:
    running.wait()
except CommandExitException as ended:
    assert ended.exit_code == 3
while (later := box.get_metrics()[-1]).timestamp == first.timestamp:
    time.sleep(0.5)
year = box.get_info().started_at.replace
old = box.get_metrics(start=year(year=2020), end=year(year=2021))
result = {"sid": box.sandbox_id, "old": len(old), "first": vars(first), "later": vars(later)}
"""


def test_what_it_uses_and_what_happened(server: Server, control: Control) -> None:
    """Figures that nobody measured, or a page of E2B's CLI that breaks on an answer that it does not know."""
    seen = sdk(server, "newest", SEEN)
    sid, first, later = seen["sid"], seen["first"], seen["later"]
    assert seen["old"] == 0, seen
    assert (later["cpu_count"], later["mem_total"]) == (2, 4096 << 20) and first["cpu_used_pct"] >= 0, seen
    assert 0 < later["cpu_used_pct"] <= 105 and 0 < later["mem_used"] < 1 << 30, seen
    assert 30_000_000 <= first["disk_used"] < 40_000_000 < later["disk_total"], seen
    several = control.call("GET", f"/sandboxes/metrics?sandbox_ids={sid},77,x").json()["sandboxes"]
    assert list(several) == [sid] and several[sid]["memTotal"] == 4096 << 20

    lines = control.call("GET", f"/sandboxes/{sid}/logs").json()
    told = [json.loads(line["line"]) for line in lines["logs"]]
    assert [one["message"] for one in told] == ["Sandbox started", "Process started", "Process ended"], told
    assert told[1]["logger"] == "process" and "python3 -" in told[1]["cmd"] and told[2]["end"] == "exit code 3", told
    assert [one["message"] for one in lines["logEntries"]] == [one["message"] for one in told]
    newest = control.call("GET", f"/v2/sandboxes/{sid}/logs?direction=backward&limit=1&level=error").json()["logs"]
    assert [(one["message"], one["fields"]["end"]) for one in newest] == [("Process ended", "exit code 3")]
    assert control.call("GET", f"/v2/sandboxes/{sid}/logs?search=nothing").json() == {"logs": []}

    assert control.call("POST", f"/sandboxes/{sid}/pause").status_code == 204
    kept = [control.call("GET", f"/sandboxes/{sid}/metrics").json() for _ in range(2)]
    assert kept[0] == kept[1] and len(kept[0]) >= 2  # a paused one is not measured, nor woken
    assert control.call("GET", f"/v2/sandboxes/{sid}/logs").json()["logs"][-1]["message"] == "Sandbox paused"
    control.kill(sid)
    assert control.call("GET", f"/sandboxes/{sid}/metrics").status_code == 404


def test_figures_for_a_client_of_any_name(server: Server) -> None:
    """A User-Agent that is no ASCII ended in a 500."""
    named = httpx.get(f"{server.url}/sandboxes/metrics?sandbox_ids=7", headers=[(b"User-Agent", b"caf\xe9")])
    assert (named.status_code, named.json()) == (200, {"sandboxes": {}})


def test_the_documented_exceptions(server: Server, control: Control) -> None:
    """A program goes on without the volume, the proxy or the rule that it asked for; or the document is out of date."""
    table = (ROOT / "docs" / "boxes.md").read_text().split("## Exceptions")[1].split("\n\n")[2]
    rows = re.findall(r"^\| `(.+?)` \| (\d+): (.+?) \| .+ \|$", table, re.MULTILINE)
    assert len(rows) == len(table.splitlines()) - 2 > 8, table
    calls = ", ".join(f"({code!r}, lambda: {code})" for code, _, _ in rows)
    script = f"""
from e2b import Sandbox, Secret, Template, Volume
result = {{}}
for code, call in [{calls}]:
    try:
        call()
        result[code] = "no error"
    except Exception as error:
        result[code] = str(error)
"""
    told = sdk(server, "newest", script)
    for code, status, words in rows:
        assert told[code].startswith(status) and words in told[code], (code, told[code])
    assert control.ids() == []


def test_the_same_under_a_prefix(server: Server, control: Control) -> None:
    """Behind a shared host name, a client's URL has a path prefix."""
    answer = control.call("POST", "/e2b/v2/sandboxes", {"templateID": "base", "timeout": 30})
    assert answer.status_code == 201
    sid = answer.json()["sandboxID"]
    assert control.call("GET", f"/e2b/sandboxes/{sid}").json()["sandboxID"] == sid


def test_it_ends_when_its_time_is_over(server: Server, control: Control) -> None:
    """A box outlives its lifetime, or is ended earlier as idle."""
    brief, longer = control.create(timeout=3)["sandboxID"], control.create(timeout=60)["sandboxID"]
    control.call("POST", f"/sandboxes/{longer}/timeout", {"timeout": 2})
    control.call("POST", f"/sandboxes/{longer}/timeout", {"timeout": 50})
    assert 40 < ends_at(control, longer) - time.time() < 55  # a server's clock is its own, some ms from this one
    until(lambda: control.ids() == [longer], 10, "the brief one over")
    until_removed(server, brief)
    session = control.call("GET", f"/v1/sessions/{brief}").json()
    assert (session["state"], session["end_reason"]) == ("ended", "timeout")
    assert control.call("POST", f"/sandboxes/{brief}/timeout", {"timeout": 50}).status_code == 404


def test_pages_filters_and_order(server: Server, control: Control) -> None:
    """A page repeats or skips a box, or a filter lets others through."""
    sids = [control.create(metadata={"n": str(n), "all": "1"})["sandboxID"] for n in range(3)]
    assert control.ids() == sids[::-1] and control.ids(order="asc") == sids
    assert control.ids(metadata="n=1") == [sids[1]] and control.ids(metadata="n=1&all=2") == []
    assert control.ids(state="paused") == [] and control.ids(state="running,paused") == sids[::-1]
    assert control.ids(template="base") == sids[::-1] and control.ids(template="other") == []
    second = control.call("GET", f"/sandboxes/{sids[1]}").json()["startedAt"]
    assert control.ids(startedAfter=second) == [sids[2], sids[1]]
    seen, token = [], ""
    for _ in range(3):
        answer = control.call("GET", "/v2/sandboxes", params={"limit": "1"} | ({"nextToken": token} if token else {}))
        seen += [found["sandboxID"] for found in answer.json()]
        token = answer.headers.get("x-next-token", "")
    assert seen == sids[::-1] and token == ""


def test_a_create_whose_client_is_gone_leaves_nothing(server: Server, control: Control) -> None:
    """slime gives up after 60 s and creates another one; nobody would ever use the first."""
    text = json.dumps({"templateID": "base", "timeout": 600}).encode()
    host, port = server.url.removeprefix("http://").split(":")
    head = f"POST /sandboxes HTTP/1.1\r\nHost: {host}\r\nX-API-KEY: {KEY}\r\nContent-Length: {len(text)}\r\n\r\n"
    for after_s in (0.0, 0.05, 0.15, 0.25):
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(head.encode() + text)
            time.sleep(after_s)
            connection.setblocking(False)
            with suppress(BlockingIOError):  # on a fast machine the answer has arrived, and the client may use it
                control.kill(json.loads(connection.recv(1 << 16).partition(b"\r\n\r\n")[2])["sandboxID"])
    until(lambda: not server.containers() and control.ids() == [], 20, "nothing is left")


def test_an_idempotency_key_makes_one_box(server: Server) -> None:
    """A create that is resent because its answer was lost leaves an orphan."""
    control = Control(server, **{"Idempotency-Key": "k-1"})
    first, second = control.create(), control.create()
    assert first["sandboxID"] == second["sandboxID"] and first["envdAccessToken"] == second["envdAccessToken"]
    control.kill(first["sandboxID"])
    third = control.create()["sandboxID"]
    assert third != first["sandboxID"]
    control.kill(third)


def test_requests_with_one_key_at_once_make_one_box(server: Server) -> None:
    """A client or a balancer that sends a create again before its answer has come leaves an orphan."""
    control = Control(server, **{"Idempotency-Key": "k-2"})
    with ThreadPoolExecutor(4) as threads:
        made = {one["sandboxID"] for one in threads.map(lambda _: control.create(), range(4))}
        assert len(made) == 1
        (sid,) = made
        forks = list(threads.map(lambda _: control.call("POST", f"/sandboxes/{sid}/fork", {"count": 2}), range(2)))
    copies = [{one["sandbox"]["sandboxID"] for one in fork.json()} for fork in forks]
    assert copies[0] == copies[1] and len(copies[0]) == 2
    until(lambda: len(server.containers()) == 3, 20, "no other is left")
    control.kill(sid, *copies[0])


def test_a_removed_container_is_a_lost_box(server: Server, control: Control) -> None:
    """The service reports the box as running for an hour."""
    sid = control.create()["sandboxID"]
    docker("rm", "-f", *server.containers(f"sid={sid}"))
    until(lambda: control.call("GET", f"/sandboxes/{sid}").status_code == 404, 10, "seen")
    assert control.call("GET", f"/v1/sessions/{sid}").json()["state"] == "lost"


def test_patterns_and_siblings(serve: Callable[..., Server]) -> None:
    """A box runs an image that is not allowed; or the pool parks no container for siblings of a create."""
    server = serve(box_images="sandbox-samples/base*,absent/*", box_default_s=30, pool_group=3)
    control = Control(server)
    assert (
        control.call("POST", "/sandboxes", {"metadata": {"image": "sandbox-samples/ledger:latest"}}).status_code == 404
    )
    absent = control.call("POST", "/sandboxes", {"metadata": {"image": "absent/image"}})
    assert absent.status_code == 404 and "does not exist" in absent.json()["message"]
    sids = [control.create(metadata={"image": BASE})["sandboxID"]]
    until(lambda: server.get("/v1/pool")["buckets"][0]["parked"] == 2, 20, "siblings parked")
    sids += [control.create(metadata={"image": BASE, "n": str(n)})["sandboxID"] for n in range(2)]
    assert 'how="warm"} 2.0' in httpx.get(f"{server.url}/metrics").text
    control.kill(*sids)
