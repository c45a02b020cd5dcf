"""Compute the truth of a row or an instance, using its base tree if available."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sandbox_server.catalogue.changes import UnreadablePatch, read_changes
from sandbox_server.catalogue.instance import LocalizationGrader, TaskInstance
from sandbox_server.catalogue.localization.extract import NO_TREE, Tree, truth_of, truth_of_bug
from sandbox_server.catalogue.localization.trees import NoTree, Trees
from sandbox_server.catalogue.localization.truth import AnswerFormat, LocalizationTask, RewardItem, Truth


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """How instances become code-search tasks."""

    rewards: tuple[RewardItem, ...] = ()
    """(): the instance's own."""
    written: AnswerFormat | None = None
    """Format of the answer; None: the instance's own."""
    suffixes: tuple[str, ...] = ()
    """Endings of the files that have to be found; (): all files."""


def found_truth(
    patch: str, *, repo: str, commit: str, puts_bug_in: bool, trees: Trees | None, suffixes: Sequence[str] = ()
) -> Truth:
    """The truth according to `patch`. If the base tree is not available, it has only files and lines for source files.

    `puts_bug_in`: the patch is applied before the agent starts, and the fix reverts it.

    Raises:
        UnreadablePatch: the patch is empty or no unified diff.

    """
    changes = read_changes(patch)
    if not changes:
        raise UnreadablePatch("it is empty, so there is nothing to find")
    tree: Tree | None = None
    why = NO_TREE
    if trees is not None:
        try:
            tree = trees.files(repo, commit, [change.old for change in changes if change.old is not None]).get
        except NoTree as error:
            why = str(error)
    return (truth_of_bug if puts_bug_in else truth_of)(patch, tree, no_tree=why, suffixes=suffixes)


def localized(
    instance: TaskInstance,
    trees: Trees | None,
    options: TaskOptions = TaskOptions(),
    *,
    published: Mapping[str, Truth] | None = None,
) -> TaskInstance:
    """The instance as a code-search task.

    Its truth is, if `published` (instance id -> truth) is given, the published one, with lines, hunks and neutral files
    from the patch if that can be read; else the instance's own; else computed from the patch. The patch is the one that
    adds the bug, if the instance's source has one; else the gold patch.

    Raises:
        UnreadablePatch: as `found_truth`.

    """
    task = instance.localization
    if published is not None:
        task = LocalizationTask(truth=_completed(published[instance.instance_id], instance, options))
    elif task is None:
        task = LocalizationTask(truth=_patch_truth(instance, trees, options))
    changed: dict[str, object] = {"answer": options.written} if options.written else {}
    if options.rewards:
        changed["rewards"] = options.rewards
    task = task.model_copy(update=changed)
    scored = {"localization": task, "grader": LocalizationGrader(), "ungradable_because": ""}
    return instance.model_copy(update=scored)


def _patch_truth(instance: TaskInstance, trees: Trees | None, options: TaskOptions) -> Truth:
    source = instance.sandbox.source
    bug = source.patch if source is not None else ""
    return found_truth(
        bug or instance.gold_patch,
        repo=instance.repo,
        commit=instance.base_commit,
        puts_bug_in=bool(bug),
        trees=trees,
        suffixes=options.suffixes,
    )


def _completed(published: Truth, instance: TaskInstance, options: TaskOptions) -> Truth:
    try:
        found = _patch_truth(instance, None, options)
    except UnreadablePatch:
        return published
    lines = {path: spans for path, spans in found.lines.items() if path in published.files}
    hunks = {path: spans for path, spans in found.hunks.items() if path in published.files}
    neutral = tuple(path for path in found.added_files if path not in published.files)
    return published.model_copy(update={"lines": lines, "hunks": hunks, "added_files": neutral})
