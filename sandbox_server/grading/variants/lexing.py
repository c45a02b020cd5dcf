"""Splits source text of Go, Java, JavaScript, TypeScript and Rust into tokens and comments. Pure.

There is no parser here. In JavaScript a slash after `}` is a guess; what the lexer knows to have misread is `stray`.
Text is decoded as Latin-1, so that positions are those of bytes.
"""

import re
from dataclasses import dataclass
from typing import Literal

SCRIPTS = (".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".mts", ".cts")
SUFFIXES = (".go", ".java", ".rs", *SCRIPTS)

Kind = Literal["comment", "string", "number", "word", "sign", "text", "stray"]
"""text: between the tags of JSX, or a first line that starts with #!. stray: an opening quote, or the opening of a
comment or template, that nothing closes."""

_QUOTED = r'"(?:\\.|[^"\\\n])*"'
_RUNE = r"'(?:\\[^\n][^'\n]{0,9}|[^'\\\n\x80-\xff]|[\x80-\xff]{2,4})'"
_STRINGS = {
    ".go": rf"{_QUOTED}|`[^`]*`|{_RUNE}",
    ".java": rf'"{{3}}(?:\\.|[^\\])*?"{{3}}|{_QUOTED}|{_RUNE}',
    ".rs": rf'\b[bc]?r(?P<hashes>\#*)".*?"(?P=hashes)|"(?:\\.|[^"\\])*"|{_RUNE}',
    "": r""""(?:\\\r\n|\\.|[^"\\\n])*"|'(?:\\\r\n|\\.|[^'\\\n])*'""",
}
_BLOCK = {".rs": "(?!)"}
"""Block comments that do not end at the first sign of an end."""
_TOKENS = {
    suffix: re.compile(
        rf"""\s+
        |(?P<comment>//[^\r\n]*|{_BLOCK.get(suffix, r"/[*].*?[*]/")})
        |(?P<string>{strings})
        |(?P<number>\d(?:\w|\.(?![.A-Za-z_]))*)
        |(?P<word>'?[A-Za-z_$\x80-\xff][\w$\x80-\xff]*)
        |(?P<stray>/\*|["'`])
        |(?P<sign>===|!==|==|!=|=>|:=|->|::|\S)""",
        re.VERBOSE | re.DOTALL,
    )
    for suffix, strings in _STRINGS.items()
}
_NESTED = re.compile(r"/\*|\*/")
_REGEX = re.compile(r"/(?![*/])(?:\\[^\n]|\[(?:\\[^\n]|[^\]\\\n])*\]|[^/\\\[\n])+/[a-z]*")
_BEFORE_VALUE = "return typeof case in of delete void throw new instanceof else do yield await default extends"
_BEFORE_REGEX = frozenset(_BEFORE_VALUE.split())
_BEFORE_ELEMENT = frozenset({"return", "default", "case", "else", "yield", "await"})
_HEADED = frozenset({"if", "while", "for", "with"})
_ELEMENT = re.compile(r"<(?:>|[A-Za-z_$][\w$.:-]*(?=[\s/>]))(?!\s*(?:extends\b|=))")
_CLOSING_TAG = re.compile(r"</[^<>]*>")
_ATTRIBUTE_TEXT = re.compile(r"""\s*("[^"]*"|'[^']*')""")
_JSX_TEXT = re.compile(r"[^<{]+")
_OPENING, _CLOSING = "([{", ")]}"


@dataclass(frozen=True, slots=True)
class Token:
    """One token or comment."""

    kind: Kind
    text: str
    start: int
    """Its first byte."""

    @property
    def end(self) -> int:
        """After its last byte."""
        return self.start + len(self.text)


def lexed(path: str, text: bytes) -> list[Token]:
    """The tokens and comments of a file whose name ends with one of SUFFIXES."""
    suffix = path[path.rindex(".") :]
    lexer = _Lexer(text.decode("latin-1"), suffix)
    try:
        lexer.code(0)
    except RecursionError:  # templates or elements within each other
        lexer.tokens.append(Token("stray", "", 0))
    return lexer.tokens


class _Lexer:
    def __init__(self, text: str, suffix: str) -> None:
        self._text = text
        self._suffix = suffix
        self._script = suffix in SCRIPTS
        self._pattern = _TOKENS["" if self._script else suffix]
        self._elements = suffix in (".js", ".jsx", ".tsx", ".mjs", ".cjs")
        self.tokens: list[Token] = []
        self._last = ("", "")
        """Kind and text of the last token that is no comment."""

    def code(self, at: int, *, inner: bool = False) -> int:
        """Read from `at`; `inner`: to the bracket that closes one before it. Returns the position after that."""
        open_: list[tuple[str, str]] = []  # the word before each open bracket
        if not at and self._script and self._text.startswith("#!"):
            at = self._add("text", 0, self._text.find("\n") if "\n" in self._text else len(self._text))
        while at < len(self._text):
            found = self._pattern.match(self._text, at)
            assert found is not None  # the last alternative matches any character
            kind, text, before = found.lastgroup, found[0], self._last
            if kind == "hashes":
                kind = "string"
            if kind is None:
                at = found.end()
            elif text in ("/", "/*", "`", "<", "'") or (kind == "word" and text[0] == "'"):
                at = self._special(kind, text, at, open_)
            else:
                at = self._add(kind, at, found.end())
                if kind == "sign" and text in _OPENING:
                    open_.append(before)
                elif kind == "sign" and text in _CLOSING:
                    if inner and not open_:
                        return at
                    head = open_.pop() if open_ else ("", "")
                    if text == ")" and head[1] in _HEADED:
                        self._last = ("sign", "if()")
        return at

    def _add(self, kind: str, start: int, end: int) -> int:
        token = Token(kind, self._text[start:end], start)  # type: ignore[arg-type]  # the names of the pattern's groups
        self.tokens.append(token)
        if kind != "comment":
            self._last = (kind, token.text)
        return end

    def _special(self, kind: str, text: str, at: int, open_: list[tuple[str, str]]) -> int:
        """What the pattern alone cannot tell."""
        if text == "/*" and self._suffix == ".rs":
            depth = 0
            for mark in _NESTED.finditer(self._text, at):
                depth += 1 if mark[0] == "/*" else -1
                if not depth:
                    return self._add("comment", at, mark.end())
        elif text == "`" and self._script:
            return self._template(at)
        elif text == "/" and self._script and (regex := _REGEX.match(self._text, at)) and self._begins_regex(at):
            return self._add("string", at, regex.end())
        elif text == "<" and self._elements and self._begins_element() and _ELEMENT.match(self._text, at):
            return self._element(at)
        elif kind == "word":  # 'a is a lifetime in Rust, and an open quote elsewhere
            return self._add("word", at, at + len(text)) if self._suffix == ".rs" else self._add("stray", at, at + 1)
        return self._add(kind, at, at + len(text))

    def _begins_regex(self, at: int) -> bool:
        kind, text = self._last
        if kind == "word":
            return text in _BEFORE_REGEX
        if text == "}":
            return "\n" in self._text[self.tokens[-1].end : at]
        if text in ("+", "-") and self._text.endswith(text, 0, self.tokens[-1].start):
            return False  # a++ / b
        return kind in ("", "text") or (kind == "sign" and text not in (")", "]", "<"))

    def _begins_element(self) -> bool:
        kind, text = self._last
        if kind == "word":
            return text in _BEFORE_ELEMENT
        return kind in ("", "text") or (kind == "sign" and text not in (")", "]", ">"))

    def _template(self, at: int) -> int:
        """One token, with all values that come in."""
        to = at + 1
        while to < len(self._text):
            if self._text[to] == "`":
                return self._add("string", at, to + 1)
            if self._text.startswith("${", to):
                to = _Lexer(self._text, self._suffix).code(to + 2, inner=True)
            else:
                to += 2 if self._text[to] == "\\" else 1
        return self._add("stray", at, at + 1)

    def _element(self, at: int) -> int:
        """An element of JSX with its children."""
        at = self._add("sign", at, at + 1)
        while at < len(self._text) and self._text[at] != ">":  # its tag
            if self._text.startswith("/>", at):
                return self._add("sign", at, at + 2)
            if self._text[at] == "{":
                at = self.code(self._add("sign", at, at + 1), inner=True)
            elif self._text[at] == "=" and (said := _ATTRIBUTE_TEXT.match(self._text, at + 1)):
                self._add("sign", at, at + 1)
                at = self._add("string", said.start(1), said.end())
            else:
                found = self._pattern.match(self._text, at)
                assert found is not None
                end = found.end() if found.lastgroup in (None, "comment", "word", "number") else at + 1
                at = self._add(found.lastgroup, at, end) if found.lastgroup else end
        at = self._add("sign", at, at + 1)
        while at < len(self._text):  # its children
            if tag := _CLOSING_TAG.match(self._text, at):
                return self._add("text", at, tag.end())
            if self._text[at] == "{":
                at = self.code(self._add("sign", at, at + 1), inner=True)
            elif self._text[at] == "<":
                at = self._element(at)
            else:
                said = _JSX_TEXT.match(self._text, at)
                assert said is not None
                at = self._add("text", at, said.end())
        return self._add("stray", at, at)
