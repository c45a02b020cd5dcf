"""A task of several steps over real HTTP, on a real engine: played, ended early, and killed in between."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from sandbox_client import SandboxClient, Session
from websockets.sync.client import ClientConnection, connect

from tests.conftest import ROOT
from tests.documents import blocks, play

from .reader import shell
from .serving import Server

TASK = ROOT / "examples" / "harbor" / "steps"
FIRST, SECOND = "samples/steps", "samples/steps/report"
SUM = (TASK / "steps" / "sum" / "solution" / "solve.sh").read_text()
REPORT = (TASK / "steps" / "report" / "solution" / "solve.sh").read_text()


def import_task(server: Server) -> Server:
    server.cli("instances", "import", str(TASK))
    return server


@pytest.fixture(scope="module")
def steps(live: Server) -> Server:
    """The shared server, with the task."""
    return import_task(live)


def start(server: Server, instance: str, after: object = None, code: int = 200) -> dict[str, Any]:
    answer = server.post("/start_instance", {"instance_hash": instance, "after": after}, timeout=300)
    assert answer.status_code == code, answer.text
    return dict(answer.json())


def copied(folder: Path, name: str) -> Path:
    """A copy of the task whose instances are `samples/NAME` and `samples/NAME/report`, to be changed and imported."""
    task = folder / name
    shutil.copytree(TASK, task)
    toml = task / "task.toml"
    toml.write_text(toml.read_text().replace("samples/steps", f"samples/{name}"))
    return task


def played_first(server: Server, script: str = SUM) -> str:
    """A session of the first step that has ended."""
    sid = server.begin(FIRST)
    server.run(sid, script)
    assert server.finish(sid)["next"]["instance_id"] == SECOND
    return sid


async def test_the_client_plays_it(steps: Server) -> None:
    """A trainer that uses the client cannot begin a later step, or is not told of it."""
    async with SandboxClient(steps.url) as client:
        first = Session(client, await client.start(FIRST))
        await first.exec([SUM])
        following = await first.finish()
        assert following is not None and await first.finish() == following
        assert (following.number, following.of, following.min_reward) == (2, 2, {"reward": 0.5})
        async with client.session(following.instance_id, after=first.sid) as second:
            await second.exec([REPORT])
            assert await second.finish() is None
        assert (await second.reward()).reward == 1.0


def test_the_solutions_in_order_earn_one(steps: Server) -> None:
    """A step lacks the work of the one before, its own files or the task's reward, or can see tests."""
    first = steps.begin(FIRST)
    assert "january.csv" in steps.run(first, "ls /tests data steps") and "february" not in steps.run(
        first, "ls -R /app"
    )
    steps.run(first, f"mkdir -p notes/deep && echo kept >notes/deep/note && rm data/january.csv && {SUM}")
    steps.run(first, "printf 'rent,700\\nfood,250\\n' >data/january.csv; touch -d 2001-02-03 notes/deep; sleep 900 &")
    ended = steps.finish(first)
    following = ended["next"]
    assert (ended["state"], following["instance_id"], following["min_reward"]) == ("ended", SECOND, {"reward": 0.5})
    assert (following["number"], following["of"]) == (2, 2) and "report.txt" in following["problem_statement"]

    second = start(steps, int(following["instance_hash"]), first)["sid"]
    seen = steps.run(second, "cat notes/deep/note; ls data /tests; ls incoming; pgrep -x sleep; stat -c %y notes/deep")
    assert (
        "This step has a new container" in seen
        and "kept" in seen
        and "february.csv" in seen
        and "test.sh" not in seen
        and "2001-02-03" in seen
    ), seen
    assert seen.count("No such file") == 2, seen  # no tests, and setup.sh has moved what had come in
    assert steps.reward(first)["reward"] == 1.0
    steps.run(second, REPORT)
    assert "next" not in steps.finish(second)
    got = steps.reward(second)
    assert (got["reward"], got["verdict"], got["mask"]) == (1.0, "resolved", False), got
    assert [(item["fn"], item["value"], item["parts"]) for item in got["items"]] == [
        ("reward", 1.0, {"sum": 1.0, "report": 1.0})
    ]
    # with the first step's reward in it, the verdict is no other session's, whatever that leaves
    assert steps.in_sql("verdicts", second, "grade_key = ''") == 1
    receipt = steps.get(f"/v1/receipts/{got['receipt']}")
    assert receipt["parent"] == first and receipt["score"]["items"][0]["parts"]["sum"] == 1.0
    assert "mean of 2 steps: 1" in receipt["cause"]
    tree = steps.get(f"/v1/sessions/{second}")
    page = httpx.get(f"{steps.url}/ui/sessions/{second}", timeout=30).text
    assert "Step 2 of 2, begun with the files of" in page and "reward: sum 1, report 1" in page, page
    assert (tree["parent"], tree["grade"]["score"]["items"][0]["parts"]) == (first, {"sum": 1.0, "report": 1.0})
    told = steps.get(f"/v1/instances/{SECOND}")["step"]
    assert (told["before"], told["next"], told["strategy"]) == (FIRST, "", "mean") and "uploads" not in told
    told = steps.cli("instances", "verify", SECOND)
    assert f"ok    {SECOND}  gold resolved, empty unresolved" in told, told


