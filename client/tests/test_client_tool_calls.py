"""Turns of tool calls: what is sent, how an observation splits, what is an answer; batches and blocking calls."""

from __future__ import annotations

import json
import threading

import pytest
from serving import Service
from stand import Fault, Stand

from sandbox_client import BadAnswer, SandboxClient, ServiceFault, UnknownSession
from sandbox_client.blocking import BlockingClient
from sandbox_client.tool_calls import is_recorded, is_reply, message, responses

RESULT = {
    "exit_code": 2,
    "stdout": "a",
    "stderr": "b",
    "truncated": False,
    "timed_out": False,
    "wall_ms": 1.0,
    "queued_ms": 0.0,
    "error": "",
}


def block(text: str) -> str:
    return f"<tool_response>\n{text}\n</tool_response>"


def test_a_turn_is_sent_as_openais_message_or_as_the_text_it_is() -> None:
    """The journal, and so the graded answer, is not what the policy wrote."""
    assert message("<files>a.py</files>", []) == "<files>a.py</files>"
    sent = json.loads(message("I look.", [{"id": "1", "name": "bash", "arguments": '{"command": "ls"}'}]))
    assert sent["content"] == "I look."
    assert sent["tool_calls"] == [
        {"id": "1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
    ]


def test_an_observation_splits_in_the_order_of_the_calls() -> None:
    """One call is shown another's output."""
    assert responses("\n".join(map(block, ("one\n\ntwo", "three"))), 2) == ["one\n\ntwo", "three"]
    assert responses(f"[It was restored.]\n{block('one')}\n{block('two')}", 2) == ["[It was restored.]\none", "two"]
    assert responses("Error: a turn has at most 64 tool calls; none of these was run.", 2)[1].startswith("Error: ")
    assert responses("Your answer is recorded.", 1) == ["Your answer is recorded."]


@pytest.mark.parametrize("observation", ["Please continue working", block("one"), ""])
def test_what_is_no_answer_to_calls_is_an_error(observation: str) -> None:
    """With another dialect every call is answered by its reminder, and a whole run is trained on that."""
    with pytest.raises(BadAnswer, match="tool_calls"):
        responses(observation, 2)


@pytest.mark.parametrize(
    ("observation", "is_ours"),
    [
        (block("one"), True),
        (f"[It was restored.]\n{block('one')}", True),
        ("Your answer is recorded.", True),
        ("Error: a turn has at most 64 tool calls; none of these was run.", True),
        ("Call a tool, as in <tool_call>...", True),
        ("Please continue working on the task", False),
        ("No command was found in your answer.", False),
    ],
)
def test_replies_of_another_dialect_are_known(observation: str, is_ours: bool) -> None:
    assert is_reply(observation) is is_ours


@pytest.mark.parametrize(
    ("observation", "over"),
    [
        ("Your answer is recorded.", True),
        ("Your answer is recorded. Left out, as it could not be read: x.", True),
        ("[The sandbox was restored.]\nYour answer is recorded.", True),
        (f"{block('src/a.py')}\n{block('Your answer is recorded.')}", True),
        (block("1: x\nYour answer is recorded."), False),
        ("Call a tool, as in ...", False),
        (block("Error: no answer could be read there, and none is recorded: ..."), False),
    ],
)
def test_what_ends_a_rollout(observation: str, over: bool) -> None:
    """A rollout goes on after its answer, or ends with a search for the tag."""
    assert is_recorded(observation) is over


async def test_a_batch_is_sent_once_more_under_the_same_key(stand: Stand) -> None:
    """A broken connection runs the commands twice."""
    path = "/v1/sessions/7/exec"
    stand.fail(path, Fault())
    stand.answer(path, {"results": [RESULT, RESULT], "seq": 1, "notice": ""})
    async with SandboxClient(stand.url) as client:
        results = await client.exec("7", ["ls", {"command": "pwd", "cwd": "src"}], timeout_s=5)
    assert [(one.exit_code, one.stdout, one.stderr, one.error) for one in results] == [(2, "a", "b", "")] * 2
    assert stand.bodies(path)[-1] == {"commands": ["ls", {"command": "pwd", "cwd": "src"}], "timeout_s": 5}
    keys = {seen.headers["idempotency-key"] for seen in stand.seen}
    assert len(stand.seen) == 2 and len(keys) == 1


@pytest.mark.parametrize("body", [{}, {"results": [RESULT]}, {"results": [{}, {}]}, {"results": [1, 2]}])
async def test_a_batch_without_a_result_for_each_command_is_an_error(stand: Stand, body: dict[str, object]) -> None:
    """A result that is missing is taken for another command's."""
    stand.answer("/v1/sessions/7/exec", body)
    async with SandboxClient(stand.url) as client:
        with pytest.raises(BadAnswer):
            await client.exec("7", ["ls", "pwd"])


@pytest.mark.parametrize(
    ("status", "code", "error"), [(500, "sandbox_lost", ServiceFault), (404, "unknown_session", UnknownSession)]
)
async def test_a_fault_of_the_service_is_no_result(stand: Stand, status: int, code: str, error: type) -> None:
    """A lost sandbox reads as commands that printed nothing."""
    fault = {"code": code, "detail": "gone", "retryable": False}
    stand.fail("/v1/sessions/7/exec", Fault(status=status, body=json.dumps(fault).encode()))
    async with SandboxClient(stand.url) as client:
        with pytest.raises(error) as raised:
            await client.exec("7", ["ls"])
    assert raised.value.code == code


def test_blocking_calls_from_many_threads_share_one_client(service: Service) -> None:
    """Each environment of a trainer opens connections of its own, or its calls mix with another's."""
    failures: list[BaseException] = []

    def roll(number: int) -> None:
        try:
            client = BlockingClient(service.url)
            sid = client.start(service.instance_id)
            seen = client.act(
                sid, f"<function=execute_bash>\n<parameter=command>echo n{number}</parameter>\n</function>"
            )
            assert seen.error is None and f"n{number}" in seen.content
            client.finish(sid)
            assert client.reward(sid).resolved is False
        except BaseException as error:  # noqa: BLE001  # shown below
            failures.append(error)

    threads = [threading.Thread(target=roll, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failures
