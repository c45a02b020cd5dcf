"""Lines of an answer compared with those of the truth. Numbers are those of the published cases (group D)."""

import pytest

from sandbox_server.catalogue.localization.truth import RewardItem, Truth
from sandbox_server.grading.localization.answers import parse_answer, structured_answer
from sandbox_server.grading.localization.base import RewardContext
from sandbox_server.grading.localization.composition import compose
from sandbox_server.grading.localization.measures import line_iou, merged

TRUTH = Truth(files=("src/a.py",), lines={"src/a.py": ((10, 19),)}, hunks={"src/a.py": ((10, 7),)})


def iou(text: str, truth: Truth = TRUTH, /, **args: object) -> float:
    composition = compose([RewardItem(fn="line_localization_reward", args=args)], name="test")
    return composition.score(RewardContext(parse_answer(text), truth)).total


def spans(*found: tuple[str, tuple[int, int]]) -> str:
    return f"<answer>{list(found)!r}</answer>"


A = "src/a.py"


@pytest.mark.parametrize(
    ("case", "answer", "expected"),
    [
        (45, spans((A, (10, 19))), 1.0),
        (45, spans((A, (10, 14))), 0.5),
        (45, spans((A, (15, 24))), 1 / 3),
        (45, spans(("src/b.py", (10, 19))), 0.0),
        (46, spans((A, (10, 14)), (A, (12, 19))), 1.0),
        (47, spans((A, (10, 19)), ("zz", (5, 1))), 1.0),
        (47, spans((A, (10, 19)), (A, (5, 1))), 1.0),
        (51, "it is in src/a.py", 0.0),
        (51, "<answer></answer>", 0.0),
        (51, "<answer>[('src/a.py', (10, 19), 3)]</answer>", 0.0),
        (51, "<answer>[('src/a.py', 10, 19)]</answer>", 0.0),
    ],
)
def test_lines(case: int, answer: str, expected: float) -> None:
    assert iou(answer) == pytest.approx(expected), case


def test_case_49_an_exact_hunk() -> None:
    truth = Truth(files=(A,), lines={A: ((13, 13),)}, hunks={A: ((10, 7),)})
    assert iou(spans((A, (10, 16))), truth, truth="hunks") == 1.0
    assert iou(spans((A, (10, 16))), truth) == pytest.approx(1 / 7)


def test_an_insertion_lies_between_two_lines() -> None:
    truth = Truth(files=(A,), lines={A: ((4, 5),)}, hunks={A: ((4, 0),)})
    assert iou(spans((A, (4, 5))), truth) == iou(spans((A, (4, 5))), truth, truth="hunks") == 1.0


def test_lines_written_otherwise() -> None:
    assert iou(spans((f"/{A}", (10, 19)))) == 1.0
    assert iou('<answer>[["src/a.py", [10, 19]]]</answer>') == 1.0
    assert iou("```\nsrc/a.py\nlines: 10-19\n```") == 1.0
    assert iou("```\nsrc/a.py:10-19\n```") == 1.0
    by_tool = structured_answer({"line_paths": [["src/a.py", [10, 19]]]})
    assert line_iou(by_tool.lines, TRUTH.lines) == 1.0


def test_nothing_to_find() -> None:
    assert iou("<files></files>", Truth()) == 1.0
    assert iou("<files></files>", Truth(), empty=0.0) == 0.0
    assert iou("no answer", Truth()) == 0.0
    assert iou(spans((A, (1, 2))), Truth()) == 0.0


def test_spans_are_merged() -> None:
    assert merged([(5, 6), (1, 3), (4, 4), (9, 8), (0, 2)]) == [(1, 6)]
