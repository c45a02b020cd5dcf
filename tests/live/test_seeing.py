"""A real rollout, seen on its pages while it runs and after it, in JSON and in the terminal."""

import json
import re
import threading
from collections.abc import Iterator

import httpx
import pytest

from .forking import run
from .serving import Server, until

LEDGER = "samples__ledger-12"
RUN = "seeing/1"
HOSTILE = (
    r"""printf '<script>alert(1)</script> \033[31mred\033[0m \033]0;owned\007 \342\200\256evil\n' && touch '<b>.py'"""
)


@pytest.fixture(scope="module")
def pages(live: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=live.url, timeout=120) as client:
        yield client


def begin(live: Server) -> str:
    answer = live.post("/start_instance", {"instance_hash": LEDGER}, timeout=300, headers={"Sandbox-Run": RUN})
    return str(answer.json()["sid"])


def test_a_rollout_is_seen(live: Server, pages: httpx.Client) -> None:
    """An operator would not see what a policy does, or the policy would act in his browser."""
    sid = begin(live)
    came: list[str] = []

    def follow() -> None:
        with httpx.stream("GET", f"{live.url}/ui/sessions/{sid}/live?after=0", timeout=300) as answer:
            came.extend(answer.iter_lines())

    following = threading.Thread(target=follow, daemon=True)
    following.start()
    live.run(sid, HOSTILE)
    until(lambda: "id: 1" in came, 60, "the first action on its page")
    live.run(sid, "echo '# more' >> ledger/money.py; false")
    until(lambda: "id: 2" in came, 60, "the second action")
    page = pages.get(f"/ui/sessions/{sid}").text
    assert f'data-live="/ui/sessions/{sid}/live?after=2"' in page and "exit 1" in page
    for shown in (page, "\n".join(came)):
        assert "&lt;script&gt;alert(1)" in shown and "<script>alert" not in shown
        assert '<span class="f1">red</span>' in shown and "[U+202E]evil" in shown and "\u202e" not in shown
    live.finish(sid)
    until(lambda: live.reward(sid)["verdict"] != "pending", 300, "the grading")
    reward = live.reward(sid)
    following.join(120)
    assert "event: over" in came

    page = pages.get(f"/ui/sessions/{sid}").text
    assert reward["verdict"] in page and "data-live" not in page and "&lt;b&gt;.py" in page
    assert '<span class="add">+# more</span>' in page
    failed = re.findall(r'<li class="bad"><details><summary>(tests/[^<]+)</summary>.*?</details>', page, re.DOTALL)
    assert len(failed) == reward["f2p_total"] > 0 and "&gt;       assert" in page
    assert page.count('<li class="good">') == reward["p2p_total"]
    excerpts = live.get(f"/v1/receipts/{reward['receipt']}")["excerpts"]
    assert set(excerpts) == set(failed) and all(f"FAILED {test}" in text for test, text in excerpts.items())
    file = pages.get(f"/ui/sessions/{sid}/export").text
    assert "&lt;script&gt;" in file and "<script" not in file and "[U+202E]evil" in file
    assert pages.get(f"/ui/sessions/{sid}/actions/1").status_code == 200
    for path in ("/ui", "/ui/runs", "/ui/nodes", f"/ui/instances/{LEDGER}", f"/ui/groups?run={RUN}&instance={LEDGER}"):
        answer = pages.get(path)
        assert answer.status_code == 200 and (LEDGER in answer.text or path in ("/ui", "/ui/runs", "/ui/nodes")), path

    listed = pages.get("/v1/sessions", params={"run": RUN, "verdict": reward["verdict"], "limit": 1})
    assert listed.json()[0]["sid"] == sid and listed.json()[0]["reward"] == reward["reward"]
    (before,) = [listed.headers["sandbox-next"]]
    assert pages.get("/v1/sessions", params={"run": RUN, "before": before}).json() == []
    overview = pages.get("/v1/overview", params={"run": RUN}).json()
    assert [one["count"] for one in overview["now"]] == [1] and overview["wall"]["sessions"] == 1
    spent = overview["wall"]["seconds"]
    assert spent["action"] > 0 and spent["postprocess"] > 0 and spent["grade"] > 0 and spent["model"] > 0
    assert [group["graded"] for group in pages.get("/v1/groups", params={"run": RUN}).json()] == [1]

    history = pages.get(f"/v1/pass-rates/{LEDGER}").json()
    assert sum(day["graded"] + day["masked"] for day in history["days"]) >= 1 and history["check"] is None
    instance = pages.get(f"/ui/instances/{LEDGER}").text
    for day in history["days"]:
        assert f'<td class="n">{day["resolved"]}/{day["graded"]}</td><td class="n">{day["masked"]}</td>' in instance
    assert pages.get("/v1/pass-rates/nothing-1").json()["code"] == "unknown_instance"
    assert live.session(sid)["restores"] == 0

    line = json.loads(live.cli("export", "--run", RUN, "--actions"))
    assert (line["sid"], line["verdict"], line["mask"]) == (sid, reward["verdict"], reward["mask"])
    assert [action["seq"] for action in line["actions"]] == [1, 2] and line["metrics"]["num_turns"] == 2
    assert live.cli("export", "--session", sid).startswith("<!doctype html>")
    assert "404: no session 99" in run(("export", "--session", "99"), live.environment).stderr
    head, *events = map(json.loads, live.cli("export", "--session", sid, "--format", "asciicast").splitlines())
    assert head["version"] == 3 and head["term"]["cols"] > 0 and LEDGER in head["title"]
    assert [text for _, code, text in events if code == "m"] == ["1 execute_bash", "2 execute_bash"]
    played = "".join(text for _, code, text in events if code == "o")
    assert "\x1b[31mred\x1b[0m" in played and "[U+202E]evil" in played and "exit 1" in played
    assert not re.search("\x1b(?!\\[[0-9;]*m)|[\x07\u202e]|(?<!\r)\n", played)
    assert all(after >= 0 for after, _, _ in events)
    followed = live.cli("sessions", "follow", sid)
    assert "<script>alert(1)" in followed and not re.search("[\x1b\x07\u202e]", followed)
    assert reward["verdict"] in followed.splitlines()[-1]
    assert re.search(rf"{sid} +ended .*{reward['verdict']}.*{RUN}", live.cli("sessions", "list", "--run", RUN))
    assert live.node in live.cli("top", "--run", RUN)


