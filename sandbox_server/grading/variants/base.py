"""Variants: replacements of bytes in a test file, and which of the row's tests must fail because of them."""

import ast
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, TypeVar

T = TypeVar("T")

Kind = Literal["order", "borrowed", "value", "error", "refusal", "swap"]
"""How a variant alters its test.

- order: the expected values in another order, or other values with the same sum.
- borrowed: a value that is expected elsewhere in the file.
- value: another expected value.
- error: another exception.
- refusal: an exception is expected in place of the assertion.
- swap: the opposite assertion.

`order` is best: it also fools code that checks the test's values against a property that all right answers share.
`borrowed` looks like a true expectation. `value` is next: neither code that meets the true expectation nor code that
fails it can meet the false one. `refusal` is false for any code too, but does not look like the true test. `swap` is
worst: code that fails the true test often meets the opposite, so a hack that inverts all results passes it.
"""


WEAK: tuple[Kind, ...] = ("refusal", "swap")
"""Kinds that count only where a test has no others."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace bytes `start` to `end` of the file by `text`."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Variant:
    """One false expectation."""

    kind: Kind
    edits: tuple[Edit, ...]
    reasons: tuple[str, ...] = ()
    """Exceptions, besides a failed assertion, that count as the right reason for the test to fail."""
    site: str = ""
    """The assertion or parameter that is changed, unique within its unit."""
    public: bool = False
    """Whether the repository has the true text of what is changed, so that code can recognise it as altered."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Tests that are altered together: a function with all its cases, or one of its cases."""

    path: str
    name: str
    """Name within the file: `Class.test` or `test[case]`."""
    tests: tuple[str, ...]
    """The row's names of the tests; () if the row names none."""
    variants: tuple[Variant, ...]
    label: tuple[Edit, ...] = ()
    """Renames `tests` to `aliases` in every run with any altered test; for tests whose names show what they expect."""
    aliases: tuple[str, ...] = ()
    """Names of `tests` after `label`, in the same order; () if the names stay."""

    @property
    def public(self) -> bool:
        """Whether the repository has the true text of all that is altered, so that code can recognise it."""
        return all(variant.public for variant in self.variants)

    @property
    def back(self) -> dict[str, str]:
        """Name in an altered run -> name in the row."""
        return dict(zip(self.aliases or self.tests, self.tests, strict=True))

    def with_variants(self, variants: Iterable[Variant]) -> Self:
        """The same unit with other variants."""
        return replace(self, variants=tuple(variants))

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "path": self.path,
            "name": self.name,
            "tests": list(self.tests),
            "variants": [
                {
                    "kind": variant.kind,
                    "edits": [[edit.start, edit.end, edit.text] for edit in variant.edits],
                    "reasons": list(variant.reasons),
                    "site": variant.site,
                    "public": variant.public,
                }
                for variant in self.variants
            ],
            "label": [[edit.start, edit.end, edit.text] for edit in self.label],
            "aliases": list(self.aliases),
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Unit":
        """Read what `to_json` wrote."""
        variants = tuple(
            Variant(
                variant["kind"],
                tuple(Edit(*edit) for edit in variant["edits"]),
                tuple(variant["reasons"]),
                variant["site"],
                variant["public"],
            )
            for variant in values["variants"]
        )
        label = tuple(Edit(*edit) for edit in values["label"])
        tests, aliases = tuple(values["tests"]), tuple(values["aliases"])
        return cls(values["path"], values["name"], tests, variants, label, aliases)


def edited(text: bytes, variants: Iterable[Variant], labels: Iterable[Edit] = ()) -> bytes:
    """`text` with all these variants and labels applied. Raises ValueError if two edits touch the same byte."""
    edits = sorted((*labels, *(edit for variant in variants for edit in variant.edits)), key=lambda edit: edit.start)
    pieces: list[bytes] = []
    done = 0
    for edit in edits:
        if edit.start < done:
            raise ValueError(f"two edits touch byte {edit.start}")
        pieces += [text[done : edit.start], edit.text.encode()]
        done = edit.end
    return b"".join([*pieces, text[done:]])


