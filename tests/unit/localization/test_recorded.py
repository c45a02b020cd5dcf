"""The message about a policy's answer: "recorded" exactly if the answer is scored."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_server.actions.base import Call, Say
from sandbox_server.actions.batch import Command
from sandbox_server.actions.dialects.tool_calls import DIALECT
from sandbox_server.actions.tool_responses import OVER, RECORDED, Reply
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.records import ActionRecord
from sandbox_server.scoring.answering import answer_reply, may_answer
from sandbox_server.scoring.rollout import answer_of
from sandbox_server.verdicts import Answer
from tests.unit.localization.test_any_answer import PIECES

TASK = TaskInstance.model_validate(
    {
        "instance_id": "a__b-1",
        "repo": "a/b",
        "version": "1",
        "problem_statement": "it is wrong",
        "sandbox": {"images": ["a:latest"], "workdir": "/testbed"},
        "grader": {"kind": "localization"},
        "localization": {"truth": {"files": ["src/a.py"]}},
    }
)


def told(content: str, task: TaskInstance = TASK) -> str:
    """What the policy reads in the last place of its observation; "" where a command's output stands there."""
    parsed = answer_reply(DIALECT.parse(content, talk_turns=0), content, task)
    if isinstance(parsed, Say):
        return parsed.text
    last = parsed.arguments["calls"][-1]  # type: ignore[index]
    return last.text if isinstance(last, Reply) else ""


def scored(content: str, task: TaskInstance = TASK) -> Answer | None:
    action = ActionRecord(
        sid="1", seq=1, content=content, observation="", tool="none", exit_code=None, outcome="",
        started_at=0.0, duration_s=0.0,
    )  # fmt: skip
    return answer_of([action], task, DIALECT)


def fence(*lines: str, language: str = "") -> str:
    return "\n".join([f"```{language}", *lines, "```"])


def call(name: str, arguments: object) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


FOUND = json.dumps([{"file": "src/a.py", "class_name": "C", "function_name": "f"}])
ARGUMENTS = json.dumps({"locations": json.loads(FOUND)})
IN = "localization_finish"
BAR, UNDER = "\uff5c", "\u2581"  # DeepSeek's


@pytest.mark.parametrize(
    "content",
    [
        f"It is here.\n<tool_call>{IN}\n<arg_key>locations</arg_key>\n<arg_value>{FOUND}</arg_value>\n</tool_call>",
        f"<{BAR}tool{UNDER}call{UNDER}begin{BAR}>function<{BAR}tool{UNDER}sep{BAR}>{IN}\n```json\n{ARGUMENTS}\n```",
        f"<{BAR}tool{UNDER}call{UNDER}begin{BAR}>{IN}<{BAR}tool{UNDER}sep{BAR}>{ARGUMENTS}<{BAR}tool{UNDER}call{UNDER}end{BAR}>",
        f'<{BAR}DSML{BAR}invoke name="{IN}">\n<{BAR}DSML{BAR}parameter name="locations" string="false">{FOUND}</>',
        f"<|tool_call_begin|>functions.{IN}:0<|tool_call_argument_begin|>{ARGUMENTS}<|tool_call_end|>",
        f"<tool_call>\n<function={IN}>\n<parameter=locations>\n{FOUND}\n</parameter>\n</function>\n</tool_call>",
        f'<minimax:tool_call>\n<invoke name="{IN}">\n<parameter name="locations">{FOUND}</parameter>\n</invoke>',
        f"[TOOL_CALLS]{IN}[ARGS]{ARGUMENTS}",
        f'[TOOL_CALLS] [{{"name": "{IN}", "arguments": {ARGUMENTS}}}]',
        f'<|python_tag|>{{"name": "{IN}", "parameters": {ARGUMENTS}}}',
        f"<|channel|>commentary to=functions.{IN} <|constrain|>json<|message|>{ARGUMENTS}<|call|>",
        f'<tool_call>{{"name": "functions.{IN}", "arguments": {ARGUMENTS}}}</tool_call>',
        "<thinking>Or <files>src/c.py</files>?</thinking>" + fence("src/a.py", "class: C", "function: f"),
        "\u25c1think\u25b7<files>src/c.py</files>\u25c1/think\u25b7" + fence("src/a.py", "class: C", "function: f"),
        fence("src/a.py", "class: C", "function: f").replace("\n", "\r\n"),
        f"````markdown\n{fence('src/a.py', 'class: C', 'function: f')}\n````",
        f"```markdown\n{fence('src/a.py', 'class: C', 'function: f')}\n```",
        fence("src/a.py::C::f"),
        fence("- file: src/a.py", "  class_name: C", "  function_name: f", language="yaml"),
        fence("file\uff1asrc/a.py", "class\uff1aC", "function\uff1af"),
        fence("\u6587\u4ef6\uff1asrc/a.py", "\u7c7b\uff1aC", "\u51fd\u6570\uff1af"),
        fence("src/a.py\uff08\u89e3\u6790\uff09", "class: C", "function: f"),
        "1. **`src/a.py`** \u2014 `C.f()`",
        "<locations>\n<file>src/a.py</file>\n<class>C</class>\n<function>f</function>\n</locations>",
        fence('<location file="src/a.py" class="C" function="f"/>', language="xml"),
        "Here:\n\n| File | Class | Function |\n|---|---|---|\n| `src/a.py` | `C` | `f` |\n",
        fence("| File | Function |", "|---|---|", "| src/a.py | C.f |"),
        '```json\n{"answer": {"locations": [{"file": "src/a.py", "function": "C.f"}]}}\n```',
        '```jsonc\n{"edits": [\n  // parser\n  {"file": "src/a.py", "function": "C.f", "reason": "wrong"},\n]}\n```',
        '```json\n{"locations": ["src/a.py::C.f"]}\n```',
    ],
)
def test_todays_policies(content: str) -> None:
    """Calls as GLM, DeepSeek, Kimi, Qwen, MiniMax, Mistral, Llama and gpt-oss spell them; and lists of other kinds."""
    answer = scored(content)
    assert answer is not None and (answer.files, answer.entities) == (("src/a.py",), ("src/a.py:C.f",))
    assert RECORDED in told(content)


