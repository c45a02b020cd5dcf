"""Forms of answers that come from other habits: calls and values of languages, LaTeX, CSV, JSON among prose, Windows.

Each was `no_answer`, or a file that does not exist, though a person would call it clear. Beside them what looks like
them and answers nothing.
"""

import pytest

from sandbox_server.grading.localization.answers import parse_answer

A, AB = ("src/a.py",), ("src/a.py", "src/b.py")
BAR = ("src/a.py:Foo.bar",)
ROOTS = ("/testbed",)
MAIN = "https://github.com/o/r/blob/main"
CODE = "The rounding is wrong:\n```python\ndef bar(self):\n    return round(self.x)\n```"
ROW = "{'file': 'src/a.py', 'class_name': 'Foo', 'function_name': 'bar'}"


@pytest.mark.parametrize(
    "said",
    [
        f"localization_finish(locations=[{ROW}])",
        f"The rounding is wrong.\n\n[localization_finish(locations=[{ROW}])]",
        f"```python\nlocalization_finish(\n    locations=[\n        {ROW},\n    ],\n)\n```",
        f"finish([{ROW}])",
        "localization_finish(file='src/a.py', function='Foo.bar')",
        "finish(locations=[{'file': 'src/a.py', 'class': None, 'function': 'Foo.bar'}], sure=True)",
        f"{{'locations': [{ROW}]}}",
        f"```python\n[{ROW}]\n```",
        f"<tool_call>{{'name': 'localization_finish', 'arguments': {{'locations': [{ROW}]}}}}</tool_call>",
        "\\boxed{src/a.py:Foo.bar}",
        '$\\boxed{{"locations": [{"file": "src/a.py", "function": "Foo.bar"}]}}$',
        "\\boxed{\nsrc/a.py\nclass: Foo\nfunction: bar\n}",
        "```csv\nfile,class,function,reason\nsrc/a.py,Foo,bar,it rounds too early\n```",
        "file_path,class_name,function_name\nsrc/a.py,Foo,bar",
        "```tsv\nfile\tfunction\nsrc/a.py\tFoo.bar\n```",
        "<answer>\nfile,function\nsrc/a.py,Foo.bar\n</answer>",
        "```yaml\n- file: src/a.py\n  class: Foo\n  functions:\n    - bar\n```",
        "src/a.py\nfunctions:\n- `Foo.bar`",
        '{"locations": [{"file": "src/a.py", "function": "Foo.bar"}]}',
        'It is here.\n\n{\n  "locations": [\n    {"file": "src/a.py",\n     "function": "Foo.bar"}\n  ]\n}\n\nYes.',
        f"My answer:\n[{ROW}]",
        "src\\a.py\nclass: Foo\nfunction: bar",
        "localization_finish({locations: [{file: 'src/a.py', class_name: 'Foo', function_name: 'bar'}]});",
        'await functions.finish({\n  files: [\n    // here\n    {file: "src/a.py", function: "Foo.bar"},\n  ],\n});',
        "```js\nfinish([{file: 'src/a.py', function: 'Foo.bar'}])\n```",
        "```json5\n{locations: [{file: 'src/a.py', function: 'Foo.bar'}]}\n```",
        f"{CODE}\nSo it is here:\n[{ROW}]",
        f'{{"locations": [{{"file": "src/a.py", "function": "Foo.bar"}}]}}\n\n{CODE}',
        f"```\n{MAIN}/src/a.py\nclass: Foo\nfunction: bar\n```",
        f"| File | Function |\n|---|---|\n| [a.py]({MAIN}/src/a.py) | Foo.bar |",
    ],
)
def test_one_function(said: str) -> None:
    answer = parse_answer(said, roots=ROOTS)
    assert answer is not None, said
    assert (answer.files, answer.entities, answer.problems) == (A, BAR, ()), said


@pytest.mark.parametrize(
    "said",
    [
        "finish(files=['src/a.py', 'src/b.py'])",
        "\\[\\boxed{\\texttt{src/a.py}, \\text{src/b.py}}\\]",
        '\\boxed{["src/a.py", "src/b.py"]}',
        '```csv\n"file","functions"\n"src/a.py","f, g"\nsrc/b.py,\n```',
        "<files>\nsrc\\a.py\n.\\src\\b.py\n</files>",
        '{"files": ["src\\\\a.py", "src/b.py"]}',
        "<files>\nfile:///testbed/src/a.py\nsrc/b.py\n</files>",
        'Answer: ["src/a.py", "src/b.py"]',
        '**Final answer:** {"files": ["src/a.py", "src/b.py"]}',
        "**Final answer**\n\n- `src/a.py`\n- `src/b.py`",
        '{"file": "src/a.py", "function": "f"}\n{"file": "src/b.py"}',
        '```jsonl\n{"file": "src/a.py"}\n{"file": "src/b.py"}\n```',
        'They are:\n{"file": "src/a.py"}\n{"file": "src/b.py"}',
        f"<files>\n{MAIN}/src/a.py#L3\nhttps://lab.example.org/g/s/r/-/blob/{'0a' * 20}/src/b.py\n</files>",
        f"- [the parser]({MAIN}/src/a.py)\n- [its caller]({MAIN}/src/b.py#L3-L9)",
        f'{{"files": ["{MAIN}/src/a.py", "src/b.py"]}}',
    ],
)
def test_two_files(said: str) -> None:
    answer = parse_answer(said, roots=ROOTS)
    assert answer is not None and answer.files == AB, said


