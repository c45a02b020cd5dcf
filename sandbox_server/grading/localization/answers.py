"""Finds the answer in a policy's last message, in any format. Pure, linear, raises nothing.

Of several answers in one message the last one counts; text inside `<think>` never does.
"""

import re
from collections.abc import Callable, Iterable, Iterator

from sandbox_server.grading.localization import structured
from sandbox_server.grading.localization.fenced import Block, blocks, has_labelled_names, outside_blocks, read_lines
from sandbox_server.grading.localization.locations import Locations
from sandbox_server.grading.localization.paths import Roots, entries
from sandbox_server.verdicts import Answer

AUTO = "auto"
_SPAN = re.compile(
    r"""[(\[]\s*("[^"\n]*"|'[^'\n]*')\s*,\s*[(\[]\s*(-?\d{1,9})\s*,\s*(-?\d{1,9})\s*[)\]]\s*,?\s*[)\]]"""
)
_TEXT = frozenset({"", "text", "txt", "plain", "plaintext", "markdown", "md", "yaml", "csv", "tsv", "python", "py"})
"""Languages of fenced blocks that may hold a list of locations."""
_CODE = frozenset({"python", "py"})
"""Languages of `_TEXT` whose blocks usually hold code."""
_DATA = _TEXT | {"json", "json5", "jsonc", "jsonl"}
_MARKED_UP = frozenset({"xml", "html"})
"""Languages of fenced blocks that count only if they hold nothing but an answer."""
_BOXED = re.compile(r"\\boxed\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*+\})*+\})*+)\}")
_IN_LATEX = re.compile(r"\\(?:(?:text|math)[a-z]*\{([^{}]*)\}|([_#&%$ ]))")
_THOUGHTS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("\u25c1think\u25b7", "\u25c1/think\u25b7"),
)
"""Marks around thoughts: of Qwen, GLM and DeepSeek, of Seed, of Mistral, of Kimi."""


def parse_answer(text: str, *, written: str = AUTO, roots: Iterable[str] = (), acts: bool = False) -> Answer | None:
    """The answer in `text`, or None.

    `written` is one of FORMATS. `auto` takes the first of these that is found: a finishing call, the last complete pair
    of tags, a block of nothing but locations. A named format is the only one searched for, and is read more leniently.
    In a message that `acts` (calls other tools) a block is no answer: it is a quotation, or the text of a call.

    Raises:
        ValueError: there is no such format.

    """
    if written != AUTO and written not in _READERS:
        raise ValueError(f"there is no answer format {written!r}; there are {', '.join(FORMATS)}")
    readers = _ANY if written == AUTO else [_READERS[written]]
    if acts:
        readers = [read for read in readers if read not in (_called, _located, _fenced)]
    spoken, known = after_thinking(text), Roots(roots)
    return next((answer for read in readers if (answer := read(spoken, known)) is not None), None)


def structured_answer(value: object, *, roots: Iterable[str] = ()) -> Answer:
    """The answer in the arguments of a finishing call, usually `{locations: [{file, class_name, function_name}]}`.

    Also accepts a list of paths, a single path, and JSON text of any of these.
    """
    return _of_data(value, Roots(roots))


def after_thinking(text: str) -> str:
    """The message without its thoughts."""
    for opening, closing in _THOUGHTS:
        text = text.rpartition(closing)[2]
        text = text.partition(opening)[0]  # drop a thought that was cut off
    return text


def _structured(text: str, roots: Roots) -> Answer | None:
    calls = list(structured.calls_in(text)) or list(structured.spelled_calls(text))
    if not calls:
        return None
    locations = Locations(roots)
    structured.read_value(calls[-1], locations)
    return locations.answer("structured", well_formed=len(calls) == 1)


def _called(text: str, roots: Roots) -> Answer | None:
    """The last finishing call in the syntax of Python or JavaScript."""
    calls = list(structured.calls_in_code(text))
    return _of_data(calls[-1], roots, well_formed=len(calls) == 1) if calls else None


def _pairs(text: str, tag: str) -> Iterator[tuple[int, str]]:
    """The complete pairs of `tag`, last one first: (offset, content)."""
    opening, closing = f"<{tag}>", f"</{tag}>"
    before = len(text)
    while (close := text.rfind(closing, 0, before)) >= 0 and (begin := text.rfind(opening, 0, close)) >= 0:
        # several closing tags may follow one opening one
        yield begin, text[begin + len(opening) : text.find(closing, begin)]
        before = begin


def _last_pair(text: str, tag: str) -> tuple[int, str] | None:
    """The last complete pair of `tag` that is not empty; if all are empty, the last one."""
    last = None
    for pair in _pairs(text, tag):
        if pair[1].strip():
            return pair
        last = last or pair
    return last


def _paths(tag: str, written: str) -> "_Reader":
    def read(text: str, roots: Roots) -> Answer | None:
        if (pair := _last_pair(text, tag)) is None:
            return None
        locations = Locations(roots)
        _read_list(pair[1], locations)
        return locations.answer(written, well_formed=text.count(f"<{tag}>") == text.count(f"</{tag}>") == 1)

    return read


def _read_list(body: str, into: Locations) -> None:
    """Read a list of paths, or of locations as data."""
    if (data := structured.of_text(body)) is not None:
        structured.read_value(data, into)
        return
    for entry in into.while_room(entries(body)):
        into.file(entry)


def _spans(text: str, roots: Roots) -> Answer | None:
    if (pair := _last_pair(text, "answer")) is None:
        return None
    locations = Locations(roots)
    found = 0
    for quoted, first, last in _SPAN.findall(pair[1]):
        found += 1
        if path := locations.file(quoted):
            locations.span(path, int(first), int(last))
    if not found:
        locations.problem("no (file, (first, last)) in it")
    return locations.answer("lines", well_formed=text.count("<answer>") == text.count("</answer>") == 1)