@pytest.mark.parametrize(
    "files",
    [
        *(
            "src/a.py\uff1a\u89e3\u6790",
            "src/a.py\uff08\u89e3\u6790\uff09",
            "1\uff0esrc/a.py",
            "\u25e6 src/a.py",
            "\U0001f4c4 src/a.py",
        ),
        *("src/a.py\u3001src/a.py", "src/a.py\uff0csrc/a.py", "src/a.py::C.f", '<file path="src/a.py"/>'),
        "<file>src/a.py</file><class>C.f</class>",
    ],
)
def test_signs_around_files(files: str) -> None:
    """They became a part of the path, which was then a wrong file."""
    answer = scored(f"<files>\n{files}\n</files>")
    assert answer is not None and answer.files == ("src/a.py",)


@pytest.mark.parametrize(
    "content",
    [
        '{"edits": [{"file": "src/a.py", "old_str": "a", "new_str": "b"}]}',
        *('{"answer": "The bug is in the parser."}', '{"answer": 42}', '{"result": ["yes"]}'),
        f"I shall call {IN} with {ARGUMENTS} when I am sure.",
        "Known so far:\n\n| File | Why |\n|---|---|\n| src/a.py | parses |\n",
        fence("<project>", "<file>src/a.py</file>", "text", "</project>", language="xml"),
        "<thinking>Perhaps <files>src/c.py</files></thinking>I look.",
    ],
)
def test_what_todays_policies_say_on_the_way(content: str) -> None:
    assert scored(content) is None


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ("<files>\nsrc/a.py\n</files>", ""),
        ("So:\n<files>src/a.py</files><|im_end|>", ""),
        ("<file-list>['src/a.py']</file-list>", ""),
        ('{"role": "assistant", "content": "<files>src/a.py</files>", "tool_calls": []}', ""),
        ("<think>first</think><files>src/a.py</files>", ""),
        ("<files>src/a.py</files>\nor rather <files></files>", ""),
        ("<answer>src/a.py</answer>", ""),
        ("<answer>\nsrc/a.py\n</answer>", ""),
        ('<answer>["src/a.py"]</answer>', ""),
        ("<answer>['src/a.py']</answer>", ""),
        ("<answer>[('src/a.py', (3, 4))]</answer>", "3-4"),
        (f"<answer>{fence('src/a.py', 'function: f')}</answer>", "f"),
        (fence("src/a.py", "function: f"), "f"),
        (fence("src/a.py", "function: f") + "<|im_end|>", "f"),
        (fence("# where it is parsed", "src/a.py", "function: f"), "f"),
        (fence("It is here:", "src/a.py", "function: f"), "f"),
        (fence("It is here:", "src/a.py", "function: f", language="python"), "f"),
        (fence("src/a.py", "function: f") + "\nThe fix:\n" + fence("def f():", "    return 1", language="python"), "f"),
        (fence("src/a.py", "function: f") + "\nThe fix:\n" + fence("x = f(1)"), "f"),
        (fence("src/a.py", "function: f") + "\n" + fence(), "f"),
        (fence("src/a.py", "functions: f"), "f"),
        (fence("src/a.py", "functions: f, g(a, b)"), "f g"),
        (fence("src/a.py", "classes: A, B"), "A B"),
        (fence("src/a.py", "lines: 10, 12"), "10-10 12-12"),
        (fence("src/a.py", "lines: 3-5, 9"), "3-5 9-9"),
        (fence("src/a.py:L10"), "10-10"),
        ("<files>\nsrc/a.py:L10-L12\n</files>", "10-12"),
        ("<files>src/a.py#L7</files>", "7-7"),
        (call("result", {"file_paths": ["src/a.py:10"]}), "10-10"),
        (call("localization_finish", {"locations": [{"file": "src/a.py#L3-L4"}]}), "3-4"),
        (fence("src/a.py#L10-L12"), "10-12"),
        (fence("src/a.py:10-12 (the parser)"), "10-12"),
        (fence("src/a.py#L10: the parser"), "10-10"),
        (fence("src/a.py line 10"), "10-10"),
        (fence("- `src/a.py`, lines 3-5 and 9 (the parser)"), "3-5 9-9"),
        (fence("src/a.py: lines 3 to 5", "function: f"), "3-5 f"),
        (fence("src/a.py (L10)"), "10-10"),
        (fence("File: src/a.py, line 10"), "10-10"),
        ("<files>\n- src/a.py, lines 3-5\n</files>", "3-5"),
        ("<files>\nsrc/a.py - the parser\n</files>", ""),
        ("<files>\n- `src/a.py` \u2014 the parser\n</files>", ""),
        ("<files>\n1. src/a.py (the parser)\n</files>", ""),
        ("<files>\nsrc/a.py: the parser\n</files>", ""),
        ("<files>\nsrc/a.py::f\n</files>", ""),
        ("<files>\n- [x] src/a.py\n</files>", ""),
        ("<files>\n\ufeff\u201csrc/a.py\u201d\u200b\n</files>", ""),
        (call("result", {"file_paths": ["src/a.py - the parser"]}), ""),
        (call("result", {"file_paths": ["src/a.py line 10"]}), "10-10"),
        ("**src/a.py** line 10", "10-10"),
        ("[a.py](src/a.py#L10-L12)", "10-12"),
        ("- [`a.py`](./src/a.py) line 10 - the parser", "10-10"),
        (fence("[src/a.py:10](src/a.py)", "function: f"), "10-10 f"),
        (fence("[src/a.py](https://example.org/o/r/blob/main/src/a.py)"), ""),
        (fence("File: [a.py](src/a.py)"), ""),
        ("<files>\n[a.py](src/a.py#L10)\n</files>", "10-10"),
        ("<files>[a.py](src/a.py), [a.py](src/a.py#L3)</files>", "3-3"),
        ('<files>["[a.py](src/a.py#L10)"]</files>', "10-10"),
        ("<answer>[a.py](src/a.py)</answer>", ""),
        (call("localization_finish", {"locations": [{"file": "[a.py](src/a.py)"}]}), ""),
        ("## Affected files\n\n- src/a.py", ""),
        ("### Files to change\nsrc/a.py:L10", "10-10"),
        ("Files:\n- src/a.py", ""),
        ("## Location\n\n### 1. `src/a.py`\n\n- class: C\n- function: f", "C C.f"),
        ("<files>\n## Files\n### src/a.py\n</files>", ""),
        (fence("## src/a.py", "function: f"), "f"),
        (fence("src/a.py (the parser)", "function: f"), "f"),
        (fence("src/a.py - the parser", "function: f"), "f"),
        (fence("src/a.py: the parser", "function: f"), "f"),
        (fence("**src/a.py**", "**Function**: f"), "f"),
        (fence("files: src/a.py"), ""),
        (fence("1. src/a.py", "2) class: C", "3. function: f"), "C C.f"),
        (fence("- file: src/a.py", "  class: C", "  function: f", language="yaml"), "C C.f"),
        (fence("src/a.py", "class: Outer", "function: Inner.f"), "Outer Outer.Inner Outer.Inner.f"),
        ("Here:\n" + fence('[{"file": "src/a.py", "function": "f"}]', language="json"), "f"),
        (fence("src/a.py").replace("```", "~~~"), ""),
        (call("localization_finish", {"locations": [{"file": "src/a.py", "function_name": "f"}]}), "f"),
        (call("result", {"file_paths": ["src/a.py"]}), ""),
        (call("finish", {"locations": [{"file": "src/a.py"}]}), ""),
        (call("finish", {"message": fence("src/a.py", "function: f")}), "f"),
        (call("bash", {"command": "ls"}) + call("finish", {"message": "<files>src/a.py</files>"}), ""),
    ],
)
def test_an_answer_is_recorded_and_scored(content: str, names: str) -> None:
    """A correct answer scores nothing because of its format, although the policy was told that it counts."""
    answer = scored(content)
    assert answer is not None and answer.files == ("src/a.py",)
    spans = [f"{first}-{last}" for first, last in answer.lines.get("src/a.py", ())]
    found = {name.partition(":")[2] for name in (*answer.modules, *answer.entities)}
    assert {*found, *spans} == set(names.split())
    assert RECORDED in told(content)