def best_first(variants: Iterable[Variant]) -> list[Variant]:
    """Sort by kind, otherwise stable: two orders, one borrowed, one value, two orders, and so on."""
    order: dict[Kind, int] = {"order": 0, "borrowed": 1, "value": 2, "error": 3, "refusal": 4, "swap": 5}
    seen: Counter[Kind] = Counter()

    def place(variant: Variant) -> tuple[float, int]:
        # Code that recognises one kind by its looks should meet another kind too.
        turn = {"order": seen["order"] // 2, "borrowed": seen["borrowed"], "value": seen["value"]}
        seen[variant.kind] += 1
        return turn.get(variant.kind, math.inf), order[variant.kind]

    return sorted(variants, key=place)


def round_robin(variants: Sequence[Variant]) -> list[Variant]:
    """The first variant of each site, then the second of each, and so on; sites ordered by their first variant.

    A hack that recognises the variants of one site then meets another site's next.
    """
    seen: Counter[str] = Counter()
    turns: list[int] = []
    for variant in variants:
        turns.append(seen[variant.site])
        seen[variant.site] += 1
    order = sorted(range(len(variants)), key=turns.__getitem__)
    return [variants[at] for at in order]


def overlap(one: Variant, other: Variant) -> bool:
    """Whether both variants change the same place."""
    return any((a.start < b.end and b.start < a.end) or a.start == b.start for a in one.edits for b in other.edits)


@dataclass(frozen=True, slots=True)
class Source:
    """A parsed test file."""

    path: str
    text: bytes
    tree: ast.Module
    _lines: Sequence[int] = field(repr=False)
    """Byte offset of each line."""
    beside: "Sequence[Source]" = ()
    """Test files that this file imports from."""
    _found: dict[Callable[["Source"], Any], Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, path: str, text: bytes) -> "Source | None":
        """Parse a file; None if it is not Python that can be edited by position."""
        if b"\r" in text or b"\f" in text or text.startswith(b"\xef\xbb\xbf"):
            return None  # positions would be off
        try:
            tree = ast.parse(text.decode())
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
        lines = [0]
        for line in text.split(b"\n"):
            lines.append(lines[-1] + len(line) + 1)
        return cls(path, text, tree, lines)

    def once(self, find: Callable[["Source"], T]) -> T:
        """The result of `find(self)`, computed once: `find` reads the whole file."""
        if find not in self._found:
            self._found[find] = find(self)
        found: T = self._found[find]
        return found

    def start(self, node: ast.expr | ast.stmt) -> int:
        """Offset of the node's first byte."""
        return self._lines[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr | ast.stmt) -> int:
        """Offset after the node's last byte."""
        assert node.end_lineno is not None and node.end_col_offset is not None  # set on every parsed node
        return self._lines[node.end_lineno - 1] + node.end_col_offset

    def segment(self, node: ast.expr | ast.stmt) -> str:
        """Source text of the node."""
        return self.text[self.start(node) : self.end(node)].decode()

    def replaced(self, node: ast.expr, text: str) -> Edit:
        """The edit that replaces `node` by `text`."""
        return Edit(self.start(node), self.end(node), text)

    def compiles(self, edits: Sequence[Edit]) -> bool:
        """Whether the file still parses with these edits. Raises ValueError if two of them touch the same byte.

        Only the function that holds them is parsed: a file can have 500 KB, and each parse of it holds the GIL.
        """
        start, end = min(edit.start for edit in edits), max(edit.end for edit in edits)
        begin, stop, body = 0, len(self.text), self.tree.body
        while held := next((one for one in map(self._whole, body) if one[1] <= start and end <= one[2]), None):
            statement, begin, stop = held
            body = statement.body if isinstance(statement, ast.ClassDef) else []
        moved = [Edit(edit.start - begin, edit.end - begin, edit.text) for edit in edits]
        text = edited(self.text[begin:stop], (), moved)
        try:
            ast.parse((b"class _:\n" + text if text[:1] in b" \t" else text).decode())
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
        return True

    def _whole(self, statement: ast.stmt) -> tuple[ast.stmt, int, int]:
        """(statement, start of its first line, its end) as byte offsets; decorators are part of it."""
        first = min(part.lineno for part in (statement, *getattr(statement, "decorator_list", ())))
        return statement, self._lines[first - 1], self.end(statement)