def test_as_the_document_shows_it(steps: Server) -> None:
    """Somebody plays the steps by curl, as in docs/instances.md, and gets other answers than it prints."""
    (transcript,) = blocks("docs/instances.md", "### Several steps")
    failed = steps.begin(FIRST)
    steps.finish(failed)
    meanwhile = {
        "after solve.sh of the first step": lambda sids: steps.run(sids["1043893958898456"], SUM),
        "after solve.sh of the second, which is the last": lambda sids: steps.run(sids["3458660472839874"], REPORT),
    }
    play(transcript, shell(steps), {"7996329394264575": failed}, meanwhile)


def called(server: Server, tool: str, **arguments: object) -> tuple[str, bool]:
    """The text of a tool's result by MCP, and whether it is an error."""
    params = {"name": tool, "arguments": arguments}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    result = server.post("/mcp", message, timeout=300).json()["result"]
    return result["content"][0]["text"], result["isError"]


def test_agents_go_on_by_mcp_and_openenv(steps: Server) -> None:
    """A client of these protocols ends with the reward of the first step."""
    first = json.loads(called(steps, "start", instance=FIRST)[0])["sid"]
    called(steps, "bash", sid=first, command=SUM)
    following = json.loads(called(steps, "reward", sid=first)[0])["next"]
    assert (following["instance_id"], following["number"]) == (SECOND, 2)
    assert json.loads(called(steps, "end", sid=first)[0])["next"] == following
    told, refused = called(steps, "start", instance=SECOND)
    assert refused and "name in `after` the ended session of samples/steps" in told
    second = json.loads(called(steps, "start", instance=SECOND, after=first)[0])["sid"]
    assert "february.csv" in called(steps, "bash", sid=second, command=f"ls data; {REPORT}")[0]
    got = json.loads(called(steps, "reward", sid=second)[0])
    assert (got["reward"], "next" in got) == (1.0, False)

    url = steps.url.replace("http", "ws", 1) + "/openenv"
    with connect(f"{url}/sessions/{first}/ws") as socket:
        ended = asked(socket, "step", {"type": "reward"})
    assert ended["done"] and ended["metadata"]["next"] == following
    with connect(f"{url}/ws") as socket:
        begun = asked(socket, "reset", {"instance": SECOND, "after": ended["metadata"]["sid"]})
        assert "report.txt" in begun["observation"]["content"]
        asked(socket, "step", {"tool_name": "bash", "arguments": {"command": REPORT}})
        ended = asked(socket, "step", {"tool_name": "submit"})
    assert (ended["done"], ended["reward"], "next" in ended["metadata"]) == (True, 1.0, False)


def asked(socket: ClientConnection, kind: str, data: dict[str, object]) -> dict[str, Any]:
    """The answer to a message by OpenEnv's websocket."""
    socket.send(json.dumps({"type": kind, "data": data}))
    told = json.loads(socket.recv(timeout=300))
    assert told["type"] == "observation", told
    return dict(told["data"])


def test_a_separate_verifier_sees_artifacts_and_the_next_step_sees_all(steps: Server, tmp_path: Path) -> None:
    """What is not declared is graded, or is missing where the work goes on."""
    task = copied(tmp_path, "apart")
    toml = (task / "task.toml").read_text().replace("[verifier]", '[verifier]\nenvironment_mode = "separate"')
    (task / "task.toml").write_text(f"artifacts = ['/app/total.sh', '/app/report.txt', '/app/data']\n{toml}")
    tests = task / "steps" / "report" / "tests" / "test.sh"
    tests.write_text(tests.read_text().replace('[ -n "$sum" ]', '[ -n "$sum" ] && [ ! -e notes ]'))
    steps.cli("instances", "import", str(task))
    first = steps.begin("samples/apart")
    steps.run(first, f"{SUM}\necho kept >notes")
    steps.finish(first)
    second = start(steps, "samples/apart/report", first)["sid"]
    assert "kept" in steps.run(second, f"cat notes; {REPORT}")
    steps.finish(second)
    got = steps.reward(second)
    assert (got["reward"], got["items"][0]["parts"]) == (1.0, {"sum": 1.0, "report": 1.0}), got


