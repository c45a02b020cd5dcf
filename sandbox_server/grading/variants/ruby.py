"""Splits Ruby test files into the tokens that `tokens` and `lexed_languages` read. Pure.

Ruby has blocks and calls without brackets, so brackets are inserted as tokens: braces where a line's `do` or `def` is
closed by an `end` of the same indentation, and parentheses around the arguments of an assertion. These tokens stand for
no text of the file, and nothing edits them. A heredoc (`<<~END`) is one string token, in the place of its `<<~END`.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sandbox_server.grading.variants.lexing import Token

TITLED = frozenset({"it", "test", "specify", "should", "scenario", "example"})
AROUND = frozenset({"describe", "context", "feature", "sub_test_case"})
_ASSERTING = re.compile(
    r"(?:assert|refute|must|wont|expect|be|have|start|end)_\w+[?!]?|assert|refute|eql?|equal|be|match|include|contain"
    r"|raise_error"
)
_BLOCK = frozenset({"do", "def", "class", "module"})
_ENDS_NO_LINE = frozenset({",", "&&", "||", "+", ".", "\\"})

_HEREDOC = re.compile(r"""<<[~-]?(["'`]?)([A-Z_][A-Za-z0-9_]*)\1""")
_TOKEN = re.compile(
    r"""[ \t\r]+
    |(?P<comment>\#[^\n]*)
    |(?P<string>"(?:\\.|\#\{[^}\n]{0,200}\}|\#(?!\{)|[^"\\\n\#])*"|'(?:\\.|[^'\\\n])*'
        |%[wWiIqQ][(\[{<|][^)\]}>|\n]{0,400}[)\]}>|]|(?<![\w:?]):[A-Za-z_]\w*[?!]?(?!:))
    |(?P<number>\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?)
    |(?P<word>[@$]*[A-Za-z_]\w*[?!]?)
    |(?P<sign>===|==|!=|=~|=>|->|::|&&|\|\||\n|.)""",
    re.VERBOSE | re.DOTALL,
)
_REGEX = re.compile(r"/(?:\\.|[^/\\\n])+/[imxounse]*")
_BEFORE_REGEX = frozenset({"", "(", ",", "[", "{", "=", "=~", "match", "when", "if", "unless", "and", "or", "not"})


@dataclass(slots=True)
class _Line:
    """The tokens of one line, in order."""

    indentation: int
    tokens: list[Token] = field(default_factory=list)

    def opens(self) -> int:
        """Number of the token at which a block begins in this line; -1 if none does."""
        tokens = [token for token in self.tokens if token.kind != "comment"]
        words = [token.text if token.kind == "word" else "" for token in tokens]
        if not words or "end" in words[1:]:
            return -1
        if words[0] in _BLOCK:
            return len(words)
        if "do" not in words:
            return -1
        at = words.index("do") + 1
        return at if at == len(words) or tokens[at].text == "|" else -1


def lexed_ruby(text: str) -> list[Token]:
    """The tokens and comments of a file, and the inserted brackets."""
    lines = list(_lines(text))
    closed = _closed(lines)
    ends = set(closed.values())
    tokens: list[Token] = []
    for number, line in enumerate(lines):
        body, opens = list(line.tokens), line.opens()
        if number in ends:
            tokens.append(_sign("}", body[0]))
            body = body[1:]
        elif number in closed and opens >= 0:
            body.insert(opens, _sign("{", body[opens - 1]))
        tokens += _with_parentheses(body)
    return tokens


def _sign(text: str, near: Token) -> Token:
    return Token("sign", text, near.start)


def _lines(text: str) -> Iterator[_Line]:
    """Each line that has a token; a statement that goes on in the next lines counts as one line."""
    at, line, depth = 0, _Line(0), 0
    waiting: list[tuple[int, re.Match[str]]] = []
    unended = set[str]()
    before = ""
    while at < len(text):
        if text.startswith("=begin", at) and (not at or text[at - 1] == "\n"):
            end = text.find("\n=end", at)
            end = len(text) if end < 0 else end + 5
            yield _Line(0, [Token("comment", text[at:end], at)])
            at = end
            continue
        if text[at] == "<" and (heredoc := _HEREDOC.match(text, at)):
            waiting.append((len(line.tokens), heredoc))
            line.tokens.append(Token("word", heredoc[0], at))
            at, before = heredoc.end(), heredoc[0]
            continue
        found = _REGEX.match(text, at) if text[at] == "/" and before in _BEFORE_REGEX else None
        kind = "string" if found else ""
        found = found or _TOKEN.match(text, at)
        assert found is not None  # the last alternative matches any character
        kind, said = kind or found.lastgroup or "", found[0]
        if said == "\n":
            at = _documents(text, found.end(), line, waiting, unended)
            if line.tokens and depth <= 0 and before not in _ENDS_NO_LINE:
                yield line
                line, depth = _Line(0), 0
            continue
        if kind:
            if not line.tokens:
                line.indentation = at - text.rfind("\n", 0, at) - 1
            line.tokens.append(Token(kind, said, at))  # type: ignore[arg-type]  # the names of the pattern's groups
            depth += (said in "([{") - (said in ")]}") if kind == "sign" else 0
            before = said if kind != "comment" else before
        at = found.end()
    if line.tokens:
        yield line


def _documents(text: str, at: int, line: _Line, waiting: list[tuple[int, re.Match[str]]], unended: set[str]) -> int:
    """Read the heredocs that the line before `at` announces; return where the next line begins.

    `unended`: end words that are known not to appear in the rest of the text.
    """
    for number, heredoc in waiting:
        if heredoc[2] in unended:
            continue
        end = re.compile(rf"^[ \t]*{heredoc[2]}$", re.MULTILINE).search(text, at)
        if end is None:
            unended.add(heredoc[2])
            continue
        line.tokens[number] = Token("string", text[at : end.start()], at)
        at = end.end() + 1
    waiting.clear()
    return at


def _closed(lines: Sequence[_Line]) -> dict[int, int]:
    """Number of a line that opens a block -> that of its `end`."""
    closed: dict[int, int] = {}
    open_: list[tuple[int, int]] = []  # indentation and number
    for number, line in enumerate(lines):
        while open_ and open_[-1][0] > line.indentation:
            open_.pop()
        if line.tokens[0].text == "end" and open_ and open_[-1][0] == line.indentation:
            closed[open_.pop()[1]] = number
        elif line.opens() >= 0:
            open_.append((line.indentation, number))
    return closed


def _with_parentheses(body: list[Token]) -> list[Token]:
    """The line with parentheses around the arguments of its assertions."""
    made: list[Token] = []
    owed: list[int] = []  # depth at which each one is closed
    depth = 0
    for at, token in enumerate(body):
        after = body[at + 1] if at + 1 < len(body) else None
        if token.kind == "sign" and token.text in ")]}":
            depth -= 1
        while owed and (depth < owed[-1] or (token.text in ("{", "do") and depth == owed[-1])):
            made.append(_sign(")", token))
            owed.pop()
        if token.kind == "sign" and token.text in "([{":
            depth += 1
        made.append(token)
        if token.kind == "word" and _ASSERTING.fullmatch(token.text) and after is not None and _begins(token, after):
            made.append(_sign("(", after))
            owed.append(depth)
    return made + [_sign(")", body[-1]) for _ in owed]


def _begins(word: Token, after: Token) -> bool:
    """Whether `after` begins the first argument of a command."""
    if after.kind in ("string", "number"):
        return True
    if after.kind == "word":
        return after.text not in ("do", "if", "unless", "and", "or", "end")
    return after.text in ("[", "->", ":", "-", "!", "::") and after.start > word.end
