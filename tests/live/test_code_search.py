"""Code search over real HTTP: rewards from journaled answers, graded batches, rollout metrics."""

import json
from collections.abc import Callable

import httpx
import pytest

from .serving import Server, bash, docker, until

INSTANCE = "samples__find-1"
BOTH = "<files>\n- timespan/reader.py\n/testbed/timespan/writer.py\ntimespan/new.py\n</files>"
DEEP = "```\ntimespan/reader.py\nfunction: read\n\ntimespan/writer.py\n```"


def put(live: Server, sid: str, body: object) -> httpx.Response:
    return httpx.put(f"{live.url}/v1/sessions/{sid}/rollout", json=body, timeout=30)


def grade(live: Server, **body: object) -> list[dict]:
    answer = live.post("/v1/grade", body, timeout=300)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["results"])


def test_an_answer_becomes_a_reward(live: Server) -> None:
    """The policy's last message is lost, or scored as a patch."""
    sid = live.begin(INSTANCE)
    live.run(sid, "grep -rn def timespan")
    assert (
        live.say(sid, "I think it is in <files>\ntimespan/units.py\n</files>")["content"] == "Your answer is recorded."
    )
    assert live.say(sid, DEEP) == {"content": "Your answer is recorded."}
    assert live.finish(sid)["state"] == "ended"

    got = live.reward(sid)
    assert (got["verdict"], got["mask"], got["reward"], got["f2p_count"], got["f2p_total"]) == (
        "resolved",
        False,
        3.0,
        1,
        1,
    )
    assert got["answer"]["files"] == ["timespan/reader.py", "timespan/writer.py"]
    assert got["answer"]["format"] == "fenced" and got["flags"] == [] and got["steps"] == []
    assert got["items"] == [
        {
            "fn": "multilevel_localization_f1_reward",
            "value": 3.0,
            "weight": 1.0,
            "parts": {"file_f1": 1.0, "module_f1": 1.0, "entity_f1": 1.0},
        }
    ]
    assert live.reward(sid) == got
    shown = live.session(sid)
    assert shown["grade"]["reward_name"] == "multilevel"
    assert shown["grade"]["score"]["items"] == got["items"]
    assert shown["patch"]["exists"] is False
    assert live.get(f"/v1/receipts/{got['receipt']}")["score"]["answer"]["files"] == got["answer"]["files"]


def test_a_rollout_is_measured(live: Server) -> None:
    """Dashboards show calls as 0 because they are looked for in the wrong place."""
    sid = live.begin(INSTANCE)
    for command in ("ls", "sleep 0.3"):
        live.run(sid, command)
    live.say(sid, BOTH)
    metrics = live.session(sid)["metrics"]
    assert put(live, sid, {"tokens": [{"prompt": 100, "response": 10}] * 3}).status_code == 204
    live.reward(sid)
    after = live.session(sid)["metrics"]
    assert after == {
        **metrics,
        "tokens": 330,
        "total_prompt_tokens": 300,
        "total_response_tokens": 30,
        "avg_prompt_tokens_per_step": 100.0,
        "avg_response_tokens_per_step": 10.0,
    }
    assert (metrics["num_turns"], metrics["steps"], metrics["num_tool_calls"]) == (3, 3, 2)
    assert metrics["tool_calls_by_turn"] == [1, 1, 0] and metrics["tool_calls_by_tool"] == {"execute_bash": 2}
    assert metrics["num_tool_calls_per_turn"] == metrics["avg_tool_calls_per_step"] == pytest.approx(2 / 3)
    assert 0.3 <= metrics["action_duration"] <= metrics["wall_clock_duration"] < 60
    assert metrics["end_timestamp"] - metrics["start_timestamp"] == pytest.approx(metrics["wall_clock_duration"])