def test_a_step_below_its_least_reward_ends_the_task(steps: Server) -> None:
    """A policy goes on with work on which its author did not want to build, or cannot go on where it may."""
    low, half = played_first(steps, "echo 'echo 7' >total.sh"), played_first(steps)
    refused = start(steps, SECOND, low, code=409)
    assert refused["code"] == "step_closed" and "reward = 0.25, below its min_reward of 0.5" in refused["detail"]
    assert (steps.reward(low)["reward"], steps.reward(low)["verdict"]) == (0.25, "unresolved")
    second = start(steps, SECOND, half)["sid"]
    steps.run(second, "echo wrong >report.txt")
    steps.finish(second)
    got = steps.reward(second)
    assert (got["reward"], got["verdict"], got["mask"]) == (0.5, "unresolved", False), got


def test_what_a_step_may_begin_after(steps: Server) -> None:
    """A later step begins without the work before it, or with the work of another task or key."""
    assert "name in `after` the ended session of samples/steps" in start(steps, SECOND, code=422)["detail"]
    sid = steps.begin(FIRST)
    assert start(steps, SECOND, sid, code=409)["code"] == "session_live"
    assert "is no later step" in start(steps, FIRST, sid, code=422)["detail"]
    assert start(steps, SECOND, 12345, code=404)["code"] == "unknown_session"
    steps.finish(sid)
    other = steps.begin()
    steps.finish(other)
    assert "not of samples/steps" in start(steps, SECOND, other, code=422)["detail"]
    # nothing was done: the tests are not run, the reward is 0.0, and the least reward is not reached
    assert steps.reward(sid)["reward"] == 0.0 and start(steps, SECOND, sid, code=409)["code"] == "step_closed"


def test_a_policy_cannot_end_its_task_by_breaking_the_next_step(steps: Server) -> None:
    """It had 1.0 for the first step; a start that failed because of its file would leave it at that."""
    sid = played_first(steps, f"{SUM}\nmkdir -p data/february.csv/february.csv/x")
    second = start(steps, SECOND, sid)["sid"]
    seen = steps.run(second, "ls incoming")
    assert "Its preparation failed: its setup.sh failed: it ended with 1" in seen and "february.csv" in seen, seen
    steps.finish(second)
    assert steps.reward(second)["reward"] == 0.5


def test_a_policy_cannot_end_its_task_by_ending_the_next_container(steps: Server, tmp_path: Path) -> None:
    """As before, where a setup.sh runs what that step left. What a fault of the host ends is set up once more."""
    task = copied(tmp_path, "hooked")
    (task / "steps" / "report" / "workdir" / "setup.sh").write_text("bash data/hook")
    steps.cli("instances", "import", str(task))
    for hook, told in (("", True), ("[ ! -e /once ] && touch /once && ", False)):
        first = steps.begin("samples/hooked")
        steps.run(first, f"{SUM}\necho '{hook}kill -TERM 1 && sleep 60; true' >data/hook")
        steps.finish(first)
        second = start(steps, "samples/hooked/report", first)["sid"]
        seen = steps.run(second, "cat data/hook; ls incoming")
        assert ("its setup.sh ended the container twice" in seen) is told, seen
        assert "kill -TERM" in seen and "february.csv" in seen, seen
        steps.finish(second)
        assert steps.reward(second)["reward"] == 0.5


def test_a_first_step_that_cannot_begin_says_why(steps: Server, tmp_path: Path) -> None:
    """No policy was there yet, but the reward says that it did nothing."""
    task = copied(tmp_path, "broken")
    (task / "steps" / "sum" / "workdir").mkdir()
    (task / "steps" / "sum" / "workdir" / "setup.sh").write_text("echo no such luck; exit 3")
    steps.cli("instances", "import", str(task))
    refused = start(steps, "samples/broken", code=503)
    assert refused["code"] == "image_unavailable" and "it ended with 3 and said 'no such luck" in refused["detail"]


def test_a_server_killed_between_and_in_steps_loses_nothing(serve: Callable[..., Server], tmp_path: Path) -> None:
    """The files of a step, its verdict or its place in the task are only in the memory of the server."""
    server = import_task(serve())
    first = played_first(server)
    server.restart()  # the grading had hardly begun
    second = start(server, SECOND, first)["sid"]
    server.run(second, REPORT)
    server.restart()
    assert "1960" in server.run(second, "cat report.txt")
    (copy,) = server.post(f"/v1/sessions/{second}/fork", {"n": 1, "at": 0}).json()["sids"]
    assert "february.csv" in server.run(copy, "ls data report.txt total.sh")
    server.run(copy, "bash total.sh >report.txt")
    for sid in (second, copy):
        server.finish(sid)
        got = server.reward(sid)
        assert (got["reward"], got["items"][0]["parts"]) == (1.0, {"sum": 1.0, "report": 1.0}), got
