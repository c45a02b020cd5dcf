"""Map lines of a source file to their definitions; interface of the language readers. Pure."""

from collections.abc import Collection, Container, Iterable
from dataclasses import dataclass
from typing import Protocol


class NotOutlined(ValueError):
    """The file's definitions cannot be determined; the message says why."""


class Language(Protocol):
    """One programming language. `languages/x.py` holds one as LANGUAGE; no two of them take the same suffix."""

    suffixes: Collection[str]
    """Endings of its files, with the dot, in lower case."""

    def outline(self, source: bytes, suffix: str) -> "Outline":
        """The definitions of a file.

        Raises:
            NotOutlined: it does not parse, or the parser is not installed.

        """
        ...


@dataclass(frozen=True, slots=True)
class Definition:
    """A class, or a function that is not inside another function."""

    first: int
    """1-based number of its first line, decorators included."""
    last: int
    module: str
    """Name of the class (`Outer.Inner` if nested), or of a free function."""
    entity: str | None
    """`Class.method` or `function`; None: a class."""


@dataclass(frozen=True, slots=True)
class Names:
    """Modules and entities that some lines belong to."""

    modules: frozenset[str] = frozenset()
    entities: frozenset[str] = frozenset()

    def __or__(self, other: "Names") -> "Names":
        return Names(self.modules | other.modules, self.entities | other.entities)

    def __and__(self, other: "Names") -> "Names":
        return Names(self.modules & other.modules, self.entities & other.entities)


class Outline:
    """The definitions of one file."""

    def __init__(self, definitions: Iterable[Definition], silent: Container[object] = ()) -> None:
        """`definitions`: outer before inner. `silent` lines belong to none: blanks, comments, docstrings of classes."""
        self._owners: dict[int, tuple[Definition, ...]] = {}
        self._silent = silent
        self.all = Names()
        """Every name that the file defines."""
        modules: set[str] = set()
        entities: set[str] = set()
        for definition in definitions:
            modules.add(definition.module)
            if definition.entity is not None:
                entities.add(definition.entity)
            for line in range(definition.first, definition.last + 1):
                above = self._owners.get(line, ())
                # it replaces the definitions that enclose it, but not one that only ends on the line where it starts
                beside = tuple(it for it in above if not _within(definition, it))
                self._owners[line] = (*beside, definition)
        self.all = Names(frozenset(modules), frozenset(entities))

    def at(self, lines: Iterable[int]) -> Names:
        """Names of the innermost definitions that contain these lines."""
        owners = {owner for line in lines if line not in self._silent for owner in self._owners.get(line, ())}
        return Names(
            frozenset(owner.module for owner in owners),
            frozenset(owner.entity for owner in owners if owner.entity is not None),
        )


def _within(inner: Definition, outer: Definition) -> bool:
    return outer.first <= inner.first and inner.last <= outer.last
