"""Splits source text of C++, Go, Java, JavaScript, TypeScript, PHP and Rust into tokens and comments. Pure.

There is no parser, so what a slash after `}` means in JavaScript is a guess. A token that the lexer knows it has
misread is `stray`. Text is decoded as Latin-1, so that positions are byte offsets.
"""

import re
from dataclasses import dataclass
from typing import Literal

SCRIPTS = (".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".mts", ".cts")
CPP = (".cc", ".cpp", ".cxx")
SUFFIXES = (".go", ".java", ".rb", ".rs", ".php", *CPP, *SCRIPTS)

Kind = Literal["comment", "string", "number", "word", "sign", "text", "stray"]
"""text: between the tags of JSX, or a first line that starts with #!. stray: an opening quote, or the opening of a
comment or template, that nothing closes."""

_QUOTED = r'"(?:\\.|[^"\\\n])*"'
_RUNE = r"'(?:\\[^\n][^'\n]{0,9}|[^'\\\n\x80-\xff]|[\x80-\xff]{2,4})'"
_SCRIPT = r""""(?:\\\r\n|\\.|[^"\\\n])*"|'(?:\\\r\n|\\.|[^'\\\n])*'"""
_STRINGS = {
    ".go": rf"{_QUOTED}|`[^`]*`|{_RUNE}",
    ".java": rf"{_QUOTED}|{_RUNE}",
    ".rs": rf'"(?:\\.|[^"\\])*"|{_RUNE}',
    ".php": _SCRIPT,
    ".cc": rf"{_QUOTED}|{_RUNE}",
    "": _SCRIPT,
}
_HASH = r"|\#(?!\[)[^\r\n]*"
"""PHP has comments of this form too; #[...] is an attribute."""
_TOKENS = {
    suffix: re.compile(
        rf"""\s+
        |(?P<comment>//[^\r\n]*{_HASH if suffix == ".php" else ""})
        |(?P<string>{strings})
        |(?P<number>\d(?:\w|\.(?![.A-Za-z_]))*)
        |(?P<word>'?[A-Za-z_$\x80-\xff][\w$\x80-\xff]*)
        |(?P<stray>/\*|["'`])
        |(?P<sign>===|!==|==|!=|=>|:=|->|::|\S)""",
        re.VERBOSE | re.DOTALL,
    )
    for suffix, strings in _STRINGS.items()
}
_INSIDE = {
    '"': re.compile(r'(?:\\\r\n|\\.|[^"\\\n])*', re.DOTALL),
    "'": re.compile(r"(?:\\\r\n|\\.|[^'\\\n])*", re.DOTALL),
}
"""Quote -> the text that may follow it in a string on one line."""
_RAW = re.compile(r'\b[bc]?r(#*)"')
_RAW_CPP = re.compile(r'\bR"([^()\\\s]{0,16})\(')
_HEREDOC = re.compile(r"""<<<[ \t]*(["']?)(\w{1,60})\1\r?\n""")
_TEXT_BLOCK = re.compile(r'"{3}(?:\\.|[^\\])*?"{3}', re.DOTALL)
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
_QUOTES = "\"'`"


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
    """The tokens and comments of a file with one of SUFFIXES, except .rb."""
    suffix = path[path.rindex(".") :]
    suffix = CPP[0] if suffix in CPP else suffix
    lexer = _Lexer(text.decode("latin-1"), suffix)
    try:
        lexer.code(0)
    except RecursionError:  # templates or elements within each other
        lexer.tokens.append(Token("stray", "", 0))
    return lexer.tokens


class _Unclosed(Exception):  # not named an error: it only stops the reading of a template
    """The text ends within a template."""


class _Lexer:
    """Reads in linear time: a missing closing sign is searched for only once."""

    def __init__(self, text: str, suffix: str, around: "_Lexer | None" = None) -> None:
        """`around`: the lexer of the template that contains the code to read."""
        self._text = text
        self._suffix = suffix
        self._script = suffix in SCRIPTS
        self._quoting = self._script or suffix == ".php"
        """Whether ' quotes strings too."""
        self._pattern = _TOKENS["" if self._script else suffix]
        self._elements = suffix in (".js", ".jsx", ".tsx", ".mjs", ".cjs")
        self.tokens: list[Token] = []
        self._last = ("", "")
        """Kind and text of the last token, without comments."""
        self._documents: dict[int, int] = {}
        """Where a document of PHP begins -> where it ends."""
        self._around = around
        self._unclosed: dict[str, int] = around._unclosed if around else {}
        """Opening sign -> position before which it is never closed, known from an earlier search up to there."""

    def code(self, at: int, *, inner: bool = False) -> int:
        """Read from `at` to the end; `inner`: only to the bracket that closes one opened before `at`.

        Returns the position after the last token read.
        """
        open_: list[tuple[str, str]] = []  # the word before each open bracket
        if not at and self._script and self._text.startswith("#!"):
            at = self._add("text", 0, self._text.find("\n") if "\n" in self._text else len(self._text))
        while at < len(self._text):
            kind, end = self._next(at)
            text, before = self._text[at:end], self._last
            if not kind:
                at = end
            elif text in ("/", "/*", "`", "<", "'") or (kind == "word" and text[0] == "'"):
                at = self._special(kind, text, at)
            else:
                at = self._add(kind, at, end)
                if kind == "sign" and text in _OPENING:
                    open_.append(before)
                elif kind == "sign" and text in _CLOSING:
                    if inner and not open_:
                        return at
                    head = open_.pop() if open_ else ("", "")
                    if text == ")" and head[1] in _HEADED:
                        self._last = ("sign", "if()")
        return at

    def _next(self, at: int) -> tuple[str, int]:
        """Kind and end of what begins at `at`; white space has no kind."""
        if long := self._long(at):
            return long
        text, first = self._text, self._text[at]
        if first in _QUOTES and self._is_open(first, at):
            return "stray", at + 1
        found = self._pattern.match(text, at)
        assert found is not None  # the last alternative matches any character
        kind = found.lastgroup or ""
        if first == '"' and self._suffix == ".rs" and kind == "stray":
            self._unclosed[first] = len(text)
        elif (first == '"' and kind == "stray") or (first == "'" and self._quoting and kind in ("stray", "word")):
            inside = _INSIDE[first].match(text, at + 1)
            self._unclosed[first] = inside.end() if inside else at + 1
        return kind, found.end()

    def _long(self, at: int) -> tuple[str, int] | None:
        """(kind, end) of a string that may span several lines, or of the sign that announces it (PHP's `<<<END`)."""
        text, first = self._text, self._text[at]
        if at in self._documents:
            return "string", self._documents[at]
        match self._suffix, first:
            case ".rs", "b" | "c" | "r" if raw := _RAW.match(text, at):
                return self._until('r"', f'"{raw[1]}', raw.end())
            case ".cc", "R" if raw := _RAW_CPP.match(text, at):
                return self._until('R"', f'){raw[1]}"', raw.end())
            case ".java", '"' if text.startswith('"""', at) and not self._is_open('"""', at):
                if block := _TEXT_BLOCK.match(text, at):
                    return "string", block.end()
                self._unclosed['"""'] = len(text)
            case ".php", "<" if opened := _HEREDOC.match(text, at):
                if not self._is_open(opened[0], at):
                    if end := re.compile(rf"^[ \t]*{opened[2]}\b", re.MULTILINE).search(text, opened.end()):
                        self._documents[opened.end()] = max(end.start(), opened.end() + 1)
                    else:
                        self._unclosed[opened[0]] = len(text)
                return "sign", opened.end()
        return None

    def _until(self, opening: str, closing: str, begin: int) -> tuple[str, int] | None:
        """(kind, end) of the raw string whose content begins at `begin`; None if it is not closed."""
        if self._is_open(opening, begin):
            return None
        end = self._text.find(closing, begin)
        if end < 0:
            self._unclosed[opening] = len(self._text)
            return None
        return "string", end + len(closing)

    def _is_open(self, opening: str, at: int) -> bool:
        return at < self._unclosed.get(opening, 0)

    def _add(self, kind: str, start: int, end: int) -> int:
        token = Token(kind, self._text[start:end], start)  # type: ignore[arg-type]  # the names of the pattern's groups
        self.tokens.append(token)
        if kind != "comment":
            self._last = (kind, token.text)
        return end

    def _special(self, kind: str, text: str, at: int) -> int:
        """Read a token whose kind the pattern alone cannot tell; returns its end."""
        if text == "/*":
            if end := self._comment_end(at):
                return self._add("comment", at, end)
        elif text == "`" and self._script and kind == "stray" and not self._is_open("`", at):
            return self._template(at)
        elif text == "/" and self._script and not self._is_open("/", at) and self._begins_regex(at):
            if regex := _REGEX.match(self._text, at):
                return self._add("string", at, regex.end())
            line = self._text.find("\n", at)
            self._unclosed["/"] = line if line >= 0 else len(self._text)
        elif text == "<" and self._elements and self._begins_element() and _ELEMENT.match(self._text, at):
            return self._element(at)
        elif kind == "word":  # 'a is a lifetime in Rust, and an open quote elsewhere
            return self._add("word", at, at + len(text)) if self._suffix == ".rs" else self._add("stray", at, at + 1)
        return self._add(kind, at, at + len(text))

    def _comment_end(self, at: int) -> int:
        """The end of a comment between signs; 0 if it has none."""
        if self._is_open("/*", at):
            return 0
        if self._suffix == ".rs":
            depth = 0
            for mark in _NESTED.finditer(self._text, at):
                depth += 1 if mark[0] == "/*" else -1
                if not depth:
                    return mark.end()
        elif (end := self._text.find("*/", at + 2)) >= 0:
            return end + 2
        self._unclosed["/*"] = len(self._text)
        return 0

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
        """Read a template, with the values inserted in it, as one token; returns its end."""
        to = at + 1
        try:
            while to < len(self._text):
                if self._text[to] == "`":
                    return self._add("string", at, to + 1)
                if self._text.startswith("${", to):
                    to = _Lexer(self._text, self._suffix, around=self).code(to + 2, inner=True)
                else:
                    to += 2 if self._text[to] == "\\" else 1
            raise _Unclosed
        except _Unclosed:
            self._unclosed["`"] = len(self._text)
            if self._around is not None:
                raise
        return self._add("stray", at, at + 1)

    def _element(self, at: int) -> int:
        """Read a JSX element with its children; returns its end."""
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
                kind, end = self._next(at)
                if self._text.startswith("/*", at):
                    end = self._comment_end(at)
                    kind = "comment" if end else "sign"
                end = end if kind in ("", "comment", "word", "number") else at + 1
                at = self._add(kind, at, end) if kind else end
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
