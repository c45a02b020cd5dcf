"""Finds test functions by name, and the parts of calls, in the languages of `lexing.SUFFIXES`. Pure.

A misreading only costs variants: each variant is tried with gold before it is used.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sandbox_server.grading.variants.lexing import CPP, Token, lexed
from sandbox_server.grading.variants.ruby import AROUND, TITLED, lexed_ruby

_OPENING, _CLOSING = "([{", ")]}"
_CODE = frozenset({"string", "number", "word", "sign"})
_TITLED = frozenset({"it", "test", "specify", "fit"})
_FILLED = re.compile(r"\$\{[^}]*\}|%[sdifjopc#]|\$[A-Za-z_][\w.]*")
"""Placeholders in a title: of a template's values, and of the values in a table's row (jest, vitest)."""
_FILLED_RUBY = re.compile(r"#\{[^}]*\}")
_PROVIDER = re.compile(r"@dataProvider[ \t]{1,9}([A-Za-z_]\w{0,99})\b(?![:\\])")
_TITLED_CPP = frozenset({"TEST_CASE", "SECTION", "SUBCASE", "SCENARIO"})
_NAMED_CPP = re.compile(r"(?:TYPED_)?TEST(?:_[FP])?")


@dataclass(frozen=True, slots=True)
class Code:
    """A file's tokens and brackets."""

    path: str
    tokens: Sequence[Token]
    """Without comments."""
    closing: Mapping[int, int]
    """Number of an opening bracket's token -> that of its closing one."""
    places: Mapping[str, Sequence[int]]
    """Word -> numbers of its tokens."""
    titles: Sequence[tuple[Sequence[str], range]]
    """Blocks such as `it("adds", () => {...})`: (title split at its placeholders, tokens)."""
    providers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """PHP method -> the file's data providers for it."""

    @classmethod
    def of(cls, path: str, text: bytes) -> "Code":
        """Read a file."""
        return cls.made_of(path, read(path, text))

    @classmethod
    def made_of(cls, path: str, found: Sequence[Token]) -> "Code":
        """From what `read` found."""
        tokens = [token for token in found if token.kind in _CODE]
        closing: dict[int, int] = {}
        open_: list[int] = []
        for at, token in enumerate(tokens):
            if token.kind == "sign" and token.text in _OPENING:
                open_.append(at)
            elif token.kind == "sign" and token.text in _CLOSING and open_:
                closing[open_.pop()] = at
        places: dict[str, list[int]] = {}
        for at, token in enumerate(tokens):
            if token.kind == "word":
                places.setdefault(token.text, []).append(at)
        if path.endswith(".rb"):
            return cls(path, tokens, closing, places, _titled_in_ruby(tokens, closing))
        titled = _TITLED_CPP if path.endswith(CPP) else _TITLED
        called = (_titled_block(tokens, closing, at) for word in titled for at in places.get(word, ()))
        blocks = [block for block in called if block is not None]
        if path.endswith(CPP):  # the block follows the call, and is not part of it
            behind = ((title, body.stop + 1) for title, body in blocks)
            blocks = [(title, range(at, closing[at] + 1)) for title, at in behind if at in closing]
        return cls(path, tokens, closing, places, blocks, _providers(found) if path.endswith(".php") else {})

    def text(self, at: int) -> str:
        """Text of a token; "" beyond the ends."""
        return self.tokens[at].text if 0 <= at < len(self.tokens) else ""

    def words(self, span: range) -> str:
        """The tokens of a span, joined by blanks, to compare it with other text."""
        return " ".join(self.tokens[at].text for at in span)

    def elements(self, opening: int) -> list[range]:
        """The parts between an opening bracket and its closing one, separated by commas."""
        parts: list[range] = []
        at = begin = opening + 1
        while at < self.closing[opening]:
            if self.text(at) == ",":
                parts.append(range(begin, at))
                begin = at + 1
            at = self.closing.get(at, at) + 1
        return [*parts, range(begin, self.closing[opening])]

    def bodies(self, name: str) -> list[range]:
        """The tokens of each function, class or titled block that the row's test `name` may refer to."""
        if self.path.endswith(".php"):
            return [body for word in self._prettified(name) for body in self._declared(word, whole=False)]
        if not self.path.endswith((".go", ".rs", ".java")):
            titled = self._titled(name.strip().encode().decode("latin-1"))
            return titled or [*self._named(name)]
        words = _names(name, self.path)
        found = ([*self._declared(word, whole)] for whole in (False, True) for word in words)
        return next(filter(None, found), [])

    def provided(self, name: str) -> list[tuple[str, range]]:
        """(method, tokens of a data provider of it) for each PHP method that test `name` may refer to."""
        return [
            (word, body)
            for word in self._prettified(name)
            for provider in self.providers.get(word, ())
            for body in self._declared(provider, whole=False)
        ]

    def _declared(self, word: str, whole: bool) -> Iterator[range]:
        """The bodies of functions called `word`; `whole`: of classes instead."""
        for at in self.places.get(word, ()):
            called = self.text(at + 1) not in ("(", "<") or self.text(at - 1) in {".", "new", "(", "=", "class"}
            if self.text(at - 1) == "class" if whole else not called:
                body = next((to for to in range(at + 1, min(at + 60, len(self.tokens))) if self.text(to) in "{;}"), -1)
                if self.text(body) == "{" and body in self.closing:
                    yield range(body, self.closing[body] + 1)

    def _named(self, name: str) -> Iterator[range]:
        """The methods `def test_a` of Ruby, and the functions `TEST(Suite, a)` of C++."""
        words = re.findall(r"\w+", re.sub(r"/\w+$", "", name) if self.path.endswith(CPP) else name)
        for at in self.places.get(words[-1], ()) if words else ():
            if self.path.endswith(".rb") and self.text(at - 1) == "def":
                opening = next((to for to in range(at, min(at + 20, len(self.tokens))) if self.text(to) == "{"), -1)
            elif self.path.endswith(CPP) and _NAMED_CPP.fullmatch(self.text(at - 4)) and self.text(at + 1) == ")":
                opening = at + 2 if self.text(at - 2) in words[:-1] else -1
            else:
                continue
            if opening in self.closing:
                yield range(opening, self.closing[opening] + 1)

    def _prettified(self, name: str) -> list[str]:
        """The methods of PHP that PHPUnit shows so: `testItAdds` of `SumTest` as `Sum > It adds with data set #0`."""
        suite, _, title = name.rpartition(" > ")
        classes = {_plain(self.text(at + 1).removesuffix("Test")) for at in self.places.get("class", ())}
        if suite and not any(_plain(suite).endswith(one) for one in classes if one):
            return []
        methods = {self.text(at + 1) for at in self.places.get("function", ())}
        plain = {word: _plain(re.sub(r"^test_?", "", word)) for word in sorted(methods)}
        named = (
            [word for word in plain if plain[word] == _plain(one)] for one in (title, title.partition(" with ")[0])
        )
        found = next(filter(None, named), [])
        return [word for word in found if word.startswith("test")] or found

    def _titled(self, name: str) -> list[range]:
        """The blocks with the longest title that `name` ends with."""
        found: dict[int, list[range]] = {}
        for title, body in self.titles:
            if (length := sum(map(len, title))) and _ends_with(name, title):
                found.setdefault(length, []).append(body)
        return found[max(found)] if found else []


