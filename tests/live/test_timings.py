"""Where a rollout's time went is known afterwards, to an operator and in the receipt."""

import httpx

from .serving import Server, bash


def test_an_actions_stages_reach_metrics_session_and_receipt(live: Server) -> None:
    """A trainer cannot see which stage it waits for."""
    sid = live.begin()
    before = _counted(live)
    for _ in range(3):
        live.run(sid, "sleep 0.1")
    live.say(sid, "no call at all")
    assert live.say(sid, bash("true"))["content"]
    stages = {stage: after - before.get(stage, 0.0) for stage, after in _counted(live).items()}
    assert stages == {"wait": 5, "parse": 5, "run": 4, "journal": 5}

    shown = live.session(sid)["timings_s"]
    assert 0.3 < shown["action_run"] < 20
    assert all(0 < shown[f"action_{stage}"] < 20 for stage in ("wait", "parse", "journal"))

    live.finish(sid)
    reward = live.reward(sid)
    receipt = httpx.get(f"{live.url}/v1/receipts/{reward['receipt']}", timeout=30).raise_for_status().json()
    assert receipt["session_timings_s"]["action_run"] == shown["action_run"]
    ended = live.session(sid)["timings_s"]
    assert ended["action_run"] == shown["action_run"]
    graded = {stage: seconds for stage, seconds in receipt["timings_s"].items() if stage != "store"}  # known too late
    assert graded and graded.items() <= ended.items()


def test_what_a_policy_tried_is_in_its_receipt(live: Server) -> None:
    """Attempts are counted without effect on the verdict, because an honest rollout may look at its history too."""
    sid = live.begin()
    live.run(sid, "git log --all --oneline; echo 'import sys; sys._getframe(0)' > product_code.py")
    live.finish(sid)
    reward = live.reward(sid)
    assert reward["mask"] is False
    receipt = httpx.get(f"{live.url}/v1/receipts/{reward['receipt']}", timeout=30).raise_for_status().json()
    assert receipt["tripwires"] == {"action:later history": 1, "patch:sys._getframe": 1}
    shown = httpx.get(f"{live.url}/v1/sessions/{sid}", timeout=30).raise_for_status().json()
    assert shown["grade"]["tripwires"] == receipt["tripwires"]


def _counted(live: Server) -> dict[str, float]:
    """Stage of an action -> how often it was measured; the session's patch is not one of an action."""
    name = 'sandbox_action_seconds_count{stage="'
    lines = httpx.get(f"{live.url}/metrics", timeout=30).text.splitlines()
    found = [line.removeprefix(name).split('"} ') for line in lines if line.startswith(name)]
    return {stage: float(count) for stage, count in found if stage != "patch"}
