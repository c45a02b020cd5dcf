"""Answers as data: the arguments of a finishing call, or their JSON."""

import json
import re
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import pairwise

from sandbox_server.grading.localization.locations import Locations
from sandbox_server.grading.localization.paths import entries

FINISHING = frozenset({"localization_finish", "result", "line_result"})
"""Tools whose call is the answer."""
_LISTS = ("locations", "file_paths", "files", "line_paths", "paths")
_FILE = ("file", "path", "file_path", "filename", "file_name")
_CLASS = ("class_name", "class")
_FUNCTION = ("function_name", "function", "method_name", "method")
_FUNCTIONS = ("function_names", "functions", "method_names", "methods")
_LINES = ("lines", "line_range")
_LOCATION = frozenset({*_FILE, *_CLASS, *_FUNCTION, *_FUNCTIONS, *_LINES})
_REMARKS = frozenset({"reason", "reasoning", "explanation", "description", "rationale", "comment", "confidence"})
_ANSWERS = frozenset({"answer", "final_answer", "result", "results"})
_LENIENT = re.compile(
    r'"(?:[^"\\\n]|\\.)*+"?|\'(?P<python>(?:[^\'\\\n]|\\.)*+)(?P<closed>\')?|\b(?P<constant>None|True|False)\b'
    r"|//[^\n]*|,(?=\s*+[}\]])"
)
"""Strings, which are kept, and what JSON does not have: Python's strings and constants, comments, trailing commas."""
_CONSTANTS = {"None": "null", "True": "true", "False": "false"}
_ESCAPED = re.compile(r"\\.|\"")
_SIGNS = {"\\'": "'", '"': '\\"'}
"""Replacements in a Python string that becomes a JSON string."""
_PATH = re.compile(r"(?:[^\s:]*/[^\s:/]*\.\w+|[^\s:/]+\.py)")
_FUNCTION_CALL = re.compile(r"<function=(localization_finish|result|line_result|finish)>")
_SPELLED = re.compile(
    r"(?:(?:^|(?<=[\]>\n]))\s{0,8}+(?!result)|(?:(?<=[.=])|(?<==\")|(?<=:\")|(?<=:\s\")))"
    r"(?:localization_finish|line_result|result)(?![\w.])"
    r"(?:<[^<>\n]{1,80}>(?:\w{1,40}</\w{1,20}>)?|\[ARGS\]|```json|arguments|parameters|json|:\d+|[\s\"':,(=>]{1,40}+){0,12}+"
    r"(?=[\[{])"
)
"""A finishing call up to its arguments, as other models spell it."""
_CALL = re.compile(
    r"^[ \t]*\[?(?:await[ \t]+)?(?:functions\.)?(?:localization_finish|line_result|finish)\(", re.MULTILINE
)
_KEYWORD = re.compile(r"[\s,]*([A-Za-z_]\w*)\s*=\s*")
_CLOSED = re.compile(r"[\s,]*\)")
_LINE_END = re.compile(r"[ \t.]*(?:$|\n)")
_LINE_OF_DATA = re.compile(r"^(\**(?:final[ \t]+)?answer:?\**:?[ \t]*)?(?=[{\[])", re.MULTILINE | re.IGNORECASE)
_NEXT_ROW = re.compile(r"\}[ \t]*\n\s*+\{")
_TRIES = 30
"""How many of the last lines that may begin JSON are tried. Each that fails costs time for all the text before it."""
_BARE_KEY = re.compile(r'"(?:[^"\\\n]|\\.)*+"|(?<=[{,\s])([A-Za-z_]\w*+)(?=\s*+:)')
"""Strings, which are kept, and keys without quotes, as JavaScript has them."""
_DEEPEST = 8
_DECODER = json.JSONDecoder()


def calls_in(text: str) -> Iterator[object]:
    """The arguments of finishing calls that `text` spells, the first one first: `<tool_call>` JSON, `<function=...>`.

    Bare JSON that is the whole text, or the whole of a text in a ```json fence, counts too if it has the shape.
    """
    end = 0
    while (begin := text.find("<tool_call>", end)) >= 0:
        begin += len("<tool_call>")
        end = text.find("</tool_call>", begin)
        end = len(text) if end < 0 else end
        if (arguments := finishing_arguments(_json(text[begin:end]))) is not None:
            yield arguments
    for call in function_calls(text):
        if (arguments := finishing_arguments(call)) is not None:
            yield arguments
    bare = text.strip()
    if bare.startswith("```json") and bare.endswith("```"):
        bare = bare[len("```json") : -3].strip()
    if (value := of_text(bare)) is not None:
        yield value


