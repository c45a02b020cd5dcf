"""Instances that are imported as tasks of code search: their truth, their rewards, their format."""

import json
from pathlib import Path

from .conftest import Clones
from .test_dataset import EDIT, command, row, written

COMMIT = "0" * 40


def test_import_as_tasks_of_code_search(tmp_path: Path, clones: Clones) -> None:
    """The truth is kept with the instance; without the option there is none."""
    instance = {"sandbox": {"images": ["x"]}, "repo": "acme/ledger", "base_commit": clones.commit}
    source = written(
        tmp_path,
        {"instance_id": "a-1", "gold_patch": EDIT, **instance},
        {"instance_id": "a-2", "gold_patch": "", **instance},
        {"instance_id": "a-3", "gold_patch": EDIT, **instance, "repo": "acme/none"},
    )

    def shown(name: str) -> object:
        return json.loads(command(tmp_path, "instances", "show", name, "--json").stdout)["localization"]

    assert command(tmp_path, "instances", "import", source).returncode == 0
    assert shown("a-1") is None
    done = command(tmp_path, "instances", "import", source, "--localization", "--repos", clones.folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"{source}: 0 new, 2 updated, 1 unchanged",
        "  1 ungradable: The row names no grader.",
        "  1 not converted to code search: gold patch: it is empty, so there is nothing to find",
        "  1 without modules and entities: no clone of acme/none among the repositories: `git clone` it to "
        "acme__none there",
    ]
    truth = shown("a-1")["truth"]  # type: ignore[index]
    assert (truth["files"], truth["entities"]) == (["src/a.py"], ["src/a.py:Foo.bar"])
    assert shown("a-2") is None
    assert shown("a-3")["truth"]["entities"] is None  # type: ignore[index]
    assert command(tmp_path, "instances", "import", source, "--repos", clones.folder).returncode == 1


def test_truths_of_rows_and_of_some_files(tmp_path: Path) -> None:
    """What a data set publishes cannot be scored without its repositories, or a changelog costs recall."""
    changes = [
        {"file": "src/a.py", "changes": {"edited_modules": ["src/a.py:Foo"], "edited_entities": ["src/a.py:Foo.bar"]}},
        {"file": "CHANGES.md", "changes": {"edited_modules": None, "edited_entities": None}},
    ]
    told = written(tmp_path, row(1, base_commit=COMMIT, file_changes=repr(changes)))
    options = ("--localization", "--family=localization", "--only=.py")
    done = command(tmp_path, "instances", "import", told, *options, "--truth=file_changes", "--format=files")
    assert (done.returncode, done.stderr) == (0, "")
    task = json.loads(command(tmp_path, "instances", "show", "acme__ledger-1", "--json").stdout)["localization"]
    truth = task["truth"]
    assert (task["answer"], truth["files"], truth["entities"]) == ("files", ["src/a.py"], ["src/a.py:Foo.bar"])
    assert truth["lines"], "of the patch"
    notes = "diff --git a/CHANGES.md b/CHANGES.md\n--- a/CHANGES.md\n+++ b/CHANGES.md\n@@ -1 +1 @@\n-a\n+b\n"
    untold = written(tmp_path, row(3, base_commit=COMMIT, patch=EDIT + notes))
    refused = command(tmp_path, "instances", "import", untold, *options, "--truth=file_changes")
    assert refused.returncode == 1 and "without --truth file_changes" in refused.stderr
    done = command(tmp_path, "instances", "import", untold, *options)
    assert "give --mirrors, --repos DIR, or --truth file_changes" in done.stdout
    truth = json.loads(command(tmp_path, "instances", "show", "acme__ledger-3", "--json").stdout)["localization"][
        "truth"
    ]
    assert (truth["files"], truth["added_files"]) == (["src/a.py"], ["CHANGES.md"])


def test_rewards_of_a_data_set(tmp_path: Path, clones: Clones) -> None:
    """Every session would have to name them, or all data sets of a service share one composition."""
    instance = {"sandbox": {"images": ["x"]}, "repo": "acme/ledger", "base_commit": clones.commit}
    source = written(tmp_path, {"instance_id": "a-1", "gold_patch": EDIT, **instance})
    options = ("instances", "import", source, "--localization", "--rewards")
    assert command(tmp_path, *options, "tool_use_capped").returncode == 0
    shown = json.loads(command(tmp_path, "instances", "show", "a-1", "--json").stdout)["localization"]
    assert shown["rewards"] == [
        {"fn": "tool_use_reward", "weight": 1.0, "args": {"max_tool_use": 5.0}},
        {"fn": "turn_efficiency", "weight": 1.0, "args": {"max_turns": 5}},
        {"fn": "multilevel_localization_f1_reward", "weight": 1.0, "args": {}},
    ]
    discounted = tmp_path / "mine.yaml"
    discounted.write_text("reward: [{fn: turn_efficiency}]\ndiscount: 0.9\n")
    for named, why in (("nope", "nor one of cosine"), (discounted, "an instance cannot have a discount")):
        refused = command(tmp_path, *options, named)
        assert refused.returncode == 1 and why in refused.stderr