def test_means_over_the_rollouts_of_a_run(live: Server) -> None:
    """A trainer would have to keep every reward item itself to plot it."""
    for content in (BOTH, "<files>nowhere.py</files>", "I give up."):
        start = {"instance_hash": INSTANCE}
        sid = live.post("/start_instance", start, headers={"Sandbox-Run": "means"}).json()["sid"]
        live.say(sid, content)
        live.reward(sid)

    def means() -> dict[str, tuple[int, float]]:
        rows = (
            httpx.get(f"{live.url}/v1/metrics/rollout", params={"run": "means"}, timeout=30).raise_for_status().json()
        )
        return {row["name"]: (row["count"], row["mean"]) for row in rows}

    until(lambda: means().get("reward", (0, 0))[0] == 3, 10, "metrics of all three")
    found = means()
    assert found["reward/multilevel_localization_f1_reward"] == (3, pytest.approx(1 / 3))
    assert found["answered"] == (3, pytest.approx(2 / 3)) and found["masked"] == (3, 0.0)
    assert found["num_turns"] == (3, 1.0) and found["num_tool_calls"] == (3, 0.0)
    assert httpx.get(f"{live.url}/v1/metrics/rollout?run=nobodys", timeout=30).json() == []
    assert 'sandbox_rollout_count{metric="num_turns"}' in httpx.get(f"{live.url}/metrics", timeout=30).text


def test_without_an_answer(live: Server) -> None:
    sid = live.begin(INSTANCE)
    live.run(sid, "cat timespan/reader.py; echo '```'; echo timespan/reader.py; echo '```'")
    got = live.reward(sid)
    assert (got["verdict"], got["mask"], got["reward"], got["answer"]) == ("no_answer", False, 0.0, None)
    assert [item["value"] for item in got["items"]] == [0.0]


def test_a_lost_sandbox_is_no_reward(live: Server) -> None:
    """As 0 or -10 it would train the policy on faults of the service."""
    sid = live.begin(INSTANCE)
    live.say(sid, BOTH)
    docker("rm", "-f", live.container(sid))
    assert live.say(sid, bash("ls"))["error"]["code"] == "sandbox_lost"
    got = live.reward(sid)
    assert (got["verdict"], got["mask"], got["reward"]) == ("infra", True, 0.0)
    assert "items" not in got


def test_rewards_of_one_session(live: Server) -> None:
    sid = live.begin(INSTANCE)
    items = [
        {"fn": "file_localization_f1_reward", "weight": 2.0},
        {"fn": "tool_use_reward", "args": {"max_tool_use": 5}},
        {"fn": "cosine_reward", "weight": 0.0, "args": {"variant": "v3", "use_length_reward": True}},
    ]
    assert put(live, sid, {"rewards": items, "tokens": [{"prompt": 9, "response": 100}] * 2}).status_code == 204
    live.run(sid, "ls")
    live.say(sid, BOTH)
    got = live.reward(sid)
    assert got["reward"] == pytest.approx(2.0 + 0.2)
    assert [item["fn"] for item in got["items"]] == [item["fn"] for item in items]
    assert set(got["items"][2]["parts"]) == {"turns", "tools", "length", "localization"}

    late = put(live, sid, {"rewards": "file_loc"})
    assert (late.status_code, late.json()["code"]) == (409, "session_ended")
    assert put(live, "77", {"rewards": "file_loc"}).status_code == 404
    other = live.begin(INSTANCE)
    for wrong, why in [
        ({"rewards": [{"fn": "nope"}]}, "there is no reward 'nope'"),
        ({"rewards": "/etc/passwd"}, "there is no composition"),
        ({"rewards": [{"fn": "turn_efficiency", "args": {"x": 1}}]}, "x: Extra inputs"),
        ({"reward": "file_loc"}, "reward"),
    ]:
        refused = put(live, other, wrong)
        assert refused.status_code == 422 and why in refused.json()["detail"], refused.text
    live.reward(other)


def test_the_format_of_one_session(live: Server) -> None:
    """What the policy is told of its answer, and what it is scored by, follow different formats."""
    sid = live.begin(INSTANCE)
    assert put(live, sid, {"format": "files"}).status_code == 204
    assert "recorded" not in live.say(sid, DEEP)["content"]
    assert put(live, sid, {"format": "xml"}).status_code == 422
    (copy,) = live.post(f"/v1/sessions/{sid}/fork", {}).json()["sids"]
    assert live.say(sid, BOTH)["content"].startswith("Your answer is recorded.")
    live.say(sid, DEEP)
    assert live.reward(sid)["answer"]["format"] == "files"
    live.say(copy, BOTH)
    assert live.reward(copy)["answer"]["format"] == "files"


