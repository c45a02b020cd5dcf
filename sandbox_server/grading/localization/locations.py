"""Collects what an answer names, without duplicates and up to a bound."""

import re
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import TypeVar

from sandbox_server.grading.localization import references
from sandbox_server.grading.localization.paths import Roots, unbulleted
from sandbox_server.verdicts import Answer

T = TypeVar("T")

MAX_LOCATIONS = 5_000
"""Limit per answer; more is a tree listing, not an answer."""
_MAX_PROBLEMS = 20
_LAST_LINE = 10**9
_SPAN = re.compile(r"[(\[]?\s*L?(\d{1,9})(?:\s*(?:-|\u2013|:|,|to)\s*L?(\d{1,9}))?\s*[)\]]?")
_NAME = re.compile(r"(?:(?:async\s+)?def\s+|class\s+)?([^\s(]*)")
_PLACE = re.compile(r"([^\s:]*\.[A-Za-z0-9_+-]+)::?((?!L\d)[A-Za-z_][\w.:]*(?:\([^()]*\))?)")


class Locations:
    """An answer under construction. Accepts any text; unusable parts become problems."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._files: dict[str, None] = {}
        self._modules: dict[str, None] = {}
        self._entities: dict[str, None] = {}
        self._lines: dict[str, list[tuple[int, int]]] = {}
        self._problems: list[str] = []
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._files)

    def while_room(self, items: Iterable[T]) -> Iterator[T]:
        """`items`, until the limit is passed: later ones would be left out anyway."""
        return takewhile(lambda _: self._count <= MAX_LOCATIONS, items)

    @property
    def sound(self) -> bool:
        """Whether nothing had to be left out."""
        return not self._problems

    def problem(self, why: str) -> None:
        """Record that something was left out."""
        if len(self._problems) < _MAX_PROBLEMS:
            self._problems.append(why)

    def file(self, text: str) -> str:
        """Add a file, and the lines given after it in `text`; returns its path in the base tree, "" for none."""
        named = references.unlinked(unbulleted(text))
        plain = named.strip("`'")
        spelled, lines = references.split_lines(plain[1:-1] if plain[:1] == plain[-1:] == '"' else plain)
        path = self._roots.relative(spelled if lines else named)
        if not path:
            self.problem(f"no path: {_shown(text)}")
        elif self._room():
            self._files[path] = None
            if lines:
                self.spelled_spans(path, lines)
        return path

    def place(self, text: str) -> None:
        """Add a file as `file` does, or a file with its function: `src/a.py:Foo.bar`."""
        named = _PLACE.fullmatch(unbulleted(text).strip("`'\" "))
        if named is None:
            self.file(text)
        elif path := self.file(named[1]):
            self.entity(path, named[2])

    def module(self, path: str, name: str) -> str:
        """Add a class given as `Foo`, `class Foo(Bar):` or the like; returns its bare name, or ""."""
        name = bare_name(name)
        if not name:
            self.problem(f"a class without a name in {_shown(path)}")
        elif self._room():
            self._modules[f"{path}:{name}"] = None
        return name

    def entity(self, path: str, name: str, *, of: str = "") -> None:
        """Add a function, or a method of the class `of`; `name` may repeat the class (`Foo.bar`)."""
        name = bare_name(name)
        if not name:
            self.problem(f"a function without a name in {_shown(path)}")
            return
        if of and not name.startswith(f"{of}."):
            inner = of.rpartition(".")[2]  # `class: Outer.Inner`, `function: Inner.f`
            name = f"{of}.{name.removeprefix(f'{inner}.')}"
        if self._room():
            self._entities[f"{path}:{name}"] = None
            self._modules[f"{path}:{name.rpartition('.')[0] or name}"] = None

    def span(self, path: str, first: int, last: int) -> None:
        """Add a 1-based span of lines, both ends included; reversed spans are ignored."""
        if not 1 <= first <= last <= _LAST_LINE:
            self.problem(f"not a span of lines: {first}-{last} of {_shown(path)}")
        elif self._room():
            self._lines.setdefault(path, []).append((first, last))

    def spelled_span(self, path: str, text: str) -> None:
        """Add a span written as `10-19`, `L10`, `10 to 19`."""
        if (spelled := _SPAN.fullmatch(text.strip())) is None:
            self.problem(f"not a span of lines: {_shown(text)}")
        else:
            self.span(path, int(spelled[1]), int(spelled[2] or spelled[1]))

    def spelled_spans(self, path: str, text: str) -> None:
        """Add the spans in `lines 3-9, 12`."""
        for spelled in references.spans(text):
            self.spelled_span(path, spelled)

    def answer(self, written: str, *, well_formed: bool) -> Answer:
        """The answer; `well_formed`: whether its form was correct."""
        return Answer(
            format=written,
            files=tuple(self._files),
            modules=tuple(self._modules),
            entities=tuple(self._entities),
            lines={path: tuple(spans) for path, spans in self._lines.items()},
            well_formed=well_formed and bool(self._files) and self.sound,
            problems=tuple(self._problems),
        )

    def _room(self) -> bool:
        self._count += 1
        if self._count == MAX_LOCATIONS + 1:
            self.problem(f"more than {MAX_LOCATIONS} locations; the rest is left out")
        return self._count <= MAX_LOCATIONS


def is_span(text: str) -> bool:
    """Whether `Locations.spelled_span` can parse it."""
    return _SPAN.fullmatch(text.strip()) is not None


def bare_name(text: str) -> str:
    """The name in `def f(a, b):`, `f()`, `Foo(Base):`, `Foo::bar`, with or without quotes; "" if there is none."""
    found = _NAME.match(text.strip().strip("`'\"*").strip())
    name = "" if found is None else found[1]
    return name.replace("::", ".").strip("`'\"*:,;.")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")