def of_text(text: str) -> object | None:
    """Parse `text` as JSON if it has the form of an answer or of a finishing call; else None."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    value = _json(text)
    if value is None:
        value = _json(f"[{_NEXT_ROW.sub('},{', text)}]")  # an object on each line
    arguments = finishing_arguments(value)
    if arguments is not None:
        return arguments
    return value if _has_shape(value) else None


def is_data(text: str) -> bool:
    """Whether `text` is a JSON object or list, of any form."""
    return text.lstrip()[:1] in ("{", "[") and _json(text) is not None


def spelled_calls(text: str) -> Iterator[object]:
    """The arguments of finishing calls in the spelling of GLM, DeepSeek, Kimi, Mistral, gpt-oss, MiniMax and others."""
    for call in _SPELLED.finditer(text):
        try:
            value: object = _DECODER.raw_decode(text, call.end())[0]
        except (ValueError, RecursionError):
            continue
        if _has_shape(value):
            yield value


def calls_in_code(text: str) -> Iterator[object]:
    """The arguments of finishing calls at the start of a line: `finish(files=["a.py"])`, `finish({file: "a.py"})`."""
    begins = [call.end() for call in _CALL.finditer(text)]
    for begin, end in pairwise([*begins, len(text)]):
        value = _arguments(_keyed(_strict(text[begin:end])))
        if _has_shape(value):
            yield value


def _arguments(text: str) -> object | None:
    """The keywords of a call, or its only argument; `text` begins behind the opening bracket. None: something else."""
    found: dict[str, object] = {}
    value, end = None, 0
    try:
        while (keyword := _KEYWORD.match(text, end)) is not None:
            found[keyword[1]], end = _DECODER.raw_decode(text, keyword.end())
        if not found:
            value, end = _DECODER.raw_decode(text, len(text) - len(text.lstrip()))
    except (ValueError, RecursionError):
        return None
    return (found or value) if _CLOSED.match(text, end) else None


def data_among_prose(text: str) -> object | None:
    """The last JSON among lines of prose, if it begins and ends a line and has the form of an answer.

    Without the label `Answer:`, neither a list of paths nor an object with other keys counts: the first may be what the
    policy looks at next, the second a configuration that it quotes.
    """
    text, found, end = _NEXT_ROW.sub("},{", _strict(text)), None, 0
    for start in deque(_LINE_OF_DATA.finditer(text), _TRIES):
        if start.end() < end:
            continue
        try:
            value, end = _rows(text, start.end())
        except json.JSONDecodeError as error:
            end = error.pos  # what is inside broken JSON is no answer
            continue
        except RecursionError:
            continue
        if _LINE_END.match(text, end) and _has_shape(value) and (start[1] or _is_bare(value)):
            found = value
    return found


def _rows(text: str, begin: int) -> tuple[object, int]:
    """(value at `begin`, its end); values joined by `},{` are one list. Raises what JSON's decoder raises."""
    value, end = _DECODER.raw_decode(text, begin)
    rows = [value]
    while text.startswith(",{", end):
        value, end = _DECODER.raw_decode(text, end + 1)
        rows.append(value)
    return (rows if len(rows) > 1 else value), end


def function_calls(text: str) -> Iterator[Mapping[str, object]]:
    """Calls of FINISHING tools and of `finish`: `<function=NAME><parameter=P>value</parameter></function>`."""
    end = 0
    while (opening := _FUNCTION_CALL.search(text, end)) is not None:
        end = text.find("</function>", opening.end())
        end = len(text) if end < 0 else end
        if (arguments := _parameters(text[opening.end() : end])) is not None:
            yield {"name": opening[1], "arguments": arguments}


def finishing_arguments(call: object) -> object | None:
    """The arguments of `call`, `{name, arguments}` or OpenAI's `{function: {...}}`, if it is a finishing call."""
    if isinstance(call, Mapping) and isinstance(call.get("function"), Mapping):
        call = call["function"]
    if not isinstance(call, Mapping) or call.get("name") not in FINISHING:
        return None
    arguments: object = call.get("arguments", call.get("parameters", {}))
    return arguments


def read_value(value: object, into: Locations, depth: int = 0) -> None:
    """Read `value`: `{locations: [...]}`, a list of locations or paths, one of them, or JSON text of any of these."""
    if depth > _DEEPEST:
        into.problem("nested too deeply")
    elif isinstance(value, str):
        _read_text(value, into, depth)
    elif isinstance(value, Mapping):
        inner = _inner(value)
        for part in inner:
            read_value(part, into, depth + 1)
        for location in into.while_room([] if inner else _by_path(value) or [value]):
            _location(location, into)
    elif isinstance(value, (list, tuple)):
        if _is_span(value):
            if path := into.file(value[0]):
                into.span(path, *value[1])
        else:
            for element in into.while_room(value):
                read_value(element, into, depth + 1)
    else:
        into.problem(f"no location: {str(value)[:80]}")


def _read_text(text: str, into: Locations, depth: int) -> None:
    parsed = _json(text) if text.strip()[:1] in ("[", "{", '"') else None
    if parsed is not None:
        read_value(parsed, into, depth + 1)
        return
    for entry in into.while_room(entries(text) if text.strip() else [""]):
        into.place(entry)