def read(path: str, text: bytes) -> list[Token]:
    """The tokens and comments of a file whose name ends with one of `lexing.SUFFIXES`."""
    return lexed_ruby(text.decode("latin-1")) if path.endswith(".rb") else lexed(path, text)


def _providers(found: Sequence[Token]) -> dict[str, Sequence[str]]:
    """PHP method -> its providers, by `#[DataProvider('cases')]` or `@dataProvider cases`; none of other classes."""
    providers: dict[str, Sequence[str]] = {}
    waiting: list[str] = []
    for at, token in enumerate(found[:-2]):
        if token.kind == "comment":
            waiting += _PROVIDER.findall(token.text)
        elif token.text == "DataProvider" and found[at + 2].kind == "string":
            waiting.append(found[at + 2].text[1:-1])
        elif token.text == "function" or token.text in "{}":
            if token.text == "function" and waiting:
                providers[found[at + 1].text] = tuple(waiting)
            waiting = []
    return providers


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower()


def _titled_in_ruby(tokens: Sequence[Token], closing: Mapping[int, int]) -> list[tuple[Sequence[str], range]]:
    """Blocks such as `it "adds" do ... end`: each by its own title, and by that with the titles around it in front."""
    found: list[tuple[Sequence[str], range]] = []
    around: list[tuple[str, int]] = []  # title, and number of the token that closes its block
    for at, token in enumerate(tokens[:-1]):
        if token.kind != "word" or token.text not in TITLED | AROUND:
            continue
        said = at + 2 if tokens[at + 1].text == "(" else at + 1
        opening = next((to for to in range(said, min(said + 40, len(tokens))) if tokens[to].text == "{"), -1)
        if opening not in closing or said >= len(tokens):
            continue
        text = tokens[said].text
        title = re.sub(r"\\(.)", r"\1", text[1:-1]) if tokens[said].kind == "string" and text[0] in "\"'" else ""
        around = [(outer, end) for outer, end in around if end > at]
        whole = " ".join([*(outer for outer, _ in around), title])
        if token.text in AROUND:
            if not title:  # a constant
                words = (tokens[to].text for to in range(said, opening))
                title = re.split(r"[,{]| do\b", "".join(word if word != "do" else "," for word in words))[0]
            around.append((title, closing[opening]))
        elif title:
            body = range(opening, closing[opening] + 1)
            found += [(_FILLED_RUBY.split(one), body) for one in {title: None, re.sub(" (?=[#.])", "", whole): None}]
    return found


