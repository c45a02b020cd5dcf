"""A journal, or a chat, read as turns, calls and an answer."""

import json

import pytest

from sandbox_server.actions.registry import dialects
from sandbox_server.catalogue.instance import SandboxSpec, TaskInstance
from sandbox_server.catalogue.localization.truth import LocalizationTask, Truth
from sandbox_server.grading.localization.base import Turn
from sandbox_server.grading.localization.messages import conversation, message_of
from sandbox_server.records import ActionRecord, SessionRecord
from sandbox_server.scoring.rollout import answer_of, events_of, metrics_of, numbers
from sandbox_server.verdicts import TurnTokens

FILES = "<files>\nsrc/a.py\n</files>"
FENCED = "```\nsrc/a.py\n```"
TASK = LocalizationTask(truth=Truth(files=("src/a.py",)))
INSTANCE = TaskInstance(
    instance_id="a__b-1",
    repo="a/b",
    version="1.0",
    sandbox=SandboxSpec(images=("image",)),
    dialect="tool_calls",
    grader={"kind": "localization"},
    localization=TASK,
)
RECORD = SessionRecord("7", "live", "a__b-1", "n", "c", created_at=100.0, touched_at=0.0, deadline=0.0)


def journal(*contents: str, tool: str = "bash") -> list[ActionRecord]:
    return [
        ActionRecord("7", number, content, "", tool, "finished", 0, 100.0 + 10 * number, 2.0)
        for number, content in enumerate(contents, start=1)
    ]


def call(name: str, **arguments: object) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


LS = call("bash", command="ls")


@pytest.mark.parametrize(
    ("contents", "files"),
    [
        ([LS, FILES], ("src/a.py",)),
        ([FILES, LS, "I am done."], ("src/a.py",)),  # case 27: a later message without an answer
        ([FENCED], ("src/a.py",)),
        ([FILES + LS], ("src/a.py",)),
        ([LS + "\n" + FENCED], None),
        ([FILES, FENCED.replace("a.py", "b.py")], ("src/b.py",)),
        ([call("localization_finish", locations=[{"file": "src/a.py"}])], ("src/a.py",)),
        ([call("result", file_paths="src/a.py")], ("src/a.py",)),
        ([call("finish", message=FILES)], ("src/a.py",)),
        ([json.dumps({"role": "assistant", "content": FILES})], ("src/a.py",)),
        (
            [json.dumps({"role": "assistant", "tool_calls": [
                {"function": {"name": "localization_finish", "arguments": '{"locations": [{"file": "src/a.py"}]}'}}
            ]})],
            ("src/a.py",),
        ),
        ([f"/testbed/{FILES}"], ("src/a.py",)),
        (["<files>/workspace/a__b__1.0/src/a.py</files>"], ("src/a.py",)),
        ([LS], None),
        ([], None),
    ],
)  # fmt: skip
def test_the_answer_of_a_journal(contents: list[str], files: tuple[str, ...] | None) -> None:
    answer = answer_of(journal(*contents), INSTANCE, dialects()["tool_calls"])
    assert (None if answer is None else answer.files) == files


def test_a_batch_of_the_trainers_is_no_answer() -> None:
    batch = journal(json.dumps({"commands": [{"command": f"echo '{FILES}'"}, {"command": "ls"}]}), tool="exec")
    assert answer_of(batch, INSTANCE, dialects()["tool_calls"]) is None
    events = events_of(batch, dialects()["tool_calls"], (), wall_clock_s=1.0)
    assert events.turns == (Turn(("bash", "bash")),)


def test_only_the_format_that_the_instance_names() -> None:
    only = INSTANCE.model_copy(update={"localization": TASK.model_copy(update={"answer": "fenced"})})
    answer = answer_of(journal(FENCED, FILES), only, dialects()["tool_calls"])
    assert answer is not None and answer.format == "fenced"


def test_a_finish_call_in_the_other_dialect() -> None:
    xml = f"<function=finish>\n<parameter=message>{FENCED}</parameter>\n</function>"
    by_xml = INSTANCE.model_copy(update={"dialect": "openhands_xml"})
    for said in (xml, xml.replace(FENCED, FILES)):
        answer = answer_of(journal(said), by_xml, dialects()["openhands_xml"])
        assert answer is not None and answer.files == ("src/a.py",)


def test_numbers_of_a_rollout() -> None:
    """Calls were counted as 0 and turns without calls left out."""
    actions = journal(
        LS * 3, "what now?", LS + call("nope") + "<tool_call>{</tool_call>", call("result", file_paths=[])
    )
    tokens = [TurnTokens(100, 10), TurnTokens(200, 20), TurnTokens(300, 30), TurnTokens(400, 40)]
    found = metrics_of(RECORD, actions, dialects()["tool_calls"], tokens)
    assert found == {
        "num_turns": 4,
        "steps": 4,
        "num_tool_calls": 5,
        "num_tool_calls_per_turn": 1.25,
        "avg_tool_calls_per_step": 1.25,
        "tool_calls_by_turn": [3, 0, 1, 1],
        "tool_calls_by_tool": {"bash": 4, "result": 1},
        "wall_clock_duration": 42.0,
        "action_duration": 8.0,
        "start_timestamp": 100.0,
        "end_timestamp": 142.0,
        "tokens": 1100,
        "total_prompt_tokens": 1000,
        "total_response_tokens": 100,
        "avg_prompt_tokens_per_step": 250.0,
        "avg_response_tokens_per_step": 25.0,
    }
    assert "tool_calls_by_turn" not in numbers(found) and numbers(found)["tokens"] == 1100.0
    empty = metrics_of(RECORD, [], dialects()["tool_calls"], [])
    assert (empty["num_turns"], empty["num_tool_calls_per_turn"], empty["wall_clock_duration"]) == (0, 0.0, 0.0)
    assert "tokens" not in empty


def test_tokens_belong_to_turns() -> None:
    dialect = dialects()["tool_calls"]
    events = events_of(journal(LS, FILES), dialect, [TurnTokens(1, 2)], wall_clock_s=0.0)
    assert events.response_tokens is None  # of one turn it is not known
    more = [TurnTokens(1, 2)] * 3
    assert events_of(journal(LS, FILES), dialect, more, wall_clock_s=0.0).response_tokens == 4


def test_a_chat() -> None:
    openai = {"function": {"name": "bash", "arguments": "{}"}}
    chat = [
        {"role": "user", "content": FILES},
        {"role": "assistant", "content": None, "tool_calls": [openai, openai]},
        {"role": "tool", "content": FILES},
        {"role": "assistant", "content": [{"type": "text", "text": FILES.replace("a.py", "b.py")}]},
        {"role": "assistant", "content": "<think>" + LS + "</think>" + LS + "\n" + FENCED},
        {"role": "assistant"},
    ]
    answer, events = conversation(chat)
    assert answer is not None and answer.files == ("src/b.py",)
    assert [turn.calls for turn in events.turns] == [("bash", "bash"), (), ("bash",), ()]


@pytest.mark.parametrize(
    "content", ["", "{", "[1, 2]", '{"role": 1}', '{"tool_calls": 3, "content": [4]}', "[" * 10_000]
)
def test_anything_is_a_message(content: str) -> None:
    assert message_of(content).answer() is None
    assert message_of(content).tools == ()
