"""The dialect of code search: Hermes blocks and OpenAI's lists, with the results in the order of the calls."""

import json
import time
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_server.actions import registry
from sandbox_server.actions.base import Call, Say
from sandbox_server.actions.batch import Command
from sandbox_server.actions.dialects.tool_calls import DIALECT, MAX_CALLS
from sandbox_server.actions.profiles import PLAIN
from sandbox_server.actions.tool_responses import OVER, RECORDED, Reply, blocks
from sandbox_server.sandbox.base import ShellOutcome
from tests.golden.play import context
from tests.unit.actions.fakes import FakeSandbox, FakeShell, result


def parse(content: str) -> Call | Say:
    return DIALECT.parse(content, talk_turns=0)


def hermes(name: str, arguments: object) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def ls(command: str = "ls") -> str:
    return hermes("bash", {"command": command})


def openai(name: str, arguments: object, number: int = 0) -> dict[str, object]:
    said = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": said}}


def calls(content: str) -> list[Command | Reply]:
    parsed = parse(content)
    assert isinstance(parsed, Call) and parsed.tool == "bash", parsed
    return list(parsed.arguments["calls"])


def error(content: str) -> tuple[str, str]:
    """Code and text of the only call of a turn that runs nothing."""
    said = parse(content)
    assert isinstance(said, Say) and not said.is_talk, said
    assert said.text.startswith("<tool_response>\n") and said.text.endswith("\n</tool_response>")
    return said.code, said.text.removeprefix("<tool_response>\n").removesuffix("\n</tool_response>")


@pytest.mark.parametrize("tail", ["", "<|im_end|>", "\n<|im_end|>\n", "</s>"])
@pytest.mark.parametrize(
    "content",
    [
        f"Let me look.\n{ls()}\n{ls('pwd')}",
        json.dumps([openai("bash", {"command": "ls"}), openai("terminal", {"command": "pwd"}, 1)]),
        json.dumps(
            {
                "role": "assistant",
                "content": "Let me look.",
                "tool_calls": [openai("bash", {"command": "ls"}), openai("bash", {"command": "pwd"}, 1)],
            }
        ),
        json.dumps({"role": "assistant", "content": [{"type": "text", "text": ls() + ls("pwd")}]}),
        '[{"name": "bash", "arguments": {"command": "ls"}}, {"name": "bash", "parameters": {"command": "pwd"}}]',
        f"<think>I could {ls('rm -rf /')} or not.</think>{ls()}{ls('pwd')}",
        f"I could {ls('rm -rf /')} or not.</think>{ls()}{ls('pwd')}",
    ],
)
def test_the_calls_of_a_turn_in_the_order_written(content, tail):
    """A trainer's syntax of calls is not understood, or text of a thought is run."""
    assert calls(content + tail) == [Command("ls"), Command("pwd")]


@pytest.mark.parametrize(
    "arguments", ['{"command": "ls"}', json.dumps('{"command": "ls"}'), json.dumps(json.dumps('{"command": "ls"}'))]
)
def test_arguments_encoded_twice_are_read(arguments):
    """A policy that encodes its arguments twice cannot act."""
    assert calls(hermes("bash", arguments)) == [Command("ls")]
    assert calls(json.dumps([openai("bash", arguments)])) == [Command("ls")]


def test_all_that_a_call_may_say():
    """A timeout or folder in a call is ignored."""
    asked = {"command": "ls", "timeout": 2, "cwd": "src"}
    assert calls(hermes("bash", asked)) == [Command("ls", 2, "src")]
    assert calls(hermes("bash", {**asked, "timeout": None, "cwd": None})) == [Command("ls")]


@pytest.mark.parametrize("end", ["\n</tool_call>", "", "\n", "<|im_end|>"])
def test_the_last_block_may_lack_its_end(end):
    """Generation that stops at `</tool_call>` loses the call."""
    assert calls('<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}' + end) == [Command("ls")]


@pytest.mark.parametrize("command", ["grep -n '</tool_call>' a.py", "echo '<tool_call>{}'", "grep '</think>' x"])
def test_tags_in_an_argument_are_the_arguments(command):
    """A tag in the search pattern ends the call, or begins another one."""
    assert calls(ls(command) + ls()) == [Command(command), Command("ls")]


