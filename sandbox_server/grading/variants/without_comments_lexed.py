"""`without_comments` for the languages of `lexing.SUFFIXES`. Lines keep their numbers.

An assertion's name tells how many values it compares; the arguments after these are taken for its message. If that is
wrong, gold fails, and the file is used as it is.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile

from sandbox_server.grading.variants.base import Edit, edited
from sandbox_server.grading.variants.lexing import CPP, SCRIPTS, Token
from sandbox_server.grading.variants.tokens import Code, read

_KEPT = {
    ".go": re.compile(r"//(?:go:|line |export |nolint|\s*\+build)"),
    ".java": re.compile(r"(?!)"),
    ".rs": re.compile(r"(?!)"),
    ".php": re.compile(r"/\*\*"),  # PHPUnit reads its annotations there
    ".rb": re.compile(r"#\s*(?:-\*-|(?:frozen_string_literal|(?:en)?coding|rubocop):|!)"),
    ".cc": re.compile(r"(?!)"),
    "": re.compile(r"///\s*<|.*@(?:ts-|jest-|vitest-|jsx|flow|babel)|.*webpack", re.DOTALL),
}
"""Comments that tools read. Sources: go.dev/doc/comment, TypeScript's, Jest's, Vitest's and Babel's manuals."""
_OUTPUT = re.compile(r"//\s*(?:unordered )?output:", re.IGNORECASE)
"""The comments of a Go example from this one on are the output that it must print."""
_RUST_DOC = re.compile(r"//[/!]|/\*[*!]")
_VERBS = {
    ".go": re.compile(r"%[-+# 0]*[\d*]*(?:\.[\d*]*)?(?:\[\d+\])?[A-Za-z%]"),
    ".java": re.compile(r"%[-+# 0,(\d$.]*[A-Za-z%]"),
    ".rs": re.compile(r"\{\{|\}\}|\{[^{}]*\}"),
    ".php": re.compile(r"\{?\$\w+\}?|%[-+ 0,\d.$]*[A-Za-z%]"),
    ".rb": re.compile(r"#\{[^{}]*\}"),
    ".cc": re.compile(r"(?!)"),
    "": re.compile(r"\$\{[^{}`]*\}"),
}
"""Placeholders for values in a message. Their number must stay the same: `go vet` and rustc check it."""
_FORMATS = frozenset({"Sprintf", "Sprint", "format", "formatted"})
_HANDLES = frozenset({"t", "tb", "b"})
_ASSERTING = frozenset({"assert", "require", "s", "suite", "is", "a", "r"})
"""Names on which testify's assertions are called if `t` is not passed to them."""
_VALUES = {
    1: re.compile(
        r"(?:assert|is|be|not|no){0,3}(?:true|false|nil|null|ok|error|empty|zero|undefined|defined|exists?|panics)f?"
        r"|(?:debug_)?assert|expect",
        re.IGNORECASE,
    ),
    2: re.compile(
        r"(?:debug_|assert)?_?(?:not|deep|strict|loose|array|iterable)*_?(?:equals?|eq|ne|same|len|lengthof|contains"
        r"|include|eql|instanceof|istype|erroris|erroras|equalerror|errorcontains|regexp|match|equalvalues|exactly"
        r"|elementsmatch|subset|jsoneq|yamleq|greater(?:orequal)?|less(?:orequal)?)f?",
        re.IGNORECASE,
    ),
    3: re.compile(r"indeltaf?|inepsilonf?|withindurationf?|closeto|approximately", re.IGNORECASE),
}
"""Number of values -> names of assertions, after which a message may follow.

Sources: testify, JUnit, TestNG, Chai, Node's assert, Rust's std.
"""
_SAYING = {
    ".go": re.compile(r"\.(?:Error|Fatal|Log|Skip)f?"),
    ".java": re.compile(r"\.(?:as|describedAs|withFailMessage|overridingErrorMessage|fail)|fail"),
    ".rs": re.compile(r"\.(?:expect|expect_err)|(?:panic|unreachable)!"),
    ".php": re.compile(r"fail"),
    ".rb": re.compile(r"flunk"),
    ".cc": re.compile(r"(?!)"),
    "": re.compile(r"\.fail"),
}
"""Calls of which all arguments form a message, with the signs around the name."""
_FLUENT = frozenset({"to", "be", "not", "deep", "should", "that", "eventually"})
_FAR = 60  # tokens of a chain of calls
_BARE = re.compile(r"assert|expect|\w*equal", re.IGNORECASE)
"""Assertions that are plain functions, not methods."""
_SINGLY = ("", ".php", ".rb")  # languages in which ' quotes strings too
_DELTA = re.compile(r"\d+\.\d*|\. \d+|1e")
_NUMBER = re.compile(r"(?:0[xXbBoO]\w+|\d[\d_]*(\.[\d_]*)?(?:[eE]\d+)?)([A-Za-z]\w*)?")


def without_comments_lexed(path: str, text: bytes) -> bytes:
    """`text` without comments, and without the words and literals of messages; unchanged if it cannot be read."""
    suffix = path[path.rindex(".") :]
    suffix = CPP[0] if suffix in CPP else suffix
    found = read(path, text)
    if any(token.kind == "stray" for token in found) or (suffix == ".go" and b'import "C"' in text):
        return text
    reader = _Reader("" if suffix in SCRIPTS else suffix, text.decode("latin-1"), Code.made_of(path, found))
    try:
        return edited(text, (), (*reader.comments(found), *reader.messages()))
    except ValueError:
        return text  # a message within another one


