"""Makes variants of tests in the languages of `lexing.SUFFIXES` by changing literals that state an expected value.

An assertion without an expected value is changed to its opposite, or to another exception.

A literal may be an expectation if it stands beside a comparison, as a whole argument of an assertion, as the value of
`want`, or in the last or `want` column of a table. Whether it is one is not known here: certifying keeps the variants
under which gold fails exactly the altered tests.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random

from sandbox_server.grading.variants.base import Edit, Unit, Variant, overlap, round_robin
from sandbox_server.grading.variants.lexing import CPP, SUFFIXES
from sandbox_server.grading.variants.literals import others
from sandbox_server.grading.variants.providers import expected_of
from sandbox_server.grading.variants.repository_tests import Places, lies_in, marked
from sandbox_server.grading.variants.repository_tests_lexed import LexedRepositoryTests, line_ends
from sandbox_server.grading.variants.tokens import Code

_OPPOSITES = {
    one: other
    for pair in (
        ("assertTrue", "assertFalse"),
        ("assertNull", "assertNotNull"),
        ("isTrue", "isFalse"),
        ("isNull", "isNotNull"),
        ("isEmpty", "isNotEmpty"),
        ("toBeTruthy", "toBeFalsy"),
        ("True", "False"),
        ("Nil", "NotNil"),
        ("assertEmpty", "assertNotEmpty"),
        ("assert_nil", "refute_nil"),
        ("assert_empty", "refute_empty"),
        ("assert_true", "assert_false"),
        ("be_truthy", "be_falsey"),
        ("EXPECT_TRUE", "EXPECT_FALSE"),
        ("ASSERT_TRUE", "ASSERT_FALSE"),
        ("CHECK", "CHECK_FALSE"),
        ("REQUIRE", "REQUIRE_FALSE"),
    )
    for one, other in (pair, pair[::-1])
}
_TURNED_IN_RUBY = {"to": "not_to", "not_to": "to", "to_not": "to"}
_THROWING = frozenset(
    {
        *("assertThrows", "assertThrowsExactly", "isInstanceOf", "toThrow", "toThrowError", "throws"),
        *("assert_raises", "assert_raise", "raise_error", "expectException"),
    }
)
_THROWING_LAST = frozenset(
    f"{kind}_{end}" for kind in ("EXPECT", "ASSERT", "CHECK", "REQUIRE") for end in ("THROW", "THROWS_AS")
)
"""C++ macros: their first argument is the call, their last one the exception."""
_THROWN = {
    "class": ("IllegalStateException", "IllegalArgumentException", "UnsupportedOperationException"),
    ".cc": ("overflow_error", "underflow_error", "bad_alloc"),
    ".php": ("JsonException", "ErrorException", "ArithmeticError"),
    ".rb": ("ZeroDivisionError", "IOError", "ThreadError"),
    "": ("TypeError", "RangeError", "SyntaxError"),
}
"""Exceptions that need no import, or come with the same header as the usual ones. Source: java.lang, the C++ standard,
SPL, Ruby's core, ECMA-262."""
_EXCEPTION = re.compile(r"[A-Z]\w*(?:Exception|Error)|[a-z_]+_(?:error|argument|range|exception)")
_COMPARING = frozenset({"==", "!=", "===", "!=="})
_ASSERTING = re.compile(
    r"(?i:assert|expect|should|to(?:be|equal|strict|match|contain|have|throw|return)|contains|hasmessage|(?:\w*equal)"
    r"|eq|check_|require_)\w*|(?:refute|must|wont|be|have|start|end)_\w+[?!]?|(?:refute|be|match|include)\b"
)
_WANTED = re.compile(r"(?i)want\w*|expect\w*|exp|out|output|result")
_WRAPPING = frozenset({"of", "asList", "Some", "Ok", "Err", "from", "new", "BigInt", "Set", "Map"})
_MATCHER = re.compile(r"to[A-Z]\w*")
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)([A-Za-z]\w{0,4}|_\w{1,5})?")
_TEXT = re.compile(r"""(["'`])([^\\\n\x80-\xff]*)\1""")
_FILLED = re.compile(r"[$#]\{")
_WORD = re.compile(r"\\(?:[ux][0-9A-Fa-f{]{1,8}|.)|[$#]\{[^}]*\}|([A-Za-z]{3,40}|\d{1,15})", re.DOTALL)
"""A word in a text; escapes and a template's inserted values are skipped."""


