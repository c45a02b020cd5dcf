"""The service's own box API over real HTTP: commands that can be waited for and run once, files, blobs."""

import asyncio
import hashlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from sandbox_client.errors import SandboxError
from sandbox_client.slime import DockerServiceSandbox

from .serving import Server, docker, serving, until

IMAGE = "sandbox-samples/ledger:latest"


class Boxes:
    """Minimal client of the API."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.http = httpx.Client(base_url=server.url, timeout=120)

    def __enter__(self) -> "Boxes":
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def create(self, key: str = "", **wanted: object) -> dict[str, Any]:
        headers = {"Idempotency-Key": key} if key else {}
        answer = self.http.post("/v1/boxes", json={"image": IMAGE, **wanted}, headers=headers)
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    def run(self, sid: str, cmd: str | None = None, *, key: str = "", wait_s: float = 30, **wanted: object) -> Any:
        body = {**({"cmd": cmd} if cmd else {}), "wait_s": wait_s, **wanted}
        headers = {"Idempotency-Key": key} if key else {}
        return self.http.post(f"/v1/boxes/{sid}/commands", json=body, headers=headers)

    def followed(self, sid: str, cmd: str) -> dict[str, Any]:
        """Run a command and ask for its end until it has come."""
        key = uuid.uuid4().hex
        while (done := self.ran(sid, cmd, key=key, wait_s=30))["state"] == "running":
            pass
        return done

    def ran(self, sid: str, cmd: str | None = None, **wanted: Any) -> dict[str, Any]:
        answer = self.run(sid, cmd, **wanted)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())


@pytest.fixture(scope="module")
def boxes(live: Server) -> Iterator[Boxes]:
    with Boxes(live) as boxes:
        yield boxes


@pytest.fixture(scope="module")
def sid(boxes: Boxes) -> Iterator[str]:
    """A box shared by the tests of this file."""
    box = boxes.create(lifetime_s=600)
    yield box["sid"]
    boxes.http.delete(f"/v1/boxes/{box['sid']}")


@pytest.fixture(scope="module")
def narrow(rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with low limits on kept output and idle boxes, which may be killed."""
    folder = tmp_path_factory.mktemp("narrow")
    with serving(folder, rows, box_output_mb=0.01, box_idle_s=10, reaper_period_s=0.5) as server:
        yield server


