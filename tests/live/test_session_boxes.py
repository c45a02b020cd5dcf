"""Files and commands of a session through the box API, so that an adapter needs only one sandbox."""

import asyncio
import hashlib
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from sandbox_client import SandboxClient
from sandbox_client.blocking import BlockingClient
from sandbox_client.errors import CommandTimedOut, RequestRejected, UnknownFile

from .fleet import fleet
from .serving import UNGRADED, Server, bash

DATA = bytes(range(256)) * 8
_AFTER = "until grep -q first /tmp/order; do sleep 0.1; done;"


class Inside:
    """Minimal client of a session's sandbox."""

    def __init__(self, server: Server, sid: str) -> None:
        self.server, self.sid = server, sid
        self.http = httpx.Client(base_url=f"{server.url}/v1/boxes/{sid}", timeout=120)

    def __enter__(self) -> "Inside":
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def ran(self, cmd: str | None = None, *, key: str = "", wait_s: float = 30, **wanted: object) -> dict[str, Any]:
        body = {**({"cmd": cmd} if cmd else {}), "wait_s": wait_s, **wanted}
        answer = self.http.post("/commands", json=body, headers={"Idempotency-Key": key} if key else {})
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def put(self, path: str, data: bytes, key: str = "", **params: str) -> httpx.Response:
        headers = {"Idempotency-Key": key} if key else {}
        return self.http.put("/files", params={"path": path, **params}, content=data, headers=headers)

    def get(self, path: str) -> bytes:
        return self.http.get("/files", params={"path": path}).raise_for_status().content


@pytest.fixture
def inside(live: Server) -> Iterator[Inside]:
    with Inside(live, live.begin(UNGRADED)) as inside:
        yield inside
    live.finish(inside.sid)


def code(answer: httpx.Response, status: int) -> str:
    assert answer.status_code == status, answer.text
    return str(answer.json()["code"])


def test_one_sandbox_is_enough(live: Server, inside: Inside) -> None:
    """Otherwise an adapter needs a box beside its session, and files written there are not in the patch."""
    written = inside.put("/testbed/deep/data", DATA, key="once", mode="640")
    assert written.json() == {"path": "/testbed/deep/data", "size": len(DATA), "notice": ""}
    assert inside.get("/testbed/deep/data") == DATA
    info = inside.http.get("/files/info", params={"path": "/testbed/deep/data"}).json()
    assert (info["kind"], info["size"], info["mode"], info["owner"]) == ("file", len(DATA), "640", "root")
    listed = inside.http.get("/files/list", params={"path": "/testbed/deep"}).json()
    assert [entry["name"] for entry in listed] == ["data"]
    done = inside.ran("pwd; echo err >&2; cat; echo $A; exit 3", stdin="in\n", env={"A": "b"})
    assert (done["exit_code"], done["stdout"], done["stderr"]) == (3, "/testbed\nin\nb\n", "err\n")
    assert inside.ran("id -un; pwd", user="nobody", cwd="/tmp")["stdout"] == "nobody\n/tmp\n"
    late = inside.ran("echo x >> /tmp/ran; sleep 60", key="late", timeout_s=1)
    assert late["timed_out"] and late["state"] == "ended"
    assert inside.ran("echo x >> /tmp/ran; sleep 60", key="late", timeout_s=1)["timed_out"], "it is not run again"
    assert inside.put("/testbed/deep/data", DATA, key="once", mode="640").json()["size"] == len(DATA)
    assert code(inside.put("/testbed/deep/data", b"other", key="once"), 422) == "malformed_request"
    other = inside.http.post("/commands", json={"cmd": "echo other"}, headers={"Idempotency-Key": "late"})
    assert code(other, 422) == "malformed_request"
    # beside what runs in the background, the policy's own shell goes on
    assert inside.ran("sleep 300", key="back", wait_s=0)["state"] == "running"
    assert "\r\n1\r\n640" in live.run(inside.sid, "wc -l < /tmp/ran; stat -c %a /testbed/deep/data")
    assert inside.http.get("/commands/back?wait_s=0").json()["state"] == "running"
    assert inside.http.delete("/commands/back").json()["exit_code"] == -1
    journal = [(entry["tool"], entry["outcome"]) for entry in live.actions(inside.sid)]
    ended = [("command", "begun"), ("command_end", "finished")]
    late_ended = [("command", "begun"), ("command_end", "killed")]
    assert journal == [
        ("file", "finished"), *ended, *ended, *late_ended, ("command", "begun"), ("execute_bash", "finished"), ended[1],
    ]  # fmt: skip
    assert live.session(inside.sid)["metrics"]["num_tool_calls"] == 5
    live.finish(inside.sid)
    assert b"deep/data" in live.patch(inside.sid)
    assert code(inside.put("/tmp/x", b""), 409) == "session_ended"


async def test_by_our_client(live: Server, tmp_path: Path) -> None:
    """The client's async and blocking methods; large content is sent as a blob automatically."""
    large = tmp_path / "large"
    large.write_bytes(DATA * 1000)
    async with SandboxClient(live.url) as client, client.session("samples__ledger-12") as session:
        assert (await session.run(["printf", "%s|", "a b"])).stdout == "a b|"
        assert (await session.run("pwd; exit 3")).exit_code == 3
        assert await session.run_within("sleep 60", 0.5, timeout_s=2) is None
        with pytest.raises(CommandTimedOut):
            await session.run("sleep 60", timeout_s=1)
        for name, content in (("small", DATA), ("file", large), ("bytes", DATA * 1000 + b"x")):
            await session.write(f"/tmp/in/{name}", content, user="nobody")
        assert await session.read("/tmp/in/bytes") == DATA * 1000 + b"x"
        found = await session.list("/tmp/in")
        assert [(one.name, one.size, one.owner) for one in found] == [
            ("bytes", len(DATA) * 1000 + 1, "nobody"), ("file", len(DATA) * 1000, "nobody"), ("small", 2048, "nobody"),
        ]  # fmt: skip
        with pytest.raises(UnknownFile):
            await session.stat("/absent")
        blocking = BlockingClient(live.url)
        ran = await asyncio.to_thread(blocking.run, session.sid, "cat /tmp/in/small | wc -c", user="nobody")
        assert ran.stdout == "2048\n"
        assert (await asyncio.to_thread(blocking.stat, session.sid, "/tmp/in")).kind == "dir"
        assert len(await asyncio.to_thread(blocking.read, session.sid, "/tmp/in/file")) == len(DATA) * 1000
        await session.finish()
        with pytest.raises(RequestRejected, match="session_ended"):
            await session.write("/tmp/late", b"")