def units(
    files: Mapping[str, bytes],
    fixed: Iterable[str],
    kept: Iterable[str],
    rng: Random,
    *,
    base: Mapping[str, bytes],
    most: int,
) -> Iterator[Unit]:
    """As `making.units`, for the files in these languages, with up to `most` variants for each unit."""
    codes = [Code.of(path, text) for path, text in sorted(files.items()) if path.endswith(SUFFIXES)]
    ends = [line_ends(files[code.path]) for code in codes]
    known = LexedRepositoryTests(base)
    tests: dict[tuple[int, range], list[str]] = {}
    for name in fixed:
        bodies = [(at, body) for at, code in enumerate(codes) for body in code.bodies(name)]
        if len(bodies) == 1:  # of two candidates it is unknown which one runs
            tests.setdefault(bodies[0], []).append(name)
    unaltered = {(at, body) for name in kept for at, code in enumerate(codes) for body in code.bodies(name)}
    rows: dict[tuple[int, range], list[str]] = {}
    for (at, body), names in tests.items():
        code = codes[at]
        found: list[Variant] = []
        if not any(at == other and _meet(body, there) for other, there in unaltered):
            places = known.places(code, body, names, ends[at])
            found = marked(round_robin([*_variants(code, body, places, rng)]), places)
        if made := _apart(sorted(found, key=lambda variant: variant.public), most):
            yield Unit(code.path, names[0], tuple(names), tuple(made))
            continue
        for name, value in ((name, expected_of(code, name)) for name in names):
            if value is not None:  # tests that share a row are altered together
                rows.setdefault((at, value), []).append(name)
    for (at, value), names in rows.items():
        code = codes[at]
        places = known.places(code, value, names, ends[at])
        literals = [] if _calls(code, value, made=True) else [near for near in value if _is_stated(code, near)]
        found = marked(round_robin([*_each(code, literals, rng)]), places)
        if made := _apart(sorted(found, key=lambda variant: variant.public), most):
            yield Unit(code.path, names[0], tuple(names), tuple(made))


def _meet(one: range, other: range) -> bool:
    return one.start < other.stop and other.start < one.stop


def _apart(variants: Sequence[Variant], most: int) -> list[Variant]:
    """The first `most` of `variants`, leaving out those that would change a place for the third time."""
    chosen: list[Variant] = []
    for variant in variants:
        if len(chosen) < most and sum(overlap(variant, other) for other in chosen) < 2:
            chosen.append(variant)
    return chosen


def _variants(code: Code, body: range, known: Places, rng: Random) -> Iterator[Variant]:
    """First each table's column of expectations as a whole, then single literals, then assertions without a literal.

    If the repository already has a part of a table, only the column of the new rows is changed.
    """
    columns, single = _columns(code, body), list(dict.fromkeys(_expected(code, body)))
    for column in columns:
        new = [at for at in column if not lies_in(known, code.tokens[at].start, code.tokens[at].end)]
        changed = [(at, _changed(code, at, rng)) for at in new or column]
        for number in range(2):
            if edits := [_edit(code, at, texts[number % len(texts)]) for at, texts in changed if texts]:
                yield Variant("value", tuple(edits), site=f"column {code.tokens[column[0]].start}")
    rng.shuffle(single)
    yield from _each(code, single, rng)
    for at in body:
        yield from _turned(code, at, rng)


def _each(code: Code, literals: Iterable[int], rng: Random) -> Iterator[Variant]:
    for at in literals:
        for text in _changed(code, at, rng)[:2]:
            yield Variant("value", (_edit(code, at, text),), site=str(code.tokens[at].start))


def _is_stated(code: Code, at: int) -> bool:
    """Whether the token is a literal, and not a key."""
    return _is_literal(code, at) and code.text(at + 1) != "=>"


def _turned(code: Code, at: int, rng: Random) -> Iterator[Variant]:
    """Variants of an assertion that expects no literal: another exception, or the opposite assertion."""
    word, site = code.text(at), str(code.tokens[at].start)
    if code.path.endswith(".rb") and code.text(at - 1) == "." and word in _TURNED_IN_RUBY:
        yield Variant("swap", (_edit(code, at, _TURNED_IN_RUBY[word]),), site=site)
    opening = at + 2 if code.text(at + 1) == "!" else at + 1
    if code.text(opening) != "(" or opening not in code.closing:
        return
    if word in _THROWING or word in _THROWING_LAST:
        named = opening + 2 if code.text(opening + 1) == "\\" else opening + 1  # PHP's global namespace
        named = code.closing[opening] - 1 if word in _THROWING_LAST else named
        for text in _other_exceptions(code, named, rng):
            yield Variant("error", (_edit(code, named, text),), site=site)
    # A word that appears nowhere in the file may not be imported.
    elif (other := _OPPOSITES.get(word)) and (code.text(at - 1) == "." or other in code.places):
        yield Variant("swap", (_edit(code, at, other),), site=site)
    elif word == "assert" and (stated := code.elements(opening)[0]):
        begin, end = code.tokens[stated.start].start, code.tokens[stated.stop - 1].end
        yield Variant("swap", (Edit(begin, begin, "!("), Edit(end, end, ")")), site=site)


