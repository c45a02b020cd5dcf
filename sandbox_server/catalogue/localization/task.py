"""Compute the truth of a row or an instance, using its base tree if available."""

from sandbox_server.catalogue.changes import UnreadablePatch, read_changes
from sandbox_server.catalogue.instance import LocalizationGrader, TaskInstance
from sandbox_server.catalogue.localization.extract import NO_TREE, Tree, truth_of, truth_of_bug
from sandbox_server.catalogue.localization.trees import NoTree, Trees
from sandbox_server.catalogue.localization.truth import LocalizationTask, RewardItem, Truth


def found_truth(patch: str, *, repo: str, commit: str, puts_bug_in: bool, trees: Trees | None) -> Truth:
    """The truth according to `patch`; without `trees` or the base tree, source files get only files and lines.

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
    return (truth_of_bug if puts_bug_in else truth_of)(patch, tree, no_tree=why)


def localized(instance: TaskInstance, trees: Trees | None, rewards: tuple[RewardItem, ...] = ()) -> TaskInstance:
    """The instance as a code search task; its truth is its own, else computed from its gold patch.

    `rewards` () keeps its own. If its source has a patch that adds the bug, that patch is used instead of gold.

    Raises:
        UnreadablePatch: as `found_truth`.

    """
    task = instance.localization
    if task is None:
        source = instance.sandbox.source
        bug = source.patch if source is not None else ""
        patch, commit = bug or instance.gold_patch, instance.base_commit
        truth = found_truth(patch, repo=instance.repo, commit=commit, puts_bug_in=bool(bug), trees=trees)
        task = LocalizationTask(truth=truth)
    if rewards:
        task = task.model_copy(update={"rewards": rewards})
    scored = {"localization": task, "grader": LocalizationGrader(), "ungradable_because": ""}
    return instance.model_copy(update=scored)