def _titled_block(tokens: Sequence[Token], closing: Mapping[int, int], at: int) -> tuple[Sequence[str], range] | None:
    """Title and tokens of the block whose word is at `at`: `it(...)`, `it.only(...)`, `it.each([...])(...)`.

    The tokens include the table.
    """
    begin = at + 1
    while [token.text for token in tokens[begin : begin + 1]] == ["."]:
        begin += 2
    opening = begin + 1 if begin < len(tokens) and tokens[begin].kind == "string" else begin  # each`a | b ...`(...)
    if opening in closing and closing[opening] + 1 in closing and tokens[closing[opening] + 1].text == "(":
        opening = closing[opening] + 1
    if opening not in closing or tokens[opening + 1].kind != "string":
        return None
    title = re.sub(r"\\(.)", r"\1", tokens[opening + 1].text[1:-1])
    return _FILLED.split(title), range(begin if begin != opening else opening + 2, closing[opening])


def _ends_with(name: str, title: Sequence[str]) -> bool:
    """Whether `name` ends with the title, with at least one character for each of its placeholders."""
    end = len(name) - len(title[-1])
    if not name.endswith(title[-1]):
        return False
    for part in reversed(title[:-1]):
        if (end := name.rfind(part, 0, max(end - 1, 0))) < 0:
            return False
    return not title[0] or not name[:end][-1:].isalnum()


def _names(name: str, path: str) -> list[str]:
    """The words of a test's name that may be its function's name, the likeliest first."""
    if path.endswith(".rs"):
        return [name.split("::")[-1]]
    if path.endswith(".go"):
        head, *subtests = name.split("/")
        return [*(part for part in reversed(subtests) if part.startswith("Test")), head]
    return [*reversed(re.findall(r"\w+", name))]
