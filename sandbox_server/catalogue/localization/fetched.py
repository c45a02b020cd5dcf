"""Base trees from this host's mirrors: commits are first fetched in batches, then read as from clones."""

import asyncio
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from pydantic import ValidationError

from sandbox_server.catalogue.instance import GitSource, TaskInstance
from sandbox_server.catalogue.localization.trees import NoTree, Trees, commit_files
from sandbox_server.catalogue.read import stream_rows
from sandbox_server.catalogue.repositories import Mirrors
from sandbox_server.catalogue.row_source import row_source
from sandbox_server.catalogue.rows import SourceRow
from sandbox_server.errors import RepositoryUnavailable, RowRejected

_TOGETHER = 1000  # commits requested at a time; those of one repository come by one fetch


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit in a mirror."""

    mirror: Path
    commit: str

    def files(self, repo: str, commit: str, paths: Sequence[str]) -> dict[str, bytes]:
        """See `Trees`; `commit` is ignored, as a row may leave it empty."""
        return commit_files(self.mirror, repo, self.commit, paths)


@dataclass(frozen=True, slots=True)
class Unavailable:
    """A commit that could not be fetched."""

    why: str

    def files(self, repo: str, commit: str, paths: Sequence[str]) -> dict[str, bytes]:
        """See `Trees`."""
        raise NoTree(self.why)


class FetchedTrees:
    """The base trees of rows or instances, as they are before a patch that adds the bug."""

    def __init__(self) -> None:
        self._trees: dict[str, Commit | Unavailable] = {}

    async def fetch_instances(self, mirrors: Mirrors, instances: Iterable[TaskInstance]) -> None:
        """Fetch the base commits of these instances into the mirrors; failures are kept for `instance_tree`."""
        await self._fetch(mirrors, map(_instance_base, instances))

    def instance_tree(self, instance: TaskInstance) -> Trees:
        """The base tree of an instance that was given to `fetch_instances`."""
        return self._tree(_instance_base(instance))

    async def fetch_rows(self, mirrors: Mirrors, file: Path) -> None:
        """As `fetch_instances`, for the rows of a file.

        Raises:
            MalformedRequest: the file cannot be read.

        """
        rows = (row for row in stream_rows(file) if isinstance(row, SourceRow))
        await self._fetch(mirrors, map(_row_base, rows))

    def row_tree(self, row: SourceRow) -> Trees:
        """The base tree of a row of a file that was given to `fetch_rows`; picklable."""
        return self._tree(_row_base(row))

    async def _fetch(self, mirrors: Mirrors, found: Iterable[GitSource | Unavailable]) -> None:
        bases = {base.name: base for base in found if isinstance(base, GitSource)}
        left = iter(bases.items())
        while some := list(islice(left, _TOGETHER)):
            trees = await asyncio.gather(*(_brought(mirrors, base) for _, base in some))
            self._trees.update(zip((name for name, _ in some), trees, strict=True))

    def _tree(self, base: GitSource | Unavailable) -> Trees:
        return self._trees[base.name] if isinstance(base, GitSource) else base

    @property
    def digest(self) -> str:
        """Hash of the requested bases with the commits that were fetched for them, if any."""
        told = sorted((name, getattr(tree, "commit", "")) for name, tree in self._trees.items())
        return hashlib.sha256(repr(told).encode()).hexdigest()


async def _brought(mirrors: Mirrors, base: GitSource) -> Commit | Unavailable:
    try:
        mirror = await mirrors.ensure(base)
    except RepositoryUnavailable as error:
        return Unavailable(error.detail)
    return Commit(mirror.path, mirror.base_commit)


def _row_base(row: SourceRow) -> GitSource | Unavailable:
    try:
        return _base(row_source(row, commit=row.text("base_commit", default="")))
    except ValidationError as error:
        return _refused(error)
    except RowRejected as error:
        return Unavailable(error.detail)


def _instance_base(instance: TaskInstance) -> GitSource | Unavailable:
    source = instance.sandbox.source
    if source is not None:
        return _base(source)
    try:
        return GitSource(repo=instance.repo, commit=instance.base_commit)
    except ValidationError as error:
        return _refused(error)


def _base(source: GitSource) -> GitSource:
    return source.model_copy(update={"patch": ""})


def _refused(error: ValidationError) -> Unavailable:
    return Unavailable(error.errors()[0]["msg"].removeprefix("Value error, "))
