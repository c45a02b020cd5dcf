"""Parsing of answers. Numbers refer to the published cases (groups B, C and D)."""

import json

import pytest

from sandbox_server.catalogue.localization.truth import Truth
from sandbox_server.grading.localization.answers import parse_answer, structured_answer
from sandbox_server.grading.localization.measures import LEVELS, level_f_beta
from sandbox_server.verdicts import Answer

AB = Truth(files=("src/a.py", "src/b.py"))
DEEP = Truth(
    files=("src/a.py", "src/b.py"),
    modules=("src/a.py:Foo", "src/b.py:baz"),
    entities=("src/a.py:Foo.bar", "src/b.py:baz"),
)
ROOTS = ("/testbed", "/workspace/a__b__1.0")


def file_f1(text: str, truth: Truth = AB) -> float:
    return level_f_beta(parse_answer(text, written="files", roots=ROOTS), truth, "file")


def files(*lines: str) -> str:
    return "I looked around.\n<files>\n" + "\n".join(lines) + "\n</files>"


@pytest.mark.parametrize(
    ("case", "answer", "expected"),
    [
        (14, files("src/a.py", "src/b.py"), 1.0),
        (15, files('["src/a.py","src/b.py"]'), 1.0),
        (16, files("['src/a.py','src/b.py']"), 1.0),
        (17, files("- src/a.py", "- src/b.py"), 1.0),
        (18, files("/src/a.py", "src/b.py"), 1.0),
        (18, files("/testbed/src/a.py", "/workspace/a__b__1.0/src/b.py"), 1.0),
        (19, files("././src/a.py", "src/b.py"), 1.0),
        (21, files("src/a.py", "src/a.py", "src/b.py"), 1.0),
        (22, files("src/a.py"), 2 / 3),
        (23, files("src/a.py", "src/b.py", "src/c.py", "src/d.py"), 2 / 3),
        (25, files("src/c.py") + "\nno:\n" + files("src/a.py", "src/b.py"), 1.0),
        (28, "<files></files>", 0.0),
        (28, "<files>src/a.py", 0.0),
        (28, "src/a.py and src/b.py", 0.0),
        (28, "<files>[1,2]</files>", 0.0),
    ],
)
def test_files(case: int, answer: str, expected: float) -> None:
    assert file_f1(answer) == pytest.approx(expected), case
    assert level_f_beta(parse_answer(answer, roots=ROOTS), AB, "file") == pytest.approx(expected), (case, "auto")


def test_case_29_the_documented_example() -> None:
    truth = Truth(files=("src/login.py", "src/password.py", "src/session.py"))
    assert file_f1(files("src/login.py", "src/password.py", "src/helper.py"), truth) == pytest.approx(2 / 3)


def test_case_30_a_file_that_the_patch_creates_is_neutral() -> None:
    truth = Truth(files=("src/a.py",), added_files=("src/new.py",))
    assert file_f1(files("src/a.py"), truth) == 1.0
    assert file_f1(files("src/a.py", "src/new.py"), truth) == 1.0
    assert file_f1(files("src/new.py"), truth) == 0.0


def test_case_31_nothing_to_find() -> None:
    assert file_f1("<files></files>", Truth()) == 1.0
    assert file_f1(files("src/a.py"), Truth()) == 0.0
    assert level_f_beta(parse_answer("<files></files>"), Truth(), "file", empty=0.0) == 0.0
    assert file_f1("no answer", Truth()) == 0.0