def refused(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    body = dict(answer.json())
    assert body["code"] == code and body["detail"] and body["retryable"] in (True, False)
    return body


def test_a_box_from_its_creation_to_its_end(boxes: Boxes) -> None:
    """The box has what was requested; after its end it is still reported but accepts nothing."""
    key = uuid.uuid4().hex
    wanted = {"size": "sm", "lifetime_s": 60, "env": {"A": "1"}, "metadata": {"task": "7"}, "network": "none"}
    box = boxes.create(key, **wanted)
    try:
        assert boxes.create(key, **wanted)["sid"] == box["sid"], "the same create twice made two"
        assert (box["state"], box["image"], box["network"]) == ("live", IMAGE, "none")
        assert box["metadata"] == {"task": "7", "size": "sm"}
        assert 50 < box["ends_at"] - time.time() < 61
        assert boxes.ran(box["sid"], "echo $A; echo $B", env={"B": "2"})["stdout"] == "1\n2\n"
        prolonged = boxes.http.post(f"/v1/boxes/{box['sid']}/lifetime", json={"lifetime_s": 600}).json()
        assert 590 < prolonged["ends_at"] - time.time() < 601
        assert boxes.http.get(f"/v1/boxes/{box['sid']}").json()["ends_at"] == prolonged["ends_at"]
        container = boxes.server.container(box["sid"])
    finally:
        assert boxes.http.delete(f"/v1/boxes/{box['sid']}").status_code == 204
    refused(boxes.http.delete(f"/v1/boxes/{box['sid']}"), 404, "unknown_session")
    refused(boxes.run(box["sid"], "true"), 404, "unknown_session")
    assert boxes.http.get(f"/v1/boxes/{box['sid']}").json()["state"] == "ended"
    until(lambda: container not in docker("ps", "-q").split(), 20, "its container removed")


@pytest.mark.parametrize(
    ("wanted", "status", "code"),
    [
        ({"image": "sandbox-samples/absent:latest"}, 404, "unknown_image"),
        ({"lifetime_s": 1e9}, 422, "malformed_request"),
        ({"lifetime": 5}, 422, "malformed_request"),
        ({"network": "host"}, 422, "malformed_request"),
    ],
)
def test_creates_that_cannot_be(boxes: Boxes, wanted: dict[str, object], status: int, code: str) -> None:
    """Each says why; none is worth sending again."""
    answer = boxes.http.post("/v1/boxes", json={"image": IMAGE, **wanted})
    assert refused(answer, status, code)["retryable"] is False


_OBJECTS = "git cat-file --batch-check='%(objectname)' --batch-all-objects | sort | sha256sum"
_FIX = "git log --all --format=%s; git reflog --all; git stash list; git for-each-ref; git fsck --lost-found 2>&1"


def test_a_task_image_shows_what_its_sessions_see(boxes: Boxes) -> None:
    """A policy in a box reads the fix in the history that sessions hide, through another name of the image."""
    image_id = docker("image", "inspect", "-f", "{{.Id}}", IMAGE).strip()
    docker("tag", IMAGE, "sandbox-samples/by-another-name:7")
    session = boxes.server.begin("samples__ledger-12")
    seen = boxes.server.post(f"/v1/sessions/{session}/exec", {"commands": [_OBJECTS, _FIX, "git log --format=%H"]})
    objects, history, log = (result["stdout"] for result in seen.json()["results"])
    names = (IMAGE, "docker.io/sandbox-samples/ledger", image_id, "sandbox-samples/by-another-name:7")
    for name in names:
        sid = boxes.create(image=name)["sid"]
        said = [boxes.ran(sid, cmd, cwd="/testbed")["stdout"] for cmd in (_OBJECTS, _FIX, "git log --format=%H")]
        assert said == [objects, history, log], name
        assert "Lost work" not in said[1] and len(said[2].split()) == 3
        assert boxes.ran(sid, "git status --porcelain; ls /var/lib/sandbox/tests", cwd="/testbed")["stdout"] == ""
        kept = boxes.ran(
            sid,
            "echo x > x && git add x && git -c user.name=a -c user.email=a commit -qm x && echo kept",
            cwd="/testbed",
        )
        assert kept["stdout"] == "kept\n", kept
        boxes.http.delete(f"/v1/boxes/{sid}")
    raw = boxes.create(task_image="raw")["sid"]
    assert "Lost work on top of the fix" in boxes.ran(raw, _FIX, cwd="/testbed")["stdout"]
    boxes.http.delete(f"/v1/boxes/{raw}")
    graded = [name for name in docker("images", "--format", "{{.Repository}}:{{.Tag}}").split() if ":sealed-" in name]
    refused(boxes.http.post("/v1/boxes", json={"image": graded[0]}), 404, "unknown_image")


def test_commands(boxes: Boxes, sid: str) -> None:
    """Separate streams, exit code, user with a home, folder, stdin, argv unchanged."""
    done = boxes.ran(sid, "echo out; echo err >&2; printf '\\xff'; exit 3")
    assert (done["state"], done["exit_code"], done["stdout"], done["stderr"]) == ("ended", 3, "out\n\ufffd", "err\n")
    assert boxes.ran(sid, "id -un; echo $HOME; pwd", user="nobody")["stdout"].startswith("nobody\n")
    assert boxes.ran(sid, "pwd; echo $HOME", cwd="/testbed")["stdout"] == "/testbed\n/root\n"
    assert boxes.ran(sid, "cat; echo .", stdin="a\nb")["stdout"] == "a\nb.\n"
    assert boxes.ran(sid, argv=["printf", "%s|", "a b", "$HOME"])["stdout"] == "a b|$HOME|"
    assert boxes.ran(sid, "kill -9 $$")["exit_code"] == -1
    image_path = boxes.ran(sid, argv=["printenv", "PATH"])["stdout"].strip()
    assert boxes.ran(sid, "echo $PATH")["stdout"].startswith(image_path), "the login profile hid the image's PATH"
    refused(boxes.run(sid, "true", user="nobody-at-all"), 400, "unknown_user")
    refused(boxes.run(sid, wait_s=0), 422, "malformed_request")
    refused(boxes.run(sid, "true", argv=["true"]), 422, "malformed_request")


def test_a_timeout_kills_all_that_began(boxes: Boxes, sid: str) -> None:
    """The output so far is returned; background processes are killed too."""
    began = time.monotonic()
    done = boxes.ran(sid, "echo before; setsid sleep 4711 & sleep 4711", timeout_s=3)
    assert done["timed_out"] and done["stdout"] == "before\n" and done["state"] == "ended"
    assert time.monotonic() - began < 25
    assert boxes.ran(sid, "pgrep -fx 'sleep 4711' | wc -l")["stdout"].strip() == "0"


def test_a_command_is_waited_for_and_runs_once(boxes: Boxes, sid: str) -> None:
    """A client retries after a broken connection; a repeated POST does not run the command again."""
    key = uuid.uuid4().hex
    text = "echo x >> /tmp/ran; until test -e /tmp/go; do sleep 0.1; done; cat /tmp/ran"
    assert boxes.ran(sid, text, key=key, wait_s=0)["state"] == "running"
    with pytest.raises(httpx.ReadTimeout):
        boxes.http.get(f"/v1/boxes/{sid}/commands/{key}?wait_s=30", timeout=httpx.Timeout(60, read=0.2))
    twice: list[dict[str, Any]] = []
    threads = [threading.Thread(target=lambda: twice.append(boxes.ran(sid, text, key=key))) for _ in range(4)]
    for thread in threads:
        thread.start()
    docker("exec", boxes.server.container(sid), "touch", "/tmp/go")
    began = time.monotonic()
    waited = boxes.http.get(f"/v1/boxes/{sid}/commands/{key}?wait_s=30").json()
    for thread in threads:
        thread.join()
    assert time.monotonic() - began < 25
    assert waited["stdout"] == "x\n" and all(answer["stdout"] == "x\n" for answer in twice) and len(twice) == 4
    assert boxes.ran(sid, "wc -l < /tmp/ran")["stdout"].strip() == "1"
    for other in ({"cmd": "echo other"}, {"cmd": text, "user": "nobody"}, {"cmd": text, "stdin": "x"}):
        refused(boxes.run(sid, key=key, **other), 422, "malformed_request")
    refused(boxes.http.get(f"/v1/boxes/{sid}/commands/never"), 404, "unknown_command")


def test_a_create_with_the_key_of_another_is_refused(boxes: Boxes) -> None:
    """A client gets a box of another image, copies in another number, or a snapshot of another name."""
    made = boxes.create("k-other", lifetime_s=60)
    assert boxes.create("k-other", lifetime_s=60)["sid"] == made["sid"]
    path, key = f"/v1/boxes/{made['sid']}", {"Idempotency-Key": "k-other"}
    wanted = [("/v1/boxes", {"image": IMAGE, "lifetime_s": 60, "env": {"A": "b"}}, {"image": IMAGE, "lifetime_s": 60})]
    wanted += [(f"{path}/fork", {"n": 2}, {"n": 1}), (f"{path}/snapshots", {"name": "b:v1"}, {"name": "a:v1"})]
    for route, other, first in wanted:
        assert boxes.http.post(route, json=first, headers=key).is_success
        refused(boxes.http.post(route, json=other, headers=key), 422, "malformed_request")
    assert len(boxes.http.get("/v1/snapshots").json()) == 1
    boxes.http.delete("/v1/snapshots/a:v1")
    for one in (made["sid"], *boxes.http.post(f"{path}/fork", json={"n": 1}, headers=key).json()["sids"]):
        assert boxes.http.delete(f"/v1/boxes/{one}").status_code == 204


def test_a_command_is_killed(boxes: Boxes, sid: str) -> None:
    """Child processes are killed too; the result is reported as any other."""
    key = uuid.uuid4().hex
    boxes.ran(sid, "setsid sleep 4712 & sleep 4712", key=key, wait_s=0)
    killed = boxes.http.delete(f"/v1/boxes/{sid}/commands/{key}").json()
    assert (killed["state"], killed["exit_code"]) == ("ended", -1)
    assert boxes.ran(sid, "pgrep -fx 'sleep 4712' | wc -l")["stdout"].strip() == "0"


def test_output_is_bounded(narrow: Server) -> None:
    """Head and tail are kept with the number of dropped bytes; the server does not keep output forever."""
    with Boxes(narrow) as boxes:
        sid = boxes.create()["sid"]
        done = boxes.ran(sid, "echo first; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo last")
    assert done["stdout"].startswith("first\nxx") and done["stdout"].endswith("x\nlast\n")
    assert done["dropped"]["stdout"] > 2_900_000 and len(done["stdout"]) < 20_000


def test_a_box_that_nobody_uses_ends_before_its_timeout(narrow: Server) -> None:
    """A box whose client had died kept its slot for the hour of its timeout. One that is being waited for is in use."""
    with Boxes(narrow) as boxes, ThreadPoolExecutor(1) as pool:
        used = boxes.create()["sid"]
        waited = pool.submit(boxes.followed, used, "until test -e /tmp/go; do sleep 0.2; done; echo over")
        until(lambda: waited.done() or narrow.runs(used, "test -e /tmp/go"), what="the command runs")
        unused = boxes.create()["sid"]  # last, so that `used` ends before it unless the request counts
        until(lambda: narrow.get(f"/v1/sessions/{unused}")["end_reason"] == "idle", what="the unused box has ended")
        assert not waited.done()
        docker("exec", narrow.container(used), "touch", "/tmp/go")
        assert waited.result()["stdout"] == "over\n"
        refused(boxes.run(unused, "true"), 404, "unknown_session")


def test_a_restart_runs_nothing_twice(narrow: Server) -> None:
    """After a restart the command's result is reported as unknown and it is not run again; the box keeps running."""
    with Boxes(narrow) as boxes:
        sid, key = boxes.create()["sid"], uuid.uuid4().hex
        boxes.ran(sid, "echo x >> /tmp/ran; sleep 60", key=key, wait_s=0)
    narrow.restart()
    with Boxes(narrow) as boxes:
        refused(boxes.run(sid, "echo x >> /tmp/ran; sleep 60", key=key), 410, "command_lost")
        refused(boxes.http.get(f"/v1/boxes/{sid}/commands/{key}"), 410, "command_lost")
        assert boxes.ran(sid, "wc -l < /tmp/ran")["stdout"].strip() == "1"


def test_files(boxes: Boxes, sid: str) -> None:
    """Written as the user, in new folders, byte for byte; errors give a reason."""
    url, data = f"/v1/boxes/{sid}/files", bytes(range(256)) * 4096
    written = boxes.http.put(url, params={"path": "/deep/er/file", "user": "nobody", "mode": "750"}, content=data)
    assert written.json() == {"path": "/deep/er/file", "size": len(data)}
    assert boxes.ran(sid, "stat -c '%U %a %s' /deep/er/file")["stdout"] == f"nobody 750 {len(data)}\n"
    assert boxes.http.get(url, params={"path": "/deep/er/file"}).content == data
    assert boxes.http.get(url, params={"path": "/etc/../deep/er/file"}).content == data
    boxes.http.put(url, params={"path": "in-home"}, content=b"")
    assert boxes.ran(sid, "stat -c %s /root/in-home")["stdout"] == "0\n"
    refused(boxes.http.get(url, params={"path": "/absent"}), 404, "unknown_file")
    refused(boxes.http.get(url, params={"path": "/deep"}), 409, "file_unusable")
    refused(boxes.http.put(url, params={"path": "/deep"}, content=b"x"), 409, "file_unusable")
    refused(boxes.http.put(url, params={"path": "/x", "user": "nobody-at-all"}, content=b"x"), 400, "unknown_user")


def test_blobs(boxes: Boxes, sid: str) -> None:
    """A blob is sent once and copied any number of times; content that does not match its hash is refused."""
    data = b"tools" * 400_000
    sha256 = hashlib.sha256(data).hexdigest()
    copy = {"sha256": sha256, "path": "/opt/tools", "user": "nobody", "mode": "755"}
    refused(boxes.http.post(f"/v1/boxes/{sid}/files/from-blob", json=copy), 404, "unknown_blob")
    assert boxes.http.head(f"/v1/blobs/{sha256}").status_code == 404
    refused(boxes.http.put(f"/v1/blobs/{sha256}", content=data[:-1]), 422, "malformed_request")
    stored = boxes.http.put(f"/v1/blobs/{sha256}?box={sid}", content=data)
    assert (stored.status_code, stored.json()) == (201, {"sha256": sha256, "size": len(data)})
    assert boxes.http.head(f"/v1/blobs/{sha256}").headers["X-Blob-Size"] == str(len(data))
    assert boxes.http.post(f"/v1/boxes/{sid}/files/from-blob", json=copy).json()["size"] == len(data)
    assert boxes.ran(sid, "stat -c '%U %a' /opt/tools; sha256sum < /opt/tools")["stdout"].split()[:3] == [
        "nobody",
        "755",
        sha256,
    ]


def test_a_container_that_dies_is_told(boxes: Boxes) -> None:
    """Waiting and later requests get an error of the service, not an exit code."""
    sid = boxes.create()["sid"]
    key = uuid.uuid4().hex
    boxes.ran(sid, "sleep 60", key=key, wait_s=0)
    threading.Timer(0.5, docker, ("kill", boxes.server.container(sid))).start()
    refused(boxes.http.get(f"/v1/boxes/{sid}/commands/{key}?wait_s=30"), 500, "sandbox_lost")
    assert boxes.run(sid, "true").status_code in (404, 500)


def test_a_box_that_its_client_ends_is_no_fault(boxes: Boxes) -> None:
    """Whoever kills or pauses boxes that are in use raises an alarm about the host."""
    since = boxes.server.log.stat().st_size
    for method, path, status, code in (
        ("DELETE", "", 404, "unknown_session"),
        ("POST", "/pause", 409, "sandbox_paused"),
    ):
        sid, key = boxes.create()["sid"], uuid.uuid4().hex
        boxes.ran(sid, "sleep 60", key=key, wait_s=0)
        threading.Timer(0.5, boxes.http.request, (method, f"/v1/boxes/{sid}{path}")).start()
        refused(boxes.http.get(f"/v1/boxes/{sid}/commands/{key}?wait_s=30"), status, code)
        boxes.http.delete(f"/v1/boxes/{sid}")
    assert not [entry for entry in boxes.server.entries(since) if entry["event"] == "request failed"]


def test_slimes_wait_over_a_restart(narrow: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The done file gives the command's exit code; a missing box is an error, not a slow command."""
    monkeypatch.setenv("SANDBOX_URL", narrow.url)

    async def waited(cmd: str, harm: Callable[[str], object]) -> tuple[int, str]:
        async with DockerServiceSandbox(IMAGE) as sandbox:
            waiting = asyncio.create_task(sandbox.exec_and_wait(cmd=cmd, time_budget_sec=60, tag="t"))
            await asyncio.sleep(2)
            await asyncio.to_thread(harm, sandbox.sandbox_id)
            return await waiting

    assert asyncio.run(waited("sleep 6; echo done; exit 3", lambda _: narrow.restart())) == (3, "done\n")

    def both(sid: str) -> None:
        container = narrow.container(sid)
        narrow.kill()
        docker("rm", "-f", container)
        narrow.start()

    with pytest.raises(SandboxError):
        asyncio.run(waited("sleep 600", both))
