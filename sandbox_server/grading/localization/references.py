"""Parses references to places in files: `a.py:10`, `a.py line 10`, `[a.py](src/a.py#L10)`, `## src/a.py`. Pure."""

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
_HOSTED = re.compile(r"https?://(?:[\w.-]+/){3,8}(?:blob|blame|raw)/(?:main|master|HEAD|[0-9a-f]{40})/")
"""The part before the path in the web address of a repository's file; only for branches whose names have no slash."""
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:|#", re.IGNORECASE)
_BOLD = re.compile(r"\*\*([^*\n]+)\*\*:?")
_HEADING = re.compile(r"(#{1,6})\s+(.*)")
_TITLE = re.compile(
    r"an?|the|my|final|answers?|results?|locations?|locali[sz](?:ation|ed)|files?|paths?|class(?:es)?|functions?|methods?|"
    r"modules?|lines?|code|relevant|affected|modif(?:y|ied)|change[ds]?|edits?|fix(?:ed)?|buggy|faulty|identified|primary|"
    r"main|root|cause|bug|issue|to|be|that|which|needs?|needing|must|in|of|for|with|and|or|list"
)
"""Words of titles above an answer. `Not` and `Next` are left out: titles with these stand above something else."""


def split_lines(text: str) -> tuple[str, str]:
    """Split `a.py:10` or `a.py line 10` into path and lines; the lines keep their spelling, "" for none."""
    found = _MARKED.fullmatch(text)
    if found is not None:
        return found[1], found[2]
    worded = _WORDED.fullmatch(text)
    return (worded[1], worded[3]) if worded is not None else (text, "")


def lines_behind(text: str) -> tuple[str, str]:
    """Split the text after a path, such as ` lines 3-9 (why)`, into its lines ("" for none) and the rest."""
    found = _BEHIND.match(text)
    return ("", text) if found is None else (found[2], text[found.end() :])


def only_lines(text: str) -> bool:
    """Whether `text` names lines only, such as `line 10`, without a path."""
    return _ALONE.fullmatch(text.strip()) is not None


def spans(text: str) -> Iterator[str]:
    """Yield each span of lines in `text`: `10`, `L3-L9`, `3 to 9`."""
    yield from (found[0] for found in _SPAN.finditer(text))


def links(text: str) -> list[str]:
    """The Markdown links in `text`, with their label and target."""
    return [found[0] for found in _LINK.finditer(text)]


def unlinked(text: str) -> str:
    """`text` with a Markdown link at its beginning replaced by its target, or by its label if the target is no file.

    Lines in the label are kept: `[a.py:10](src/a.py)` gives `src/a.py:10`. The web address of a repository's file is
    reduced to its path.
    """
    text = _in_repository(text)
    link = _LINK.match(text)
    if link is None:
        return text
    label, target = link[1].strip().strip("`*"), _in_repository(link[2].removeprefix("file://"))
    if _SCHEME.match(target):
        place = label
    else:
        _, said = split_lines(label)
        _, marked = split_lines(target)
        place = target if marked or not said else f"{target}:{next(spans(said)).replace(' ', '')}"
    return place + text[link.end() :]


def _in_repository(text: str) -> str:
    hosted = _HOSTED.match(text)
    return text if hosted is None else text[hosted.end() :]


def heading(line: str) -> tuple[int, str] | None:
    """(level, text) of a heading, with text "" for a title such as `Affected files`; None if `line` is no heading.

    A title in bold counts as a heading of level 2.
    """
    found = _HEADING.fullmatch(line.strip())
    if found is None:
        bold = _BOLD.fullmatch(line.strip())
        return (2, "") if bold is not None and _is_title(bold[1]) else None
    text = found[2].strip(" \t#:*")
    return len(found[1]), "" if _is_title(text) else text


def _is_title(text: str) -> bool:
    words = re.findall(r"[^\s,/&():]+", text.lower())
    return all(_TITLE.fullmatch(word) or word.strip(".)").isdigit() for word in words)