@pytest.mark.parametrize(
    "written",
    [
        '"src/a.py", "src/b.py"',
        "src/a.py, src/b.py,",
        "src/a.py and src/b.py",
        "src/a.py; src/b.py",
        "src/a.py\tsrc/b.py",
        "src/a.py | src/b.py",
        "src/a.py - calls src/c.py too\nsrc/b.py (see below)",
        "1. `src/a.py`\n2. `src/b.py` - where it is called",
        "* **src/a.py**\n* src//b.py",
        "<file>src/a.py</file>\n<file>src/b.py</file>",
        "src/a.py:10\nsrc/b.py:3-9",
        "```\nsrc/a.py\nsrc/b.py\n```",
        '[\n  "src/a.py",\n  "src/b.py",\n]',
        "[src/a.py, src/b.py]",
        "src/x/../a.py\nsrc/./b.py",
        "src/a.py src/b.py",
        "src/a.py\u00a0src/b.py",
        "| File | Why |\n|---|---|\n| src/a.py | parses |\n| `src/b.py` | is called |",
        "| # | File |\n|:-:|:--|\n| 1 | src/a.py |\n| 2 | src/b.py |",
        "| File |\n|---|\n| src/a.py |\n| src/b.py |",
        "| src/a.py | src/b.py |",
        "<ul><li>src/a.py</li><li>src/b.py</li></ul>",
        "<ul>\n<li>src/a.py</li>\n<li>src/b.py</li>\n</ul>",
        "src/a.py<br>src/b.py<br/>",
        "Answer: src/a.py, src/b.py",
        "File 1: src/a.py\nFile 2: `src/b.py`",
        "files:\n  - src/a.py\n  - src/b.py",
        "src/a.py\nclass: Foo\nfunction: bar\n\nsrc/b.py",
        "src/a.py:Foo.bar\nsrc/b.py:baz(a, b)",
        "- **src/a.py**: parses\n- **`src/b.py`** \u2014 is called",
        "\u2192 src/a.py -> parses\n> src/b.py // is called",
        "(1) src/a.py\nb) src/b.py",
        '{"files": ["src/a.py", "src/b.py"]}',
        '[{"file": "src/a.py"}, {"path": "src/b.py"}]',
        "src/a.py\r\nsrc/b.py\r",
    ],
)
def test_other_ways_to_write_a_list_of_files(written: str) -> None:
    assert file_f1(files(written)) == 1.0


@pytest.mark.parametrize(
    "name",
    [
        *("lib b/x.py", "données/carte (français).txt", "pages/[slug]/a.tsx", "Makefile", ".env"),
        *("v1.0 - notes.txt", "a.b (copy).py", "this and that.md", "a;b", "l\u2019eau.md"),
        *("docs/my file.py", "(group)/page.tsx", "answers/files.py", "a.py.orig", "C.py", "@types/t.d.ts"),
    ],
)
def test_names_with_odd_signs_are_kept(name: str) -> None:
    assert parse_answer(files(name), written="files") == Answer("files", (name,))


@pytest.mark.parametrize(
    "answer",
    [
        *("<answer>src/a.py src/b.py</answer>", "<answer><ul><li>src/a.py</li><li>src/b.py</li></ul></answer>"),
        "<answer>\n| File | Why |\n|---|---|\n| src/a.py | parses |\n| src/b.py | is called |\n</answer>",
        *("Answer: src/a.py, src/b.py", "**Answer:** `src/a.py`, `src/b.py`", "Final answer:\nsrc/a.py\nsrc/b.py"),
    ],
)
def test_other_ways_to_answer(answer: str) -> None:
    assert level_f_beta(parse_answer(answer, roots=ROOTS), AB, "file") == 1.0


@pytest.mark.parametrize(
    "said",
    [
        '{"file_path": "src/a.py", "function_name": "Foo.bar"}',
        '```json\n{"file": "src/a.py", "class": "Foo", "functions": ["bar"]}\n```',
        '```json\n{"src/a.py": ["Foo.bar"]}\n```',
        '```json\n{"files": {"src/a.py": "Foo.bar"}}\n```',
    ],
)
def test_data_is_read_in_each_shape(said: str) -> None:
    """One location alone, functions as a list, functions by path: recorded or not, each was scored 0."""
    answer = parse_answer(said, roots=ROOTS)
    assert answer is not None and answer.format == "structured"
    assert (answer.files, answer.entities) == (("src/a.py",), ("src/a.py:Foo.bar",))


