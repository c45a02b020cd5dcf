"""What the adapters are built on: a rollout ends when the service says so, and a masked one never has a reward."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from stand import REWARD_FIELDS, Stand

from sandbox_client import BadAnswer, SandboxClient, SettingsError
from sandbox_client.errors import RolloutMasked
from sandbox_client.rollouts import Reply, Rollout
from sandbox_client.tools import FOR_PATCHES, FOR_PLACES, schemas
from sandbox_client.trl import SearchEnv

CALLS = [
    {"id": "1", "name": "bash", "arguments": '{"command": "ls"}'},
    {"id": "2", "name": "submit", "arguments": "{}"},
]


def turn(stand: Stand, answer: dict[str, Any], calls: list[dict[str, str]]) -> Reply:
    stand.answer("/process_action", answer)

    async def played() -> Reply:
        async with SandboxClient(stand.url) as client:
            return await Rollout(client, "7").turn("I look.", calls)

    return asyncio.run(played())


def blocks(*texts: str) -> str:
    return "\n".join(f"<tool_response>\n{text}\n</tool_response>" for text in texts)


def test_a_turn_is_one_request_and_is_answered_call_by_call(stand: Stand) -> None:
    """The service counts a turn for each call."""
    assert turn(stand, {"content": blocks("a", "b")}, CALLS) == Reply(["a", "b"], over=False)
    assert [json.loads(seen.body["content"])["content"] for seen in stand.seen] == ["I look."]


def test_it_is_over_when_the_service_says_so(stand: Stand) -> None:
    """A policy goes on, or is masked, after its answer or after the session's last minute."""
    assert turn(stand, {"content": blocks("a", "The interaction is over.")}, CALLS).over
    assert turn(stand, {"content": "Your answer is recorded."}, []) == Reply(["Your answer is recorded."], over=True)
    ended = {
        "content": "The session has ended.",
        "error": {"code": "session_ended", "detail": "The session has ended."},
    }
    assert turn(stand, ended, CALLS) == Reply(["The session has ended."] * 2, over=True)


def test_what_the_service_failed_at_is_no_reply(stand: Stand) -> None:
    """The text of a fault is shown to the policy, and the rollout is trained on."""
    lost = {"content": "[The sandbox was lost]", "error": {"code": "sandbox_lost", "detail": "it was removed"}}
    with pytest.raises(RolloutMasked, match="it was removed") as masked:
        turn(stand, lost, CALLS)
    assert masked.value.code == "sandbox_lost"
    with pytest.raises(BadAnswer, match="tool_calls"):
        turn(stand, {"content": "Please continue working on the task"}, CALLS)


def test_a_masked_reward_is_an_error(stand: Stand) -> None:
    """A trainer gets 0.0 for a sample that says nothing about its policy."""
    masked = {**REWARD_FIELDS, "reward": 0.0, "verdict": "infra", "mask": True, "cause": "the engine went away"}
    stand.answer("/compute_reward", masked)

    async def graded() -> None:
        async with SandboxClient(stand.url) as client:
            rollout = Rollout(client, "7")
            with pytest.raises(RolloutMasked, match="the engine went away"):
                await rollout.grade()
            await rollout.end()  # the reward request has ended the session

    asyncio.run(graded())
    assert [seen.path for seen in stand.seen] == ["/compute_reward"]


def test_tools_are_those_of_the_service() -> None:
    """A policy is offered a tool that the service does not have."""
    for names in (FOR_PATCHES, FOR_PLACES, ("execute_bash",)):
        assert [tool["function"]["name"] for tool in schemas(names)] == list(names)
    with pytest.raises(SettingsError, match="grep"):
        schemas(["bash", "grep"])


@pytest.mark.parametrize("files", ["src/a.py", ["src/a.py:Foo.bar"]])
def test_trl_sends_places_as_the_policy_wrote_them(stand: Stand, files: Any) -> None:
    """A text in place of a list was read letter by letter, and lines behind a path as a function's name."""
    stand.answer("/process_action", {"content": blocks("Your answer is recorded.")})
    env = SearchEnv(stand.url)
    env.reset(instance_id="a__b-1")
    assert env.localization_finish(files) == "Your answer is recorded."
    (call,) = json.loads(stand.bodies("/process_action")[0]["content"])["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"locations": files}
    assert env.bash("ls") == "The interaction is over."