class _Reader:
    def __init__(self, suffix: str, text: str, code: Code) -> None:
        self._suffix = suffix
        self._text = text
        self._code = code

    def comments(self, found: Iterable[Token]) -> Iterator[Edit]:
        """Edits that remove comments; a comment within a line is replaced by a space."""
        kept = _KEPT[self._suffix]
        has_doctests = self._suffix == ".rs" and "```" in self._text
        in_output = False
        for token in found:
            if token.kind != "comment":
                in_output = False
                continue
            in_output = in_output or (self._suffix == ".go" and _OUTPUT.match(token.text) is not None)
            if in_output or kept.match(token.text) or (has_doctests and _RUST_DOC.match(token.text)):
                continue
            left = "" if token.text.startswith("//") else "\n" * token.text.count("\n") or " "
            yield Edit(token.start, token.end, left)

    def messages(self) -> Iterator[Edit]:
        """Edits that reduce each message to the placeholders of its values."""
        code = self._code
        for at, token in enumerate(code.tokens):
            opening = at + 2 if code.text(at + 1) == "!" else at + 1
            if token.kind == "word" and code.text(opening) == "(" and opening in code.closing:
                for part in self._message(at, opening, code.elements(opening)):
                    yield from self._unsaid(part)

    def _message(self, at: int, opening: int, parts: Sequence[range]) -> Sequence[range]:
        """The arguments of a call that form its message: the text and the values inserted in it."""
        code, name = self._code, self._code.text(at)
        before = code.text(at - 1)
        around = f"{before if before == '.' else ''}{name}{'!' if code.text(at + 1) == '!' else ''}"
        if _SAYING[self._suffix].fullmatch(around) and self._is_said_on(at):
            return parts
        count = next((count for count, known in _VALUES.items() if known.fullmatch(name)), None)
        match self._suffix:
            case ".java":
                return self._in_java(name, count, parts)
            case _ if count is None:
                return ()
            case ".rs":
                return parts[count:] if around.endswith("!") else ()
            case ".go":
                first = code.words(parts[0])
                handed = first in _HANDLES or first.endswith(". T ( )")
                return parts[count + handed :] if handed or code.text(at - 2) in _ASSERTING else ()
        if before == "." and code.text(at - 2) in _FLUENT:
            count = max(count - 1, 1)
        elif code.text(at - 2) != "assert" if before == "." else not _BARE.match(name) or self._declares(name):
            return ()
        return parts[count:] if len(parts) == count + 1 else ()

    def _is_said_on(self, at: int) -> bool:
        """Whether a call with a message belongs to a test, judged by the object that it is called on."""
        code, on = self._code, self._code.text(at - 2)
        if self._suffix == ".go":
            return on in _HANDLES
        if self._suffix != ".java" or code.text(at - 1) != ".":
            return True
        before = takewhile(lambda text: text != ";", (code.text(near) for near in range(at - 1, at - _FAR, -1)))
        return on.startswith("Assert") if code.text(at) == "fail" else "assertThat" in before

    def _declares(self, name: str) -> bool:
        """Whether the file has a function of its own of this name."""
        code = self._code
        for at in code.places[name]:
            own = code.text(at + 1) == "=" and code.text(at + 2) not in ("require", "chai")
            if code.text(at - 1) == "function" or (own and code.text(at - 1) in ("const", "let", "var")):
                return True
        return False

    def _in_java(self, name: str, count: int | None, parts: Sequence[range]) -> Sequence[range]:
        """The message: the first argument in JUnit 4 and Hamcrest, the last one in JUnit 5 and TestNG."""
        first = "org.junit.Assert" in self._text or "junit.framework" in self._text
        last = "org.junit.jupiter" in self._text or "org.testng" in self._text
        if name == "assertThat":
            first, last, count = True, False, 2
        if count is None or first == last or len(parts) <= count or not name.startswith("assert"):
            return ()
        said = parts[0] if first else parts[-1]
        if len(parts) > count + 1 and not any(_DELTA.match(self._code.words(part)) for part in parts):
            return ()
        return (said,) if any(self._code.tokens[at].kind == "string" for at in said) else ()

    def _unsaid(self, part: range) -> Iterator[Edit]:
        """Edits that empty an argument's strings, joined or formatted ones too, and zero a number that stands alone."""
        code = self._code
        if len(part) == 1 and (number := _NUMBER.fullmatch(code.text(part[0]))):
            zero = f"0{'.0' if number[1] else ''}{number[2] or ''}"
            yield Edit(code.tokens[part[0]].start, code.tokens[part[0]].end, zero)
        at = part.start
        while at < part.stop:
            token = code.tokens[at]
            quotes = "\"`r'" if self._suffix in _SINGLY else '"`r'
            if token.kind == "string" and token.text[0] in quotes:
                yield Edit(token.start, token.end, self._emptied(token.text))
            inner = code.closing.get(at)
            if inner is not None and (code.text(at - 1) in _FORMATS or code.text(at - 2) in _FORMATS):
                for one in code.elements(at):
                    yield from self._unsaid(one)
            at = at + 1 if inner is None else inner + 1

    def _emptied(self, text: str) -> str:
        lines = "\n" * text.count("\n")
        verbs = " ".join(_VERBS[self._suffix].findall(text))
        if text.startswith('"""'):
            return f'"""\n{verbs}{lines[1:]}"""'
        quote = text[0] if text[0] in "\"'`" else '"'
        if self._suffix == "" and (lines or verbs):
            quote = "`"
        return f"{quote}{verbs}{lines}{quote}"