@pytest.mark.parametrize(
    "said",
    [
        *('{"path": "src/a.py", "command": "view"}', '{"a": ["b"]}', "{}", '{"config": {"src/a.py": []}}'),
        *('{"@types/node": "^20"}', '```json\n{"http://a/b.py": 1}\n```'),
    ],
)
def test_other_data_is_no_answer(said: str) -> None:
    """Arguments of another tool, printed as text, would end the rollout."""
    assert parse_answer(said, roots=ROOTS) is None


def test_lines_of_one_text_are_paths() -> None:
    """`result` with a text in place of the list."""
    answer = structured_answer({"file_paths": "src/a.py\nsrc/b.py\n"})
    assert answer.files == ("src/a.py", "src/b.py")


@pytest.mark.parametrize(
    "locations",
    ["src/a.py:Foo.bar, src/b.py", ["src/a.py::Foo.bar", "src/b.py"], '["src/a.py:Foo.bar", "src/b.py"]'],
)
def test_places_as_texts(locations: object) -> None:
    """TRL gives a tool what the policy wrote: a text where a list was asked for was read letter by letter."""
    answer = structured_answer({"locations": locations})
    assert (answer.files, answer.entities) == (("src/a.py", "src/b.py"), ("src/a.py:Foo.bar",))
    lines = structured_answer({"locations": ["src/a.py:3-9"]})
    assert (lines.entities, lines.lines) == ((), {"src/a.py": ((3, 9),)})


@pytest.mark.parametrize("body", ["src/a.py:\nsrc/b.py:", "**\nsrc/a.py\nsrc/b.py\n**"])
def test_marks_around_paths(body: str) -> None:
    """A colon behind a path, or the marks of a bold tag."""
    assert file_f1(f"<files>\n{body}\n</files>") == 1.0


@pytest.mark.parametrize(
    "said",
    [
        *("Answer: done", "Answer: the bug is in src/a.py", "Answer: 42", "Answer:", "Answer: Foo.bar or so"),
        *("<answer>42</answer>", "<answer>The bug is in src/a.py</answer>", "| File | Why |\n|---|---|"),
    ],
)
def test_talk_is_no_answer(said: str) -> None:
    """A rollout would end, with nothing that can score."""
    assert parse_answer(said, roots=ROOTS) is None


@pytest.mark.parametrize(
    "written",
    [
        *("src/*.py", "src/?.py", "src/[ab].py", "src/{a,b}.py", "src/", "src", ".", "/", "**", "*", "| * |"),
        *("../src/a.py\n../src/b.py", "SRC/A.py\nSRC/B.py", "src/\uff41.py", "src/\u0430.py", "other/src/a.py"),
        *("src/a.pyc", "a.py\nb.py", "src/x\\a.py", "src/a", "src/a .py"),
    ],
)
def test_what_names_no_file_earns_nothing(written: str) -> None:
    """Patterns, folders, look-alikes and paths of other trees."""
    assert file_f1(files(written)) == 0.0


def test_thoughts_answer_nothing() -> None:
    thought = f"<think>perhaps {files('src/c.py')}</think>"
    assert parse_answer(thought) is None
    assert file_f1(thought + files("src/a.py", "src/b.py")) == 1.0
    assert parse_answer(f"<think>perhaps {files('src/c.py')}") is None


def test_file_list_tags() -> None:
    for body in ("['src/a.py','src/b.py']", "src/a.py\nsrc/b.py"):
        answer = parse_answer(f"<file-list>{body}</file-list>")
        assert answer == Answer("file_list", ("src/a.py", "src/b.py"))
    assert parse_answer("<file-list>", written="file_list") is None


# ---- C: fenced text and data


def fenced(*lines: str) -> str:
    return "```\n" + "\n".join(lines) + "\n```"


def levels(answer: Answer | None, truth: Truth = DEEP) -> list[float]:
    return [level_f_beta(answer, truth, level) for level in LEVELS]


FULL = fenced("src/a.py", "class: Foo", "function: bar", "", "src/b.py", "function: baz")