def _fenced(text: str, roots: Roots) -> Answer | None:
    """The last block that names a file; the whole text if there are no blocks."""
    found = blocks(text)
    for block in reversed(found):
        if answer := _block(block, roots, well_formed=len(found) == 1):
            return answer
    return None if found else _block(Block("", text.strip("`"), closed=False), roots, well_formed=False)


def _located(text: str, roots: Roots) -> Answer | None:
    """The last block of nothing but locations; else data outside the blocks; else the last text block with a location.

    Prose, commands, code and the output of a search are no answer. A text without blocks is read as a whole: it may
    consist of a table, or have labelled lines among its prose.
    """
    found = blocks(text)
    if not found:
        whole = Block("", text.strip().strip("`"), closed=False)
        if answer := _sound(whole, roots, well_formed=True):
            return answer
        if (data := structured.data_among_prose(text)) is not None:
            return _of_data(data, roots)
        named = _partly(whole, roots) if has_labelled_names(text) else None
        if named is not None and named.modules:
            return named
        return _listed(whole.body, roots) if whole.body.startswith("|") else None
    for block in reversed(found):
        if answer := _sound(block, roots, well_formed=len(found) == 1):
            return answer
    if (data := structured.data_among_prose(outside_blocks(text))) is not None:
        return _of_data(data, roots)
    mixed = [(block, answer) for block in reversed(found) if (answer := _partly(block, roots))]
    plain = (answer for block, answer in mixed if block.language not in _CODE)
    # `os.path` in Python code looks like a location, so in such blocks each must be a path
    tagged = (answer for block, answer in mixed if block.language in _CODE and all(map(_is_path, answer.files)))
    return next(plain, None) or next(tagged, None)


def _sound(block: Block, roots: Roots, *, well_formed: bool) -> Answer | None:
    """The answer in a block of nothing but locations; None if the block has other lines."""
    if (data := structured.of_text(block.body)) is not None and block.language in _DATA:
        read = _of_data(data, roots)
        return read if read.files else None
    if block.language not in _TEXT | _MARKED_UP or structured.is_data(block.body):
        return None
    answer = _block(block, roots, well_formed=well_formed)
    return answer if answer is not None and not answer.problems else None


def _partly(block: Block, roots: Roots) -> Answer | None:
    """The answer in a block of text whose other lines are ignored and reported as problems; None if it has none."""
    if block.language not in _TEXT:
        return None
    locations = Locations(roots)
    return locations.answer("fenced", well_formed=False) if read_lines(block.body, locations) else None


def _is_path(file: str) -> bool:
    return "/" in file or file.endswith(".py")


def _of_data(value: object, roots: Roots, *, well_formed: bool = True) -> Answer:
    locations = Locations(roots)
    structured.read_value(value, locations)
    return locations.answer("structured", well_formed=well_formed)


def _block(block: Block, roots: Roots, *, well_formed: bool) -> Answer | None:
    locations = Locations(roots)
    read_lines(block.body, locations)
    return locations.answer("fenced", well_formed=well_formed and block.closed) if locations else None


def _answer_tag(text: str, roots: Roots) -> Answer | None:
    """The content of `<answer>`: spans, else data, a block, or lines of locations."""
    if (pair := _last_pair(text, "answer")) is None:
        return None
    spans = _spans(text, roots)
    if spans is not None and spans.lines:
        return spans
    inside = pair[1].strip()
    if answer := _structured(inside, roots) or _located(inside, roots):
        return answer
    if inside.startswith(("[", "(")):
        locations = Locations(roots)
        _read_list(inside, locations)
        return locations.answer("files", well_formed=True) if locations else None
    return None if blocks(inside) else _partly(Block("", inside, closed=True), roots) or _listed(inside, roots)


def _listed(text: str, roots: Roots) -> Answer | None:
    """The answer in a list of nothing but paths; None for anything else."""
    locations = Locations(roots)
    _read_list(text, locations)
    answer = locations.answer("files", well_formed=False)
    told = [file for file in answer.files if not _is_path(file) or any(map(str.isspace, file))]
    return answer if locations and locations.sound and not told else None


def _tagged(text: str, roots: Roots) -> Answer | None:
    """The answer of the last tagged pair that names a file, else of the last one. LaTeX's box counts as `<answer>`."""
    text = _BOXED.sub(lambda box: f"<answer>{_IN_LATEX.sub(_plain, box[1])}</answer>", text)
    pairs = [(pair[0], tag) for tag in _BY_TAG if (pair := _last_pair(text, tag)) is not None]
    empty = None
    for _, tag in sorted(pairs, reverse=True):
        answer = _BY_TAG[tag](text, roots)
        if answer is not None and answer.files:
            return answer
        empty = empty or answer
    return empty


def _plain(latex: re.Match[str]) -> str:
    return latex[1] or latex[2] or ""


_Reader = Callable[[str, Roots], Answer | None]
_BY_TAG: dict[str, _Reader] = {
    "files": _paths("files", "files"),
    "file-list": _paths("file-list", "file_list"),
    "answer": _answer_tag,
}
_READERS: dict[str, _Reader] = {
    "files": _BY_TAG["files"],
    "file_list": _BY_TAG["file-list"],
    "fenced": _fenced,
    "structured": _structured,
    "lines": _spans,
}
_ANY: list[_Reader] = [_structured, _tagged, _called, _located]
FORMATS = (AUTO, *_READERS)