def _other_exceptions(code: Code, at: int, rng: Random) -> list[str]:
    suffix = ".cc" if code.path.endswith(CPP) else code.path[code.path.rindex(".") :]
    by_class = [code.text(at + 1), code.text(at + 2)] == [".", "class"]
    known = _THROWN["class" if by_class else suffix if suffix in _THROWN else ""]
    named = _EXCEPTION.fullmatch(code.text(at)) is not None
    return rng.sample([name for name in known if name != code.text(at)], 2) if named else []


def _edit(code: Code, at: int, text: str) -> Edit:
    return Edit(code.tokens[at].start, code.tokens[at].end, text)


def _expected(code: Code, body: range) -> Iterator[int]:
    """Literals beside comparisons, and in the arguments of assertions that call nothing."""
    for at in body:
        token = code.tokens[at]
        if token.text in _COMPARING:
            yield from (near for near in (at + 1, at - 1) if _is_literal(code, near))
        elif _WANTED.fullmatch(token.text) and code.text(at + 1) in ("=", ":="):
            if _is_literal(code, at + 2):
                yield at + 2
            elif token.text.lower().startswith(("want", "exp")):  # a `result` may be an input
                yield from (near for near in _listed(code, at + 2) if _is_literal(code, near))
        elif token.kind == "word" and _ASSERTING.fullmatch(token.text):
            opening = at + 2 if code.text(at + 1) == "!" else at + 1
            if code.text(opening) == "(" and opening in code.closing:
                for argument in code.elements(opening):
                    if not _calls(code, argument, made=_MATCHER.fullmatch(token.text) is not None):
                        yield from (near for near in argument if _is_literal(code, near))


def _listed(code: Code, at: int) -> range:
    """The tokens of the bracketed value that begins at `at`; an empty range if the value calls anything."""
    near = (near for near in range(at, min(at + 8, len(code.tokens))) if code.text(near) in "([{;")
    opening = next((one for one in near if code.closing.get(one) != one + 1), -1)  # not the [] of []int{1, 2}
    if opening not in code.closing:
        return range(0)
    whole = range(at, code.closing[opening])
    return range(0) if _calls(code, whole, made=True) else whole


def _columns(code: Code, body: range) -> list[list[int]]:
    """The expected literals of each table: those of keys like `want`, and the last ones of at least two rows."""
    keyed = [at + 2 for at in body if _WANTED.fullmatch(code.text(at)) and code.text(at + 1) == ":"]
    found = [[at for at in keyed if _is_literal(code, at)]]
    for at in body:
        if at not in code.closing:
            continue
        rows = [row.start for row in code.elements(at) if row and code.closing.get(row.start) == row.stop - 1]
        rows = [row for row in rows if len(code.elements(row)) > 1]  # a value that stands alone is an input
        last = [code.closing[row] - (2 if code.text(code.closing[row] - 1) == "," else 1) for row in rows]
        found.append([place for place in last if _is_literal(code, place)] if len(rows) > 1 else [])
    return [column for column in found if len(column) > 1]


def _calls(code: Code, part: range, *, made: bool) -> bool:
    """Whether `part` calls something; `made`: constructors do not count, as their arguments form the expected value."""
    return any(
        code.text(at) == "("
        and code.tokens[at - 1].kind == "word"
        and code.text(at - 1) not in _WRAPPING
        and not (made and code.text(at - 2) == "new")
        for at in part[1:]
    )


def _is_literal(code: Code, at: int) -> bool:
    if not 0 <= at < len(code.tokens):
        return False
    token = code.tokens[at]
    return token.kind in ("string", "number") or token.text in ("true", "false")


def _changed(code: Code, at: int, rng: Random) -> list[str]:
    """Other values for a literal, best first."""
    text = code.tokens[at].text
    if text in ("true", "false"):
        return ["false" if text == "true" else "true"]
    if (number := _NUMBER.fullmatch(text)) is not None:
        value = ast.Constant(float(number[1]) if "." in number[1] else int(number[1]))
        return [other + (number[2] or "") for other in others(number[1], value, rng)]
    if (quoted := _TEXT.fullmatch(text)) is not None and '"' not in quoted[2] and not _FILLED.search(quoted[2]):
        changed = others(f'"{quoted[2]}"', ast.Constant(quoted[2]), rng)
        return [f"{quoted[1]}{other[1:-1]}{quoted[1]}" for other in changed]
    return _with_another_word(text, rng) if code.tokens[at].kind == "string" else []


def _with_another_word(text: str, rng: Random) -> list[str]:
    """The string with one of its words changed; for strings of several lines, or with quotes or escapes."""
    words = [word for word in _WORD.finditer(text, 1) if word[1]]
    changed = []
    for word in rng.sample(words, min(2, len(words))):
        number = word[1].isdigit()
        literal, value = (word[1], int(word[1])) if number else (f'"{word[1]}"', word[1])
        for other in others(literal, ast.Constant(value), rng)[:1]:
            changed.append(text[: word.start()] + other.strip('"') + text[word.end() :])
    return changed
