"""How people write where something is: `a.py:10`, `a.py line 10`, `[a.py](src/a.py#L10)`, `## src/a.py`. Pure."""

import re
from collections.abc import Iterator

_NUMBERS = r"L?\d{1,9}(?:\s*(?:-|\u2013|to)\s*L?\d{1,9})?"
_LIST = rf"{_NUMBERS}(?:\s*(?:,|and|&)\s*{_NUMBERS}){{0,15}}"  # a bound: a search may begin at each of them
_WORDS = rf"(?:(?:at|on)\s+)?(?:(?i:lines?)\s+|L(?=\d)){_LIST}"
_MARKED = re.compile(r"(.*[^\s:#/])[:#](L?\d{1,9}(?:-L?\d{1,9})?)")
_WORDED = re.compile(rf"(.*[^\s:#/,(\[])(?:\s*[,:]\s*|\s+)([(\[])?({_WORDS})(?(2)[)\]])")
_BEHIND = re.compile(rf"\s*(?:[,:]\s*|[-\u2013\u2014]\s+)?([(\[])?({_WORDS})(?(1)[)\]])")
_ALONE = re.compile(_WORDS)
_SPAN = re.compile(_NUMBERS)
_LINK = re.compile(r"\[([^\[\]\n]*)\]\(<?([^()<>\s]+)>?(?:\s+\"[^\"\n]*\")?\)")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:|#", re.IGNORECASE)
_HEADING = re.compile(r"(#{1,6})\s+(.*)")
_TITLE = re.compile(
    r"an?|the|my|final|answers?|results?|locations?|locali[sz](?:ation|ed)|files?|paths?|class(?:es)?|functions?|methods?|"
    r"modules?|lines?|code|relevant|affected|modif(?:y|ied)|change[ds]?|edits?|fix(?:ed)?|buggy|faulty|identified|primary|"
    r"main|root|cause|bug|issue|to|be|that|which|needs?|needing|must|in|of|for|with|and|or|list"
)
"""Words of headings above an answer. `Not affected` and `Next` head something else."""


def split_lines(text: str) -> tuple[str, str]:
    """The path in `text`, and the lines behind it as they are written, "" for none: `a.py:10`, `a.py line 10`."""
    found = _MARKED.fullmatch(text)
    if found is not None:
        return found[1], found[2]
    worded = _WORDED.fullmatch(text)
    return (worded[1], worded[3]) if worded is not None else (text, "")


def lines_behind(text: str) -> tuple[str, str]:
    """What stands behind a path: its lines as words, "" for none, and the rest: ` lines 3-9 (why)`, `, line 4`."""
    found = _BEHIND.match(text)
    return ("", text) if found is None else (found[2], text[found.end() :])


def only_lines(text: str) -> bool:
    """Whether `text` is lines in words, without a path: `line 10`."""
    return _ALONE.fullmatch(text.strip()) is not None


def spans(text: str) -> Iterator[str]:
    """Each span of lines in words: `10`, `L3-L9`, `3 to 9`."""
    yield from (found[0] for found in _SPAN.finditer(text))


def links(text: str) -> list[str]:
    """The links of Markdown in `text`, whole."""
    return [found[0] for found in _LINK.finditer(text)]


def unlinked(text: str) -> str:
    """`text` with the location that a link at its beginning leads to; of one to a web page or a heading its label.

    `[a.py:10](src/a.py)` has the lines of its label: `src/a.py:10`.
    """
    link = _LINK.match(text)
    if link is None:
        return text
    label, target = link[1].strip().strip("`*"), link[2].removeprefix("file://")
    if _SCHEME.match(target):
        place = label
    else:
        _, said = split_lines(label)
        _, marked = split_lines(target)
        place = target if marked or not said else f"{target}:{next(spans(said)).replace(' ', '')}"
    return place + text[link.end() :]


def heading(line: str) -> tuple[int, str] | None:
    """The level of a heading and its text, "" if that is a title such as `Affected files`; None if it is no heading."""
    found = _HEADING.fullmatch(line.strip())
    if found is None:
        return None
    text = found[2].strip(" \t#:*")
    words = re.findall(r"[^\s,/&()]+", text.lower())
    return len(found[1]), "" if all(_TITLE.fullmatch(word) or word.strip(".)").isdigit() for word in words) else text