@pytest.mark.parametrize("more", ["", call("bash", {"command": "ls"})])
@pytest.mark.parametrize("tool", ["localization_finish", "result", "finish"])
def test_where_a_patch_is_asked_for_nothing_is_recorded(tool: str, more: str) -> None:
    """The policy was told that its answer is recorded, and no answer is ever read there."""
    task = TASK.model_copy(update={"localization": None})
    content = more + call(tool, {"locations": [{"file": "src/a.py"}]})
    parsed = DIALECT.parse(content, talk_turns=0)
    assert may_answer(parsed, task)
    said = told(content, task)
    assert OVER in said and RECORDED not in said
    ended = answer_reply(parsed, content, task)
    assert not isinstance(ended, Say) or ended.code == "finish"
    assert scored(content, task) is None


def test_git_quotes_paths() -> None:
    for lines in ("", ":L10"):
        answer = scored(fence(f'"src/caf\\303\\251.py"{lines}'))
        assert answer is not None and answer.files == ("src/café.py",)


@pytest.mark.parametrize(
    "content",
    [
        "I think it is in src/a.py.",
        fence("cat src/a.py"),
        fence("$ cat src/a.py"),
        fence("ls src/a.py", language="bash"),
        fence("src/a.py:10:    def f():", "src/a.py:12:    return"),
        fence("from src import a", "a.f()", language="python"),
        fence("import os", "os.path", language="python"),
        fence(" M src/a.py"),
        "The bug is in src/a.py line 10.",
        "src/a.py line 10 is wrong",
        fence("src/a.sh: line 10: foo: command not found"),
        fence('File "src/a.py", line 10, in f'),
        fence("src/a.py:10: AssertionError"),
        fence("src/a.py, line 10: f(1)"),
        "See [a.py](src/a.py#L10).",
        "[the documentation](https://example.org/src/a.py)",
        "## Next\n\n- src/a.py",
        "## Not affected\n- src/a.py",
        "## Files\n\nI shall look at src/a.py first.",
        fence("# src/a.py", "def f():", "    return 1", language="python"),
        fence("## src/a.py", "def f():", "    return 1", language="python"),
        "",
    ],
)
def test_what_is_no_answer_is_not_recorded(content: str) -> None:
    """A policy that quotes or thinks aloud ends its rollout."""
    assert scored(content) is None
    assert told(content).startswith("Call a tool")