def test_what_cannot_be_is_said_as_of_boxes(live: Server, inside: Inside) -> None:
    """A failure has another error than in a box, or leaves an action in flight in the session."""
    assert code(inside.http.get("/files", params={"path": "/absent"}), 404) == "unknown_file"
    assert code(inside.http.get("/files/list", params={"path": "/etc/passwd"}), 409) == "file_unusable"
    assert code(inside.put("/testbed", b"x"), 409) == "file_unusable"
    assert code(inside.put("/x", b"x", key="again", user="nobody-at-all"), 400) == "unknown_user"
    assert inside.put("/x", b"x", key="again").status_code == 200, "a refusal is given again for ever"
    assert code(inside.http.post("/commands", json={"cmd": "true", "user": "nobody-at-all"}), 400) == "unknown_user"
    assert code(inside.http.get("/commands/never"), 404) == "unknown_command"
    large = b"tools" * 1_000_000
    assert code(inside.put("/opt/tools", large), 413) == "request_too_large"
    sha256 = hashlib.sha256(large).hexdigest()
    copy = {"sha256": sha256, "path": "/opt/tools", "mode": "755"}
    assert code(inside.http.post("/files/from-blob", json=copy), 404) == "unknown_blob"
    stored = httpx.put(f"{live.url}/v1/blobs/{sha256}", params={"box": inside.sid}, content=large)
    assert stored.status_code == 201
    assert inside.http.post("/files/from-blob", json=copy).json()["size"] == len(large)
    assert "interrupted" not in live.say(inside.sid, bash("pwd"))["content"]
    box = httpx.get(f"{live.url}/v1/boxes/{inside.sid}")
    assert code(box, 404) == "unknown_session" and "session" in box.json()["detail"]


def call(name: str, **arguments: object) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def by_json(server: Server, sid: str, *calls: str) -> list[str]:
    """Run the tool calls of one turn; return their results."""
    said = server.say(sid, "\n".join(calls))["content"]
    return [text.partition("<tool_response>\n")[2] for text in said.split("\n</tool_response>")[:-1]]


def test_a_dead_nodes_session_has_all_that_was_done_in_it(rows: Path, tmp_path: Path) -> None:
    """A write is silently lost with the node, commands are replayed in another order, or JSON calls miss the shell."""
    with fleet(tmp_path, rows, 2) as ((a, b), _):
        sid = b.begin("samples__search-1")
        owner, other = (b, a) if b.session(sid)["node"] == b.node else (a, b)
        with Inside(other, sid) as inside:
            assert inside.put("/testbed/data", DATA).status_code == 200
            tools = b"tools"
            sha256 = hashlib.sha256(tools).hexdigest()
            httpx.put(f"{other.url}/v1/blobs/{sha256}", params={"box": sid}, content=tools).raise_for_status()
            assert inside.http.post("/files/from-blob", json={"sha256": sha256, "path": "/opt/tools"}).is_success
            # a server in the background, one that is killed, and one after the other what the client waited for
            back = inside.ran("echo first >> /tmp/order; exec sleep 600", key="back", wait_s=0)
            assert back["state"] == "running"
            inside.ran("sleep 600", key="killed", wait_s=0)
            assert inside.http.delete("/commands/killed").json()["exit_code"] == -1
            assert inside.ran(f"{_AFTER} echo second >> /tmp/order; exit 4")["exit_code"] == 4
            path, edit = "/tmp/by-json.py", partial(call, "str_replace_editor", path="/tmp/by-json.py")
            turn = by_json(
                other,
                sid,
                call("execute_bash", command="cd /tmp && export A=kept"),
                edit(command="create", file_text="print('old')\n"),
                edit(command="str_replace", old_str="old", new_str="new"),
                call("execute_bash", command=f"python {path}; echo third >> order; false"),
                call("bash", command="pwd"),
            )
            assert turn[1] == f"File created successfully at: {path}" and "has been edited" in turn[2]
            assert turn[3:] == ["new\n[exit code: 1]", "/testbed"]
            entry = other.actions(sid)[-1]
            assert (entry["tool"], entry["exit_code"]) == ("calls", 1)
            owner.kill()
            assert inside.get("/testbed/data") == DATA
            again = inside.ran("cat /tmp/order; pgrep -fxc 'sleep 600'; ls /opt/tools")
            assert again["stdout"] == "first\nsecond\nthird\n1\n", again
            assert "action 2: unknown_blob instead of finished" in again["notice"]
            assert inside.http.get("/commands/back").json()["state"] == "running"
            assert inside.ran("true")["notice"] == ""
            assert by_json(other, sid, call("execute_bash", command="pwd; echo $A")) == ["/tmp\nkept"]
            (undone,) = by_json(other, sid, edit(command="undo_edit"))
            assert "undone successfully" in undone and "print('old')" in undone