@pytest.mark.parametrize(
    ("call", "code", "text"),
    [
        (
            '<tool_call>{"name": "bash", "arguments": {"command": "rm -rf /',
            "bad_call",
            "Error: the tool call was not understood: it is not valid JSON (Unterminated string starting at).",
        ),
        (
            '<tool_call>{"name": "bash"}}</tool_call>',
            "bad_call",
            "Error: the tool call was not understood: there is more than one JSON object between the tags.",
        ),
        ("<tool_call>3</tool_call>", "bad_call", "Error: the tool call was not understood: it has no name."),
        ('<tool_call>{"name": 3}</tool_call>', "bad_call", "Error: the tool call was not understood: it has no name."),
        (f"<tool_call>{'[' * 100_000}", "bad_call", "Error: the tool call was not understood: it cannot be read."),
        (
            hermes("cat", {}),
            "unknown_tool",
            "Error: there is no tool 'cat'; there are bash, execute_bash, str_replace_editor, localization_finish,"
            " result, finish, submit.",
        ),
        (
            hermes("bash", [1]),
            "bad_parameter",
            "Error: Invalid tool arguments - they are not a JSON object.",
        ),
        (hermes("bash", "ls"), "bad_parameter", "Error: Invalid tool arguments - they are not a JSON object."),
        (
            hermes("bash", {"cmd": "ls"}),
            "bad_parameter",
            "Error: Invalid tool arguments - bash has no parameter 'cmd'; it has command, timeout, cwd.",
        ),
        (hermes("bash", {}), "bad_parameter", "Error: Invalid tool arguments - bash needs a command, which is a text."),
        (hermes("bash", {"command": " "}), "bad_parameter", "Error: Invalid tool arguments - the command is empty."),
        (
            hermes("bash", {"command": "ls", "timeout": -1}),
            "bad_parameter",
            "Error: Invalid tool arguments - the timeout must be a number of seconds above 0 and at most 86400.",
        ),
        (
            hermes("bash", {"command": "ls", "timeout": True}),
            "bad_parameter",
            "Error: Invalid tool arguments - timeout is a number of seconds.",
        ),
    ],
)
def test_a_malformed_call_is_answered_in_its_place(call, code, text):
    """It raises, other calls get no answer, or part of a command runs."""
    assert error(call) == (code, text)
    assert calls(f"{ls()}{call}")[0] == Command("ls")
    told = calls(f"{ls()}{call}")[1]
    assert isinstance(told, Reply) and (told.code, told.text) == (code, text)


@pytest.mark.parametrize("name", ["timeout", "cwd"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400, "1", [], {}, "\0"])
def test_a_parameter_of_another_kind_is_refused(name, value):
    """A number out of range ends the request with an exception."""
    if (name, value) != ("cwd", "1"):
        assert error(hermes("bash", {"command": "ls", name: value}))[0] in ("bad_parameter", "bad_call")


@pytest.mark.parametrize("name", ["localization_finish", "result", "finish"])
def test_an_answer_may_be_a_call(name):
    """An answer call is run, or reported as unknown."""
    assert error(hermes(name, {"locations": [{"file": "a.py"}]})) == ("answer", RECORDED)
    assert error(json.dumps([openai(name, {"file_paths": ["a.py"]})])) == ("answer", RECORDED)
    assert calls(ls() + hermes(name, {})) == [Command("ls"), Reply(RECORDED, "answer")]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "I think it is src/a.py.",
        "</files> <files>",
        '["src/a.py"]',
        "[]",
        "{}",
        "```bash\nls\n```",
        "```\nls -la\n```",
        "<think>never closed <files>a.py</files>" + ls(),
        "<files>a.py</files></think>",
    ],
)
def test_a_turn_with_neither_is_talk_and_told_what_is_expected(content):
    """The rollout continues without feedback until its turns run out."""
    said = parse(content)
    assert isinstance(said, Say) and said.is_talk and said.code == "no_call"
    assert "<tool_call>" in said.text and "<files>" in said.text


def test_a_turn_of_too_many_calls_runs_none():
    """One text starts thousands of commands."""
    assert len(calls(ls() * MAX_CALLS)) == MAX_CALLS
    for content in (ls() * (MAX_CALLS + 1), json.dumps([openai("bash", {"command": "ls"})] * (MAX_CALLS + 1))):
        said = parse(content)
        assert isinstance(said, Say) and said.code == "many_calls"