def test_a_node_shows_how_its_host_does(live: Server, pages: httpx.Client) -> None:
    """A slow engine, a full disk or killed processes would be found only by somebody who logs in to each host."""

    def vitals() -> dict[str, float]:
        (node,) = (node for node in pages.get("/v1/nodes").json() if node["node"] == live.node)
        found: dict[str, float] = node["vitals"]
        return found

    until(vitals, 60, "the first measurement in a heartbeat")
    seen = vitals()
    assert 0 < seen["engine_ms"] < 60_000 and abs(seen["clock_off_s"]) < 30
    assert 0 < seen["disk_used"] < 1 and seen["data_free_mb"] > 0 and seen["pulls"] == 0
    assert seen["oom_kills"] >= 0 and seen["stalls"] >= 0
    page = pages.get("/ui/nodes").text
    assert f'<td class="n">{100 * seen["disk_used"]:.0f} %</td>' in page and "not measured yet" not in page


def test_an_operator_ends_a_session(live: Server, pages: httpx.Client) -> None:
    sid = begin(live)
    live.run(sid, "true")
    token = re.findall('name="token" value="([0-9a-f]{64})"', pages.get(f"/ui/sessions/{sid}").text)[0]
    assert pages.post(f"/ui/sessions/{sid}/close", data={"token": "0" * 64}).status_code == 403
    assert live.session(sid)["state"] == "live"
    assert pages.post(f"/ui/sessions/{sid}/close", data={"token": token}).status_code == 303
    assert live.session(sid)["end_reason"] == "closed"