@pytest.mark.parametrize(
    "said",
    [
        'finish(files=["src/b.py"])\nno:\nfinish(files=["src/a.py"])',
        "\\boxed{src/b.py} or rather \\boxed{src/a.py}",
        "<answer>src/b.py</answer> \\boxed{src/a.py}",
        '{"files": ["src/b.py"]}\nno, it is\n{"files": ["src/a.py"]}',
        '{"file": "src/b.py"}\nno, it is\n{"file": "src/a.py"}',
        "finish({files: ['src/b.py']})\nfinish({files: ['src/a.py']})",
        f'{{"file": "src/b.py"}}\n{CODE}\n{{"file": "src/a.py"}}',
    ],
)
def test_of_several_the_last_one_counts(said: str) -> None:
    """A policy would be scored by the best of its guesses, or by all of them."""
    answer = parse_answer(said, roots=ROOTS)
    assert answer is not None and answer.files == A, said


@pytest.mark.parametrize(
    "said",
    [
        'I could call finish(files=["src/a.py"]) now, but first I look.',
        'src/a.py:10: x = finish(files=["src/a.py"])',
        'def finish(files=["src/a.py"]):\n    pass',
        *('finish(message="The bug is in src/a.py")', 'finish(path="src/a.py", mode="w")'),
        *('finish(files=["src/a.py"]', 'finish(files=["src/a.py"] + more)', "finish(files=found)"),
        *("\\boxed{42}", "\\boxed{The bug is in src/a.py}", "<think>\\boxed{src/a.py}</think> so far", "\\boxed{"),
        "files, classes, functions\nI look at src/a.py next",
        'I run\n{"path": "src/a.py", "command": "view"}',
        'It says\n{"name": "x", "files": ["src/a.py"]}',
        'I look at these next:\n["src/a.py"]',
        'The option {"files": ["src/a.py"]} is read at the start.',
        '{"scripts": {\n"files": ["src/a.py"]}}',
        '{"a": [1,,\n  {"files": ["src/a.py"]}\n]}',
        '```bash\ncat > package.json <<E\n{"files": ["src/a.py"]}\nE\n```',
        *("function finish({files: ['src/a.py']}) {}", "// finish({files: ['src/a.py']})", "finish({files: found})"),
        *("this.finish({files: ['src/a.py']})", "finish({path: 'src/a.py', mode: 'w'})"),
        *(f'{CODE}\nI look at these next:\n["src/a.py"]', f'{CODE}\nIt says\n{{"name": "x", "files": ["src/a.py"]}}'),
        '{"files":\n```python\nx = 1\n```\n["src/a.py"]}',
        f"I read {MAIN}/src/a.py next.",
    ],
)
def test_what_only_looks_like_one(said: str) -> None:
    """A rollout would end by something that the policy has not given as its answer."""
    assert parse_answer(said, roots=ROOTS) is None, said


def test_a_web_address_whose_path_is_not_sure() -> None:
    """A branch `feature/x` would give `x/src/a.py`, a file that nobody named; the link's label is what is sure."""
    answer = parse_answer("- [src/a.py](https://github.com/o/r/blob/feature/x/src/a.py#L3)")
    assert answer is not None and (answer.files, answer.lines) == (A, {})


def test_lines_as_a_list() -> None:
    """As functions are."""
    answer = parse_answer("```\nsrc/a.py\nlines:\n- 3-9\n- 12\n```")
    assert answer is not None and (answer.lines, answer.problems) == ({"src/a.py": ((3, 9), (12, 12))}, ())


def test_a_call_in_a_command_is_no_answer() -> None:
    """What a policy writes into a file by a tool is the text of a command."""
    said = 'cat > x.py <<E\nfinish(files=["src/a.py"])\nE'
    assert parse_answer(said, acts=True) is None
    assert parse_answer(said) is not None
