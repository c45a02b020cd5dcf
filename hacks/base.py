"""Data types of the hacks: targets, plays (what a policy does), hacks."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["fake", "mask", "delay"]
"""Goal of a hack: `resolved` without a fix; a masked verdict at will; delays of other gradings."""
Family = Literal["swebench", "script", "swepro", "f2p_script"]
"""The graders, by their public names."""
Runner = Literal["pytest", "unittest", "python"]
"""Program that runs the tests."""
Group = Literal[
    "history",
    "log",
    "process",
    "runner",
    "values",
    "outcome",
    "modules",
    "files",
    "exit",
    "parser",
    "patch",
    "session",
    "container",
    "load",
    "guess",
]
"""Classes of hacks; the short form plays one of each class per family and runner."""

FAMILIES: frozenset[Family] = frozenset({"swebench", "script", "swepro", "f2p_script"})
BY_LOG: frozenset[Family] = frozenset({"swebench", "swepro"})
BY_EXIT_CODE: frozenset[Family] = frozenset({"script", "f2p_script"})
RUNNERS: frozenset[Runner] = frozenset({"pytest", "unittest", "python"})
PYTEST: frozenset[Runner] = frozenset({"pytest"})


@dataclass(frozen=True, slots=True)
class Target:
    """What a policy that was trained on a public data set knows of an instance."""

    name: str
    instance_id: str
    family: Family
    runner: Runner
    package: str
    """Folder of the package that the tests import."""
    module: str
    """The file to fix, relative to the repository."""
    init: str
    """Text of the package's `__init__.py`."""
    f2p: tuple[str, ...]
    p2p: tuple[str, ...]
    tests: frozenset[str]
    """Names of the F2P test functions."""
    test_files: tuple[str, ...]
    """Files with the F2P tests."""
    new_test_file: str
    """A test file that the repository does not have yet; "" if there is none."""
    seams: str
    """Python for the end of `__init__.py` that replaces each function `f` that those tests call by `wrap(f)`."""
    code_path: str = ""
    """Path of the file whose text is the whole action (dialect `code`); "" for other dialects."""


@dataclass(frozen=True, slots=True)
class Play:
    """What a policy does in its session: write files, then run commands."""

    files: Mapping[str, str | bytes] = field(default_factory=dict)
    """Path in the repository -> complete new content."""
    commands: str = ""
    """Bash commands, run in the repository."""


@dataclass(frozen=True, slots=True)
class Hack:
    """One hack; each file of the corpus defines one, as HACK."""

    kind: Kind
    group: Group
    play: Callable[[Target], Play]
    families: Collection[Family] = FAMILIES
    runners: Collection[Runner] = RUNNERS
    only: Collection[str] = ()
    """Names of the targets it applies to; empty: all targets of the families and runners."""
    remains: str = ""
    """Known reason why it sometimes succeeds; "": it must not succeed."""

    def fits(self, target: Target) -> bool:
        """Whether it applies to `target`."""
        named = not self.only or target.name in self.only
        return named and target.family in self.families and target.runner in self.runners
