"""The default dialect: what OpenHands' own parser takes, its words for the rest, and linear time."""

import string
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sandbox_server.actions.base import Call, Say
from sandbox_server.actions.dialects.openhands_xml import DIALECT

TALK = "Please continue working on the task on whatever approach you think is suitable.\n"
FAILED = "\n[Error occurred in processing last action]"


def bash(command: str) -> Call:
    return Call("execute_bash", {"command": command})


def parse(content: str) -> Call | Say:
    return DIALECT.parse(content, talk_turns=0)


def refusal(content: str) -> tuple[str, str]:
    said = parse(content)
    assert isinstance(said, Say) and not said.is_talk
    assert said.text.endswith(FAILED)
    return said.code, said.text.removesuffix(FAILED)


@pytest.mark.parametrize(
    "tail",
    ["", "<|im_end|>", "\n<|im_end|>\n", "<|endoftext|>", "<|user|>", "<|observation|>\n", "</s>", " <|im_end|></s> "],
)
def test_a_call_is_found_before_any_tail_of_special_tokens(tail):
    """A trainer that re-appends the stop token gets a reminder instead of its command's output."""
    call = "Let me look.\n<function=execute_bash>\n<parameter=command>\nls -la\n</parameter>\n</function>"
    assert parse(call + tail) == bash("ls -la")


@pytest.mark.parametrize("end", ["</function>", "</", "</ ", "", "\n", "</function", "<|im_end|>", "</<|im_end|>"])
def test_an_only_call_is_closed_where_the_stop_took_its_end(end):
    """A policy that stops at `</function` can no longer act."""
    assert parse(f"<function=execute_bash>\n<parameter=command>ls</parameter>\n{end}") == bash("ls")


def test_half_a_command_never_runs():
    """A text cut at its length limit runs `rm -rf /` where `rm -rf /tmp/x` was meant."""
    code, text = refusal("<function=execute_bash>\n<parameter=command>rm -rf /")
    assert (code, text) == (
        "missing_parameter",
        "Missing required parameters for function 'execute_bash': {'command'}",
    )


def test_the_doubled_line_of_the_prompts_example_is_dropped():
    """Policies that copy the prompt's example get a syntax error from bash."""
    content = (
        "<function=execute_bash>\n<parameter=command>\n<parameter=command>\n"
        "python3 app.py > server.log 2>&1 &\n</parameter>\n</function>"
    )
    assert parse(content) == bash("python3 app.py > server.log 2>&1 &")


def test_the_first_call_counts_and_ends_at_its_first_end():
    """Two calls in one answer run the wrong one, or none."""
    one = "<function=execute_bash>\n<parameter=command>one</parameter>\n</function>"
    assert parse(one + "\n" + one.replace("one", "two")) == bash("one")
    assert parse(one + " and then <function=execute_bash>") == bash("one")


def test_a_tag_inside_a_value_is_text():
    """A command that prints the format itself is taken apart."""
    assert parse(
        "<function=execute_bash>\n<parameter=command>echo '<parameter=x>' > f</parameter>\n</function>"
    ) == bash("echo '<parameter=x>' > f")
    overlapping = "<function=execute_bash>\n<parameter=command>a <parameter=b</parameter>\n</function>"
    assert parse(overlapping) == bash("a <parameter=b")


def test_values_are_typed():
    """The editor gets "3" for 3, or a list as text."""
    content = (
        "<function=str_replace_editor>\n<parameter=command>view</parameter>\n<parameter=path> /a b.py </parameter>\n"
        "<parameter=view_range>[1, -1]</parameter>\n<parameter=insert_line>\n3\n</parameter>\n</function>"
    )
    assert parse(content) == Call(
        "str_replace_editor", {"command": "view", "path": "/a b.py", "view_range": [1, -1], "insert_line": 3}
    )


EDITOR = (
    "<function=str_replace_editor>\n<parameter=command>{}</parameter>\n<parameter=path>/a</parameter>\n{}\n</function>"
)


@pytest.mark.parametrize(
    ("content", "code", "text"),
    [
        (
            "<function=nope>\n</function>",
            "unknown_tool",
            "Function 'nope' not found in available tools: ['execute_bash', 'finish', 'str_replace_editor']",
        ),
        (
            "<function=execute_bash>\n<parameter=cmd>ls</parameter>\n</function>",
            "unknown_parameter",
            "Parameter 'cmd' is not allowed for function 'execute_bash'. Allowed parameters: {'command'}",
        ),
        (
            "<function=execute_bash>\n</function>",
            "missing_parameter",
            "Missing required parameters for function 'execute_bash': {'command'}",
        ),
        (
            "<function=str_replace_editor>\n</function>",
            "missing_parameter",
            "Missing required parameters for function 'str_replace_editor': {'command', 'path'}",
        ),
        (
            EDITOR.format("insert", "<parameter=insert_line>one</parameter>"),
            "bad_parameter",
            "Parameter 'insert_line' is expected to be an integer.",
        ),
        (
            EDITOR.format("insert", f"<parameter=insert_line>{'9' * 5000}</parameter>"),
            "bad_parameter",
            "Parameter 'insert_line' is expected to be an integer.",
        ),
        (
            EDITOR.format("view", "<parameter=view_range>1, 2</parameter>"),
            "bad_parameter",
            "Parameter 'view_range' is expected to be an array.",
        ),
        (
            EDITOR.format("view", "<parameter=view_range>5</parameter>"),
            "bad_parameter",
            "Parameter 'view_range' is expected to be an array.",
        ),
        (
            EDITOR.format("view", f"<parameter=view_range>{'[' * 100_000}</parameter>"),
            "bad_parameter",
            "Parameter 'view_range' is expected to be an array.",
        ),
        (
            EDITOR.format("edit", ""),
            "bad_parameter",
            "Parameter 'command' is expected to be one of ['view', 'create', 'str_replace', 'insert', 'undo_edit'].",
        ),
    ],
)
def test_errors_are_in_openhands_words(content, code, text):
    """A policy trained on OpenHands meets an unknown error text."""
    assert refusal(content) == (code, text)


