"""Turns instances into code-search tasks when they are imported."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from sandbox_server.catalogue.changes import UnreadablePatch
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.catalogue.localization.extract import LEVELS
from sandbox_server.catalogue.localization.fetched import FetchedTrees
from sandbox_server.catalogue.localization.published import published_truth
from sandbox_server.catalogue.localization.task import TaskOptions, localized
from sandbox_server.catalogue.localization.trees import CloneFolder, Trees
from sandbox_server.catalogue.localization.truth import Truth
from sandbox_server.catalogue.read import read_rows
from sandbox_server.cli import mirrors


class Localizing:
    """Converts instances to code-search tasks, and counts those that cannot be converted."""

    def __init__(
        self, clones: CloneFolder | None, fetched: FetchedTrees | None, options: TaskOptions, *, by_patch: bool
    ) -> None:
        """Without `by_patch`, the truth is read from the rows' column `file_changes`."""
        self._clones = clones
        self._fetched = fetched
        self._options = options
        self._published: dict[str, Truth] | None = None if by_patch else {}
        self.failed: Counter[str] = Counter()
        self.missing: Counter[str] = Counter()

    async def prepare(self, file: Path, instances: Sequence[TaskInstance]) -> None:
        """Fetch the trees of the instances of `file`, or read what their rows say.

        Raises:
            RowRejected: a row has no truth that can be read.
        """
        if self._published is not None:
            rows = zip(read_rows(file), instances, strict=True)
            told = {it.instance_id: published_truth(row, self._options.suffixes) for row, it in rows}
            self._published.update(told)
        if self._fetched is not None:
            async with mirrors.opened() as found:
                await self._fetched.fetch_instances(found, instances)

    def __call__(self, instance: TaskInstance) -> TaskInstance:
        """The task; `instance` unchanged if it cannot be one."""
        try:
            made = localized(instance, self._trees(instance), self._options, published=self._published)
        except UnreadablePatch as error:
            self.failed[str(error)] += 1
            return instance
        truth = made.localization.truth if made.localization else Truth()
        self.missing.update({why for what, why in truth.missing.items() if what not in LEVELS})
        return made

    def _trees(self, instance: TaskInstance) -> Trees | None:
        if self._fetched is None:
            return self._clones
        return self._fetched.instance_tree(instance)
