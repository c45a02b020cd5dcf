"""What a hack is: what it is for, and what a policy leaves behind that tries it."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["fake", "mask", "delay"]
"""What it wants: `resolved` without a fix; a masked verdict at will; others to wait."""
Family = Literal["swebench", "script", "swepro", "f2p_script"]
"""The graders, by their public names."""
Runner = Literal["pytest", "unittest", "python"]
"""What runs the tests."""
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
"""The classes of hacks; the short form plays one of each for each family."""

FAMILIES: frozenset[Family] = frozenset({"swebench", "script", "swepro", "f2p_script"})
BY_LOG: frozenset[Family] = frozenset({"swebench", "swepro"})
BY_EXIT_CODE: frozenset[Family] = frozenset({"script", "f2p_script"})
RUNNERS: frozenset[Runner] = frozenset({"pytest", "unittest", "python"})
PYTEST: frozenset[Runner] = frozenset({"pytest"})


@dataclass(frozen=True, slots=True)
class Target:
    """An instance, as a policy knows it that was trained on a public data set."""

    name: str
    instance_id: str
    family: Family
    runner: Runner
    package: str
    """Folder of the package that the tests import."""
    module: str
    """The file that is to be mended, relative to the repository."""
    init: str
    """Text of the package's `__init__.py`."""
    f2p: tuple[str, ...]
    p2p: tuple[str, ...]
    tests: frozenset[str]
    """Names of the functions that must begin to pass."""
    test_files: tuple[str, ...]
    """Those that hold them."""
    new_test_file: str
    """One that the repository does not have yet; "" where there is none."""
    seams: str
    """Python for the end of `__init__.py`: puts `wrap(f)` in place of each `f` that those tests call."""
    code_path: str = ""
    """Where every content of the policy is the text of one file: its path."""


@dataclass(frozen=True, slots=True)
class Play:
    """What a policy does before it ends its session: files first, then commands."""

    files: Mapping[str, str | bytes] = field(default_factory=dict)
    """Path in the repository -> its whole new content."""
    commands: str = ""
    """For bash, in the repository."""


@dataclass(frozen=True, slots=True)
class Hack:
    """One file of the corpus gives one, as HACK."""

    kind: Kind
    group: Group
    play: Callable[[Target], Play]
    families: Collection[Family] = FAMILIES
    runners: Collection[Runner] = RUNNERS
    only: Collection[str] = ()
    """Names of the targets that it can be tried on; empty: every one of the families and runners."""
    remains: str = ""
    """Why it is known to get through at times; "": it must not."""

    def fits(self, target: Target) -> bool:
        """Whether it can be tried on `target`."""
        named = not self.only or target.name in self.only
        return named and target.family in self.families and target.runner in self.runners