PIECES = st.sampled_from(
    [
        *(
            "<tool_call>",
            "</tool_call>",
            "<think>",
            "</think>",
            "<files>",
            "</files>",
            "\n",
            " ",
            "\0",
            "\ud800",
            "```",
        ),
        *("{", "}", "[", "]", '"', "\\", ",", ":", "1", "null", '"name"', '"arguments"', '"command"', '"function"'),
        *('"tool_calls"', '"role"', '"content"', '"bash"', ls(), hermes("finish", {}), "<|im_end|>", "x"),
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("bash"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "name",
                    "arguments",
                    "function",
                    "tool_calls",
                    "content",
                    "role",
                    "command",
                    "timeout",
                    "path",
                    "insert_line",
                    "view_range",
                    "old_str",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)


@given(
    st.lists(PIECES, max_size=30).map("".join)
    | st.text()
    | JSON.map(json.dumps)
    | JSON.map(lambda v: hermes("bash", v))
    | JSON.map(lambda v: hermes("execute_bash", v))
    | JSON.map(lambda v: hermes("str_replace_editor", {"command": "insert", "path": "/a", "insert_line": v}))
)
def test_no_input_raises(content):
    """A policy's text ends the request with an exception."""
    parsed = parse(content)
    if isinstance(parsed, Call):
        calls = parsed.arguments["calls"]
        assert isinstance(calls, Iterable) and any(isinstance(one, Command | Call) for one in calls)
    else:
        parsed.text.encode()


@given(st.lists(st.text(min_size=1).filter(lambda text: text.strip() and "\0" not in text), min_size=1, max_size=4))
def test_a_command_arrives_as_it_was_written(commands):
    """A quote, a newline or a tag in it changes what runs."""
    texts = [text.encode("utf-8", "replace").decode() for text in commands]
    expected = [Command(text) for text in texts]
    assert calls("".join(map(ls, texts))) == expected
    assert calls(json.dumps([openai("bash", {"command": text}) for text in texts])) == expected


@pytest.mark.parametrize(
    "piece",
    [
        "<tool_call>",
        "</tool_call>",
        "<tool_call>{",
        '<tool_call>"',
        "<think>",
        "</think>",
        "[",
        "{",
        "<files>",
        "```\n",
        ls(),
    ],
)
def test_a_long_text_takes_linear_time(piece):
    """A policy that repeats itself stops every other session."""
    content = piece * (1_000_000 // len(piece))
    began = time.thread_time()
    parse(content)
    assert time.thread_time() - began < 1.0


@given(st.lists(st.text("</>tol_respn\n", max_size=60), min_size=1, max_size=4))
def test_an_observation_splits_into_its_blocks(texts):
    """Output with a closing tag passes for the result of another call."""
    whole = blocks(texts)
    assert whole.count("</tool_response>") == len(texts)
    rest = whole
    for text in texts:
        inside, _, rest = rest.removeprefix("\n").removeprefix("<tool_response>\n").partition("\n</tool_response>")
        assert inside == text.replace("</tool_response>", "<\\/tool_response>")
    assert rest == ""


SHELL = Call("execute_bash", {"command": "cd /tmp"})


def test_the_shell_and_the_editor_of_the_text_dialects():
    """A policy trained on these tools in JSON gets only a fresh bash, or its newer parameters are refused."""
    view = {"command": "view", "path": "/a", "view_range": "[1, 2]", "security_risk": "LOW"}
    content = hermes("execute_bash", {"command": "cd /tmp", "is_input": "false"}) + hermes("str_replace_editor", view)
    parsed = parse(content + ls() + hermes("submit", {}))
    editor = Call("str_replace_editor", {"command": "view", "path": "/a", "view_range": [1, 2]})
    assert parsed == Call("calls", {"calls": (SHELL, editor, Command("ls"), Reply(OVER, "finish"))})
    assert parse(hermes("execute_bash", {"command": "", "timeout": 5})) == Call(
        "calls", {"calls": (Call("execute_bash", {"command": "", "timeout": 5}),)}
    )
    assert parse(hermes("submit", {})) == Say(blocks([OVER]), "finish")
    insert = {"command": "insert", "path": "/a", "insert_line": "3", "new_str": "x"}
    (told,) = parse(hermes("str_replace_editor", insert)).arguments["calls"]
    assert told.arguments["insert_line"] == 3


@pytest.mark.parametrize(
    ("name", "arguments", "why"),
    [
        ("execute_bash", {"command": "ls", "cwd": "/"}, "execute_bash has no parameter 'cwd'; it has command, timeout"),
        ("execute_bash", {}, "execute_bash needs a command, which is a text"),
        ("str_replace_editor", {"command": "delete", "path": "/a"}, "command is one of view, create,"),
        ("str_replace_editor", {"command": ["view"], "path": "/a"}, "command is one of view, create,"),
        ("str_replace_editor", {"command": "view"}, "str_replace_editor needs a path"),
        ("str_replace_editor", {"command": "view", "path": 3}, "path is a text"),
        ("str_replace_editor", {"command": "create", "path": "/a", "file_text": {}}, "file_text is a text"),
        ("str_replace_editor", {"command": "insert", "path": "/a", "insert_line": 1.5}, "insert_line is an integer"),
        ("str_replace_editor", {"command": "insert", "path": "/a", "insert_line": True}, "insert_line is an integer"),
        ("str_replace_editor", {"command": "insert", "path": "/a", "insert_line": "9" * 5000}, "insert_line is an int"),
        ("str_replace_editor", {"command": "view", "path": "/a", "view_range": 7}, "view_range is a list"),
        ("str_replace_editor", {"command": "view", "path": "/a", "lines": 7}, "str_replace_editor has no parameter"),
    ],
)
def test_what_these_tools_do_not_take(name, arguments, why):
    """A parameter of the wrong type raises inside the tool and is shown to the policy as a fault of the service."""
    code, text = error(hermes(name, arguments))
    assert code == "bad_parameter" and text.startswith(f"Error: Invalid tool arguments - {why}"), text


async def test_calls_of_a_turn_share_the_shell_in_their_order():
    """A call runs in parallel with one it depends on, or its text goes into the program of the previous call."""
    running = result("", -1, ShellOutcome.RUNNING)
    shell = FakeShell([result("one"), result("two", 2), running])
    sandbox = FakeSandbox(shell=shell)
    sandbox.mkdir("/tmp")
    create = Call("str_replace_editor", {"command": "create", "path": "/tmp/x", "file_text": "x"})
    calls = (SHELL, create, Command("pwd"), Reply("told", "bad_call"), Command("ls", None, "src"), SHELL, SHELL)
    around = replace(context(sandbox, profile=PLAIN, soft_timeout_s=1.0), calls_in_order=True)
    observation = await registry.tools()["bash"].run(Call("bash", {"calls": calls}), around)
    texts = [text.removeprefix("<tool_response>\n") for text in observation.text.split("\n</tool_response>")[:-1]]
    texts = [text.removeprefix("\n<tool_response>\n") for text in texts]
    assert texts[0] == "one" and texts[1] == "File created successfully at: /tmp/x" and texts[3] == "told"
    assert texts[2] == "two\n[exit code: 2]" and "no cwd; use cd" in texts[4]
    assert "still running" in texts[5] and texts[6].startswith("[This call did not run: the command before it")
    assert [asked[1] for asked in shell.asked] == ["cd /tmp", "pwd", "cd /tmp"]
    assert (observation.exit_code, observation.outcome, sandbox.files["/tmp/x"]) == (2, "bad_parameter", b"x")


def test_a_call_left_open_in_a_thought_is_no_call() -> None:
    """What the policy only considered would run."""
    thought = '<think>Perhaps <tool_call>{"name": "bash", "arguments": {"command": "rm -rf /"}}</think>'
    parsed = DIALECT.parse(thought + ls(), talk_turns=0)
    assert isinstance(parsed, Call) and parsed.arguments["calls"] == (Command("ls"),)


def test_an_answer_beside_the_end_counts_as_one() -> None:
    """A turn that gives its answer and then submits is journaled as one without an answer."""
    parsed = DIALECT.parse(hermes("submit", {}) + hermes("localization_finish", {"locations": []}), talk_turns=0)
    assert isinstance(parsed, Say) and parsed.code == "answer"