@pytest.mark.parametrize(
    ("case", "answer", "expected"),
    [
        (32, FULL, [1, 1, 1]),
        (32, fenced("src/a.py", "method: Foo.bar", "src/b.py", "function: baz"), [1, 1, 1]),
        (33, fenced("src/a.py", "src/b.py"), [1, 0, 0]),
        (34, fenced("src/a.py", "class: Foo", "function: bar"), [2 / 3, 2 / 3, 2 / 3]),
        (35, FULL.replace("src/a.py", "./src/a.py"), [1, 1, 1]),
        (36, FULL.replace("function: baz", "function: baz(a, b)"), [1, 1, 1]),
        (36, FULL.replace("function: baz", "function: def baz(a, b):"), [1, 1, 1]),
        (
            38,
            fenced("src/a.py", "function:", "class: Foo", "function: bar", "", "src/b.py", "function: baz"),
            [1, 1, 1],
        ),
    ],
)
def test_fenced(case: int, answer: str, expected: list[float]) -> None:
    assert levels(parse_answer(answer, written="fenced")) == pytest.approx(expected), case
    if case != 38:  # a line that names nothing: only a named format is read so leniently
        assert levels(parse_answer(answer)) == pytest.approx(expected), (case, "auto")


LOCATIONS = [
    {"file": "src/a.py", "class_name": "Foo", "function_name": "bar"},
    {"file": "src/b.py", "function_name": "baz"},
]


@pytest.mark.parametrize(
    ("case", "locations", "expected"),
    [
        (32, LOCATIONS, [1, 1, 1]),
        (33, [{"file": "src/a.py"}, {"file": "src/b.py"}], [1, 0, 0]),
        (34, LOCATIONS[:1], [2 / 3, 2 / 3, 2 / 3]),
        (35, [{**LOCATIONS[0], "file": "./src/a.py"}, LOCATIONS[1]], [1, 1, 1]),
        (36, [LOCATIONS[0], {"file": "src/b.py", "function_name": "baz(a, b)"}], [1, 1, 1]),
        (38, [*LOCATIONS, {"file": "src/b.py", "function_name": ""}], [1, 1, 1]),
    ],
)
def test_structured(case: int, locations: list[dict[str, str]], expected: list[float]) -> None:
    arguments = {"locations": locations}
    call = {"name": "localization_finish", "arguments": arguments}
    written = [
        f"<tool_call>\n{json.dumps(call)}\n</tool_call>",
        f"<tool_call>{json.dumps({**call, 'arguments': json.dumps(arguments)})}</tool_call>",
        f"<function=localization_finish>\n<parameter=locations>{json.dumps(locations)}</parameter>\n</function>",
        json.dumps(locations),
        f"```json\n{json.dumps(arguments)}\n```",
    ]
    for answer in [structured_answer(arguments), *map(parse_answer, written)]:
        assert answer is not None and answer.format == "structured"
        assert levels(answer) == pytest.approx(expected), case


def test_case_40_constructors_keep_their_name() -> None:
    truth = Truth(files=("src/a.py",), modules=("src/a.py:Foo",), entities=("src/a.py:Foo.__init__",))
    for answer in (
        parse_answer(fenced("src/a.py", "class: Foo", "function: __init__")),
        structured_answer([{"file": "src/a.py", "class_name": "Foo", "function_name": "__init__"}]),
    ):
        assert levels(answer, truth) == [1, 1, 1]


def test_a_class_alone_is_a_module() -> None:
    answer = parse_answer(fenced("src/a.py", "class: Foo"))
    assert answer == Answer("fenced", ("src/a.py",), ("src/a.py:Foo",))


def test_a_dotted_name_below_a_heading_is_a_method() -> None:
    """`Foo.bar` is counted as a file that does not exist."""
    found = parse_answer("```\n## src/a.py\n- `Foo.bar()`\n- Foo.Inner.baz (a remark)\n- Pipfile.lock\n```")
    assert found is not None and found.files == ("src/a.py", "Pipfile.lock") and not found.problems
    assert found.entities == ("src/a.py:Foo.bar", "src/a.py:Foo.Inner.baz")
    alone = parse_answer("```\nsrc/a.py\nFoo.bar\n```")
    assert alone is not None and alone.files == ("src/a.py", "Foo.bar")


