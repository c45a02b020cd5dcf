"""A task of code search: the truth from its gold patch, and how answers are scored."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

AnswerFormat = Literal["auto", "files", "file_list", "fenced", "structured", "lines"]
"""How an answer is written; auto takes any form."""
Spans = tuple[tuple[int, int], ...]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Truth(_Record):
    """The locations that a patch changes, at every level; all paths are those of the base tree."""

    files: tuple[str, ...] = ()
    """Sorted paths of edited and deleted files, and the old paths of renamed ones; all exist at the base commit."""
    modules: tuple[str, ...] | None = None
    """Sorted `path:Class` or, for a free function, `path:function`; None: unknown."""
    entities: tuple[str, ...] | None = None
    """Sorted `path:Class.method` or `path:function`; None: unknown."""
    lines: dict[str, Spans] = {}
    """Path -> changed lines of the old side: 1-based, inclusive spans; an insertion after line n is (n, n + 1)."""
    hunks: dict[str, Spans] = {}
    """Path -> the hunks' ranges on the old side as (start, count), context included."""
    added_files: tuple[str, ...] = ()
    """Neutral in an answer: paths that the patch creates, and changed files whose suffix was not asked for."""
    skipped: tuple[str, ...] = ()
    """Files whose text the patch does not change: only their mode, or they are binary."""
    unanswerable: bool = False
    """There is no file to find."""
    missing: dict[str, str] = {}
    """A level ("modules", "entities") or a path -> why it is unknown."""


class RewardItem(_Record):
    """One reward of a composed score."""

    fn: str
    """Its public name."""
    weight: float = 1.0
    args: dict[str, object] = {}


class LocalizationTask(_Record):
    """The task of finding what a change must touch."""

    truth: Truth
    rewards: tuple[RewardItem, ...] = ()
    """(): the service's default."""
    roots: tuple[str, ...] = ()
    """Absolute prefixes that are removed from the paths of an answer, besides workdir and workspace."""
    answer: AnswerFormat | Literal[""] = "auto"
    """How the answer is written; "" is auto."""
