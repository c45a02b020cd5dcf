"""What a policy may write in place of an answer: any text and any value is read, in linear time."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_server.grading.localization.answers import FORMATS, parse_answer, structured_answer
from sandbox_server.grading.localization.paths import entries

ROOTS = ("/testbed", "/workspace/a__b__1.0")

PIECES = st.sampled_from(
    [
        *("<files>", "</files>", "<file-list>", "</file-list>", "<answer>", "</answer>", "<think>", "</think>"),
        *("```", "```json", "\n", "src/a.py", "class:", "function:", "method: C.f", "lines: 3-1", "- ", "'", '"', "`"),
        *("[", "]", "(", ")", "{", "}", ",", ":", "..", "/", "\\", "\0", "\ud800", "<tool_call>", "</tool_call>"),
        *(
            '{"name": "localization_finish", "arguments": ',
            "<function=result>",
            "<parameter=x>",
            "</parameter>",
            "9" * 40,
        ),
    ]
)


@given(st.lists(PIECES | st.text(max_size=8), max_size=40).map("".join), st.sampled_from(FORMATS))
def test_any_text_can_be_read(text: str, written: str) -> None:
    answer = parse_answer(text, written=written, roots=ROOTS)
    if answer is not None:
        assert all(path and not path.startswith(("/", "./")) for path in answer.files)
        # a name may contain a colon, as in a.py:x:y
        assert all(any(name.startswith(f"{file}:") for file in answer.files) for name in answer.modules)
        assert all(1 <= first <= last for spans in answer.lines.values() for first, last in spans)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
        lambda inner: (
            st.lists(inner, max_size=5)
            | st.dictionaries(
                st.sampled_from(["file", "locations", "function_name", "class_name", "lines", "x"]), inner
            )
        ),
    )
)
def test_any_value_can_be_read(value: object) -> None:
    assert structured_answer(value).format == "structured"


@pytest.mark.parametrize(
    "piece",
    [
        *("<files>", "</files>", "<answer>", "<think>", "<tool_call>", "<function=result>", "<parameter=", "```\n"),
        *(
            "[",
            "('",
            '("a"',
            "(('a',(1,",
            "<tool_call>[",
            "src/a.py,",
            "a.py:",
            "\n-",
            "**",
            "class: a\n",
            '"',
            "/",
            "{",
        ),
        *("<files>\nsrc/a.py\n</files>\n", "src/a.py\nfunction: f\n", "<function=result><parameter=a>", "('a',(1,1))"),
        *("Aa", "Aa.", "Aa.a ", "a.py line 1, ", "[a](b) ", "- a.py ", " ", ".a", "a.py  and", "-|"),
        *('"result":[', "\nlocalization_finish\n", "|file|\n|a.py|\n", ",]", '<a file="'),
        *("\nanswer: [", "\nfinish(files=[", "'\\", "\\boxed{"),
        *("https://a/b/", "\nhttps://a/b/c/blob/", "{a: ", "a   ", "\nfinish({a: ", "\n```\n{\n```\n"),
    ],
)
def test_linear_time(piece: str) -> None:
    """Text 16 times as long may take about 16 times as long, not 256 times."""

    def seconds(size: int) -> float:
        text = (piece * size)[: size * 8]
        inside = [
            text,
            f"## src/a.py\n{text}",
            f"<files>{text}</files>",
            f"<files>|{text}x</files>",
            f"<answer>{text}</answer>",
            f"```\n{text}\n```",
            f"[{text}]",
        ]
        began = time.process_time()
        for written in FORMATS:
            for content in inside:
                parse_answer(content, written=written)
        return time.process_time() - began

    few, many = seconds(250), seconds(4_000)
    for _ in range(2):  # other work on the machine may have slowed one of them
        if many < 60 * max(few, 0.002):
            break
        few, many = min(few, seconds(250)), min(many, seconds(4_000))
    assert many < 60 * max(few, 0.002)


@pytest.mark.parametrize("deep", [3, 900])
def test_wrapped_many_times(deep: int) -> None:
    """An answer in an answer in an answer ends the server's recursion."""
    assert parse_answer('{"answer": ' * deep + '["a.py"]' + "}" * deep) is None


def test_tags_are_read_one_at_a_time() -> None:
    """One call that split 12 MB of tags held up all other threads of the server for 0.3 s of CPU."""
    body = "<li>a.py" + "<a>" * 4_000_000
    began = time.thread_time()
    assert next(entries(body)) == "a.py"
    assert time.thread_time() - began < 0.1  # 0.008 s; 0.3 s for the whole line
    assert list(entries("<li>a.py</li><li>b.py</li>")) == ["a.py", "b.py"]