def test_tags_around_prose_are_told() -> None:
    assert told("<answer>It is in the parser.</answer>").startswith("Error: no answer could be read there")


@pytest.mark.parametrize("arguments", [{}, {"message": "It is in the parser."}])
@pytest.mark.parametrize("before", ["", call("bash", {"command": "ls"})])
def test_an_end_without_an_answer_is_told(arguments: object, before: str) -> None:
    """The policy is told that its answer counts, but it is graded as if it gave none."""
    content = before + call("finish", arguments)
    assert scored(content) is None
    assert told(content).count("Error: no answer could be read there") == 1
    assert "<files>" in told(content)
    if before:
        parsed = answer_reply(DIALECT.parse(content, talk_turns=0), content, TASK)
        assert isinstance(parsed, Call) and parsed.arguments["calls"][0] == Command("ls")  # type: ignore[index]


def test_what_could_not_be_read_is_told() -> None:
    assert told(fence("It is here:", "src/a.py")) == (
        f"{RECORDED} Left out, as it could not be read: no location: It is here:."
    )


def test_a_task_that_names_its_format() -> None:
    assert TASK.localization is not None
    strict = TASK.model_copy(update={"localization": TASK.localization.model_copy(update={"answer": "files"})})
    assert told("<files>src/a.py</files>", strict) == RECORDED
    assert "format `files` only" in told(call("finish", {"message": fence("src/a.py")}), strict)


def test_other_tasks_have_no_answer() -> None:
    plain = TASK.model_copy(update={"localization": None})
    assert told("<files>src/a.py</files>", plain).startswith("The interaction is over.")
    assert told(fence("src/a.py"), plain).startswith("Call a tool")


@given(st.lists(PIECES | st.sampled_from([call("bash", {"command": "ls"}), call("finish", {})]), max_size=20))
def test_recorded_means_scored(pieces: list[str]) -> None:
    """Two recognisers that disagree."""
    content = "".join(pieces)
    assert (RECORDED in told(content)) <= (scored(content) is not None)
    if isinstance(DIALECT.parse(content, talk_turns=0), Say):
        assert (RECORDED in told(content)) == (scored(content) is not None)