def test_an_error_text_is_bounded():
    """A megabyte as a tool's name comes back as a megabyte of observation."""
    _, text = refusal(f"<function={'x' * 1_000_000}>\n</function>")
    assert len(text) < 31_000 and "truncated" in text


@pytest.mark.parametrize(
    "content", ["", "only words", "<function=execute_bash>ls</function>", "<function=>\nx</function>", "</function>"]
)
def test_no_call_is_answered_with_the_reminder(content):
    """The reminder's text, or when the policy may give up, differs from OpenHands'."""
    first, second, third = (DIALECT.parse(content, talk_turns=turns) for turns in (0, 1, 2))
    assert isinstance(first, Say) and isinstance(second, Say)
    assert first.text == TALK + (
        "If you think you have solved the task, please first send your answer to user through message and then finish "
        "the interaction.\nIMPORTANT: YOU SHOULD NEVER ASK FOR HUMAN HELP.\n"
    )
    assert second.text == first.text + 'If you want to give up, use the "finish" tool to finish the interaction.\n'
    assert second == third
    assert first.is_talk and first.code == "no_call"


def test_finish_takes_whatever_it_is_given():
    """Newer policies send finish a message; it must not be an error."""
    assert parse("<function=finish>\n</function>") == Call("finish", {})
    assert parse("<function=finish>\n<parameter=message>done</parameter>\n</function>") == Call("finish", {})


def test_lone_surrogates_cannot_reach_a_tool_or_an_answer():
    """JSON can spell them, UTF-8 cannot: the reply would be an HTTP 500."""
    assert parse("<function=execute_bash>\n<parameter=command>echo \ud800</parameter></function>") == bash(
        "echo \ufffd"
    )
    said = parse("<function=\udfff>\n</function>")
    assert isinstance(said, Say)
    said.text.encode()


PIECES = st.sampled_from(
    [
        "<function=", "execute_bash", "str_replace_editor", ">", "\n", "<parameter=", "command", "path", "view_range",
        "</parameter>", "</function>", "</", "<|im_end|>", "</s>", " ", "[1", "]", "9", "\0", "\ud800", "x", "<", "=",
    ]
)  # fmt: skip


@given(st.lists(PIECES, max_size=40).map("".join) | st.text(), st.integers(0, 3))
@example("<function=a>\n<parameter=b>" * 500, 0)
@example("<function=execute_bash>\n<parameter=command>echo unclosed-ok", 0)
def test_no_input_raises(content, talk_turns):
    """A policy's text ends the request with an exception."""
    answer = DIALECT.parse(content, talk_turns=talk_turns)
    assert isinstance(answer, Call) or answer.text


# What a value may hold and still come back: no tag of the format, no white space at its ends, no repeated tag line.
VALUES = st.text(string.printable, max_size=60).map(str.strip).filter(lambda v: "</" not in v and "<parameter" not in v)


@given(VALUES, VALUES, VALUES, st.text(string.ascii_letters + " .\n", max_size=30))
def test_a_rendered_call_comes_back(path, old, new, prose):
    """Values lose or gain characters on their way through the format."""
    arguments = {"command": "str_replace", "path": path, "old_str": old, "new_str": new}
    tags = "".join(f"<parameter={name}>\n{value}\n</parameter>\n" for name, value in arguments.items())
    assert parse(f"{prose}<function=str_replace_editor>\n{tags}</function>") == Call("str_replace_editor", arguments)


HOSTILE = {
    "angle": "<",
    "open": "<function=",
    "open_gt": "<function=>",
    "calls": "<function=a>\n<parameter=b>",
    "nameless": "<function=a>",
    "x": "x",
    "space": " ",
    "newline_end": "\n",
    "tokens": "<|a|>",
    "tokens_apart": "<|im_end|> ",
    "half_tokens": "|>",
    "underscores": "_",
    "slash": "</",
    "close": "</function>",
}
IN_BODY = {
    "params": "<parameter=",
    "params_closed": "<parameter=command>x</parameter>\n",
    "params_open": "<parameter=command>",
    "params_end": "</parameter>",
}


def _cpu_s(content: str) -> float:
    best = 60.0
    for _ in range(3):
        began = time.process_time()
        DIALECT.parse(content, talk_turns=0)
        best = min(best, time.process_time() - began)
    return best


@pytest.mark.parametrize("name", [*HOSTILE, *IN_BODY])
def test_time_is_linear_in_the_size(name):
    """Eight times the text takes far more than eight times as long: one request stops the server."""

    def content(size: int) -> str:
        if name in HOSTILE:
            return (HOSTILE[name] * size)[:size]
        return f"<function=execute_bash>\n{(IN_BODY[name] * size)[:size]}>\n</function>"

    small, large = _cpu_s(content(125_000)), _cpu_s(content(1_000_000))
    # A quadratic parser takes 64 times as long; the floor keeps timer noise out.
    assert large < 24 * max(small, 0.002), (small, large)
