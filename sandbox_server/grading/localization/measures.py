"""Measures for sets and spans: F-beta, intersection over union. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from sandbox_server.catalogue.localization.truth import Truth
from sandbox_server.verdicts import Answer

LEVELS = ("file", "module", "entity")

Spans = Sequence[tuple[int, int]]


def f_beta(found: Collection[str], truth: Collection[str], *, beta: float = 1.0, empty: float = 1.0) -> float:
    """(1 + b^2) P R / (b^2 P + R) of the sets, 0 to 1; 0 without a hit; `empty` if both are empty."""
    if not found and not truth:
        return empty
    hits = len(set(found) & set(truth))
    if not hits:
        return 0.0
    precision, recall = hits / len(set(found)), hits / len(set(truth))
    return (1 + beta**2) * precision * recall / (beta**2 * precision + recall)


def level_truth(truth: Truth, level: str) -> tuple[str, ...]:
    """The ground truth of a level; () if there is none."""
    of_level = {"file": truth.files, "module": truth.modules, "entity": truth.entities}[level]
    return of_level or ()


def level_found(answer: Answer, truth: Truth, level: str) -> tuple[str, ...]:
    """The answer at a level, without files that the patch creates, which nobody could have found."""
    of_level = {"file": answer.files, "module": answer.modules, "entity": answer.entities}[level]
    added = set(truth.added_files)
    return tuple(name for name in of_level if _path(name, level) not in added)


def level_f_beta(answer: Answer | None, truth: Truth, level: str, *, beta: float = 1.0, empty: float = 1.0) -> float:
    """F-beta at a level; 0 without an answer."""
    if answer is None:
        return 0.0
    return f_beta(level_found(answer, truth, level), level_truth(truth, level), beta=beta, empty=empty)


def line_iou(found: Mapping[str, Spans], truth: Mapping[str, Spans], *, empty: float = 1.0) -> float:
    """Lines in both over lines in either, 0 to 1, summed over files; overlapping spans count once.

    `empty` when there are none on either side.
    """
    common = either = 0
    for path in found.keys() | truth.keys():
        theirs, ours = merged(found.get(path, ())), merged(truth.get(path, ()))
        both = _overlap(theirs, ours)
        common += both
        either += _count(theirs) + _count(ours) - both
    return common / either if either else empty


def merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sorted, disjoint spans; reversed spans and spans before line 1 are dropped."""
    result: list[tuple[int, int]] = []
    for first, last in sorted(span for span in spans if 1 <= span[0] <= span[1]):
        if result and first <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(last, result[-1][1]))
        else:
            result.append((first, last))
    return result


def hunk_lines(truth: Truth) -> dict[str, list[tuple[int, int]]]:
    """The hunks' ranges as spans; an empty range after line n is (n, n + 1), as in `truth.lines`."""
    return {
        path: [(max(1, start), max(1, start) + (count - 1 if count else 1)) for start, count in ranges]
        for path, ranges in truth.hunks.items()
    }


def _path(name: str, level: str) -> str:
    return name if level == "file" else name.rpartition(":")[0]


def _count(spans: Spans) -> int:
    return sum(last - first + 1 for first, last in spans)


def _overlap(one: Spans, other: Spans) -> int:
    total = i = j = 0
    while i < len(one) and j < len(other):
        total += max(0, min(one[i][1], other[j][1]) - max(one[i][0], other[j][0]) + 1)
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return total