def _location(fields: Mapping[object, object], into: Locations) -> None:
    path = into.file(_text(fields, _FILE))
    if not path:
        return
    class_name, function = _text(fields, _CLASS), _text(fields, _FUNCTION)
    named = into.module(path, class_name) if class_name.strip() else ""
    for name in [function, *_names(fields)]:
        if name.strip():
            into.entity(path, name, of=named)
    span = next((fields[name] for name in _LINES if name in fields), None)
    if isinstance(span, (list, tuple)) and _numbers(span):
        into.span(path, span[0], span[1])
    elif isinstance(span, str):
        into.spelled_span(path, span)


def _text(fields: Mapping[object, object], names: tuple[str, ...]) -> str:
    return next((value for name in names if isinstance(value := fields.get(name), str)), "")


def _names(fields: Mapping[object, object]) -> list[str]:
    """The functions that a location lists."""
    value = next((fields[name] for name in _FUNCTIONS if name in fields), [])
    found = [value] if isinstance(value, str) else value
    return [name for name in found if isinstance(name, str)] if isinstance(found, (list, tuple)) else []


def _by_path(value: Mapping[object, object]) -> list[Mapping[object, object]]:
    """The locations of `{"src/a.py": ["f", "Foo.bar"]}`; none if a key is no path."""
    if all(isinstance(name, str) and _PATH.fullmatch(name) for name in value):
        return [{_FILE[0]: path, _FUNCTIONS[0]: names} for path, names in value.items()]
    return []


def _is_span(value: list[object] | tuple[object, ...]) -> bool:
    """`[file, [first, last]]`."""
    return len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], (list, tuple)) and _numbers(value[1])


def _numbers(value: list[object] | tuple[object, ...]) -> bool:
    return len(value) == 2 and all(type(number) is int for number in value)


def _has_shape(value: object) -> bool:
    """Whether bare JSON is an answer: a list under a known name, a list of locations, or one location."""
    if isinstance(value, Mapping):
        return _is_alone(value) or bool(_by_path(value)) or bool(_inner(value))
    return isinstance(value, list) and bool(value) and all(_is_location(element) for element in value)


def _inner(value: Mapping[object, object]) -> list[object]:
    """The list of locations in `value`, as one element; [] if it has none."""
    inner = [value[name] for name in _LISTS if name in value][:1]
    return inner or _wrapped(value)


def _wrapped(value: Mapping[object, object]) -> list[object]:
    """As `_inner`, of `{"answer": {"locations": [...]}}` and `{"edits": [{"file", "function"}, ...]}`."""
    if len(value) != 1:
        return []
    ((name, inner),) = value.items()
    if isinstance(inner, Mapping):  # only one level is opened, because the policy chooses the depth
        shaped = _is_alone(inner) or bool(_by_path(inner)) or any(one in inner for one in _LISTS)
        return [inner] if name in _ANSWERS and shaped else []
    if not isinstance(inner, list) or not inner:
        return []
    paths = name in _ANSWERS and all(isinstance(one, str) and _PATH.match(one) for one in inner)
    return [inner] if paths or all(map(_is_alone, inner)) else []


def _is_bare(value: object) -> bool:
    """Whether `value`, which has the shape, holds locations and nothing else."""
    if isinstance(value, list):
        return all(map(_is_alone, value))
    if not isinstance(value, Mapping):
        return False
    return len(value) == 1 or _is_alone(value) or bool(_by_path(value)) or _REMARKS.union(_LISTS).issuperset(value)


def _is_alone(value: object) -> bool:
    """Whether `value` is one location, and nothing else."""
    return isinstance(value, Mapping) and _is_location(value) and (_LOCATION | _REMARKS).issuperset(value)


def _is_location(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, Mapping) and any(name in value for name in _FILE))


def _parameters(body: str) -> dict[str, object] | None:
    """The `<parameter=NAME>value</parameter>` pairs of a call; None if it has none."""
    found: dict[str, object] = {}
    end = 0
    while (begin := body.find("<parameter=", end)) >= 0:
        close = body.find(">", begin)
        end = body.find("</parameter>", close)
        if close < 0 or end < 0:
            break
        found[body[begin + len("<parameter=") : close]] = body[close + 1 : end]
    return found or None


def _json(text: str) -> object | None:
    value = _loaded(text)
    return _loaded(_keyed(_strict(text))) if value is None else value


def _loaded(text: str) -> object | None:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value


def _strict(text: str) -> str:
    """`text` as JSON: without comments and trailing commas, and with Python's values in JSON's spelling."""
    return _LENIENT.sub(_as_json, text)


def _keyed(text: str) -> str:
    """`text` with quotes around its keys."""
    return _BARE_KEY.sub(lambda found: f'"{found[1]}"' if found[1] else found[0], text)


def _as_json(found: re.Match[str]) -> str:
    if found["constant"]:
        return _CONSTANTS[found["constant"]]
    if found["closed"]:
        return '"' + _ESCAPED.sub(lambda sign: _SIGNS.get(sign[0], sign[0]), found["python"]) + '"'
    return found[0] if found[0][0] in "\"'" else ""