def test_what_cannot_be_told_is_masked(live: Server) -> None:
    sid = live.begin(INSTANCE)
    length = {"fn": "cosine_reward", "args": {"variant": "v3", "use_length_reward": True}}
    assert put(live, sid, {"rewards": [length]}).status_code == 204
    live.say(sid, BOTH)
    got = live.reward(sid)
    assert (got["verdict"], got["mask"]) == ("infra", True)
    assert "say how many response tokens each turn had" in got["cause"]


def test_a_batch_is_graded_without_a_session(live: Server, sample_instances: dict[str, dict]) -> None:
    timespan = sample_instances["timespan"]
    chat = [
        {"role": "user", "content": "Find it."},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "bash", "arguments": "{}"}}] * 4},
        {"role": "tool", "content": "<files>src/z.py</files>"},
        {"role": "assistant", "content": BOTH},
    ]
    results = grade(
        live,
        items=[
            {"instance": INSTANCE, "answer": DEEP},
            {
                "truth": {"files": ["src/a.py"]},
                "answer": {"locations": [{"file": "./src/a.py"}]},
                "rewards": "file_loc",
            },
            {"instance": INSTANCE, "messages": chat, "rewards": "tool_use_capped"},
            {"instance": INSTANCE, "answer": BOTH, "rewards": "tool_use"},
            {"instance": "nobody__knows-1", "answer": BOTH},
            {"instance": INSTANCE},
            {"instance": INSTANCE, "answer": "I do not know."},
            {"truth": {"file": []}, "answer": ""},
            "nonsense",
            {"instance": timespan["instance_id"], "patch": timespan["gold_patch"]},
            {"instance": timespan["instance_id"], "patch": ""},
            {"instance": timespan["instance_id"], "answer": BOTH},
        ],
    )
    assert [result["total"] for result in results] == [3.0, 1.0, pytest.approx(0.8 + 1.0 + 1.0), None, None, None, 0.0,
                                                      None, None, 1.0, 0.0, None]  # fmt: skip
    assert [result["error"] and result["error"]["code"] for result in results] == [
        None,
        None,
        None,
        "malformed_request",
        "unknown_instance",
        "malformed_request",
        None,
        "malformed_request",
        "malformed_request",
        None,
        None,
        "ungradable",
    ]
    assert "turn" in results[3]["error"]["detail"] or "tool" in results[3]["error"]["detail"]
    assert [result["verdict"] for result in results[-3:-1]] == ["resolved", "empty_patch"]
    assert results[6]["verdict"] == "no_answer" and results[6]["mask"] is False
    assert all(result["mask"] for result in results if result["error"])
    assert results[1]["flags"] == ["no_modules", "no_entities"]


def test_bounds_of_a_batch(live: Server) -> None:
    item = {"truth": {"files": ["a.py"]}, "answer": "<files>a.py</files>"}
    discounted = grade(live, items=[{**item, "events": {"turns": [{"tools": ["bash"]}] * 3}}],
                       rewards=[{"fn": "file_localization_f1_reward"}], discount=0.5)  # fmt: skip
    assert discounted[0]["steps"] == [0.25, 0.5, 1.0]
    assert len(grade(live, items=[item] * 512)) == 512
    refused = live.post("/v1/grade", {"items": [item] * 513})
    assert refused.status_code == 422 and "SANDBOX_GRADE_BATCH" in refused.json()["detail"]
    for wrong in ({}, {"items": 1}, {"items": [], "discount": 0.5}, {"items": [], "rewards": "nope"}):
        assert live.post("/v1/grade", wrong).status_code == 422


def test_an_answer_outlives_the_server(serve: Callable[..., Server], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Acknowledged answers are in Redis before SQL; a rewards file applies to all instances."""
    rewards = tmp_path_factory.mktemp("rewards") / "mine.yaml"
    rewards.write_text("reward: [{fn: file_localization_f1_reward, weight: 4}]")
    server = serve(localization_rewards=rewards)
    sid = server.begin(INSTANCE)
    server.say(sid, BOTH)
    server.restart()
    got = server.reward(sid)
    assert (got["verdict"], got["reward"], json.dumps(got["answer"]["problems"])) == ("resolved", 4.0, "[]")
    assert server.session(sid)["grade"]["reward_name"] == "mine"