def test_a_class_ends_at_a_blank_line_and_at_the_next_file() -> None:
    answer = parse_answer(fenced("src/a.py", "class: Foo", "", "function: f", "class: Bar", "src/b.py", "function: g"))
    assert answer is not None
    assert answer.entities == ("src/a.py:f", "src/b.py:g")


@pytest.mark.parametrize(
    "text",
    [
        "```bash\nls src/a.py\n```",
        "```\ncat src/a.py\n```",
        "I think it is src/a.py.",
        "```python\nimport src.a\n```",
        "",
    ],
)
def test_commands_and_prose_are_no_answer(text: str) -> None:
    """A policy that thinks aloud, or runs a command, has not answered."""
    assert parse_answer(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "```src/a.py\nclass: Foo\nfunction: bar```",
        "```src/a.py\nfunction: Foo.bar\n```",
        "The bug is in one place.\n\nsrc/a.py\nclass: Foo\nfunction: bar",
        "File path: `src/a.py`\nClass name: Foo\nFunction name: bar",
        "**File path:** src/a.py\n**Method name:** Foo.bar\n\nIt rounds too early.",
    ],
)
def test_lines_with_labels_answer_in_any_place(text: str) -> None:
    """Fences that share a line with the answer, and prose around it: a person would call each an answer."""
    answer = parse_answer(text)
    assert answer is not None, text
    assert (answer.files, answer.entities) == (("src/a.py",), ("src/a.py:Foo.bar",)), text


@pytest.mark.parametrize("text", ["```\nsrc/a.py -> parses\n```", "| File | Why |\n|---|---|\n| src/a.py | parses |"])
def test_a_remark_after_an_arrow_and_a_table_alone(text: str) -> None:
    answer = parse_answer(text)
    assert answer is not None and answer.files == ("src/a.py",), text


@pytest.mark.parametrize(
    "text",
    [
        "I look at src/a.py next.\nfunction: unclear so far",
        "class: Foo\nfunction: bar",
        "| File | Why |\n|---|---|\n| none so far | - |",
        "```src/a.py```py is a file",
    ],
)
def test_labels_without_a_file_are_no_answer(text: str) -> None:
    assert parse_answer(text) is None, text


def test_case_73_what_a_result_tool_may_be_given() -> None:
    truth = Truth(files=("src/a.py",), added_files=("src/new.py",))
    given_values: list[tuple[object, float]] = [
        (["src/a.py"], 1.0),
        (["src/a.py", "src/new.py"], 1.0),
        ([], 0.0),
        ("src/a.py", 1.0),
    ]
    for value, expected in given_values:
        assert level_f_beta(structured_answer({"file_paths": value}), truth, "file") == expected
        text = f"<tool_call>{json.dumps({'name': 'result', 'arguments': {'file_paths': value}})}</tool_call>"
        assert level_f_beta(parse_answer(text), truth, "file") == expected


# ---- any text


@pytest.mark.parametrize(
    ("text", "well_formed"),
    [
        (files("src/a.py"), True),
        (files("- `./src/a.py`,"), True),
        (FULL, True),
        ("Here:\n" + FULL, True),
        (FULL + "\n" + FULL, False),
        (files("src/a.py") + files("src/a.py"), False),
        ("<files></files>", False),
        ("```\nsrc/a.py", False),
        ("src/a.py", False),
    ],
)
def test_form(text: str, well_formed: bool) -> None:
    answer = parse_answer(text)
    assert answer is not None
    assert answer.well_formed is well_formed


def test_an_answer_is_bounded() -> None:
    answer = parse_answer(files(*(f"src/{number}.py" for number in range(20_000))))
    assert answer is not None
    assert len(answer.files) == 5_000 and "more than 5000" in answer.problems[0]


def test_an_unknown_format_is_told() -> None:
    with pytest.raises(ValueError, match="no answer format 'xml'; there are auto, files"):
        parse_answer("", written="xml")
