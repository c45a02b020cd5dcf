"""Correct patches that are not gold, and how a policy may leave them; one folder a sample, one file a patch."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PATCHES = Path(__file__).with_name("fixtures")
WITHOUT_ALL = 2
"""Patches of each sample that are graded where HONEST is not `all`."""
TEN_RUNS = ("intervals", "patience", "timespan")
"""Samples of which one patch is graded: a confirmation takes ten runs there, elsewhere two to four."""

_ME = "git config user.name ann; git config user.email ann@example.org"
_ENDINGS = {
    "ledger/new_module_rounding": f"{_ME}; git add -A; git commit -qm 'Hand out every cent'",
    "ledger/own_exception_tests_and_changes": f"{_ME}; git checkout -qb cents; git add -A; git commit -qm cents",
    "ledger/fractions_and_logging": "python -m pytest -q; python -m pytest -q tests > /tmp/log; git status",
    "swatch/package_with_parts": f"{_ME}; git add -A; git commit -qm one; git commit -q --allow-empty -m two",
    "swatch/two_patterns": f"{_ME}; git stash -qu; git checkout -qb other; git stash pop -q",
    "tarif/new_module_rundung": f"{_ME}; git add -A; git commit -qm Rundung; git checkout -q --detach",
    "tarif/context_of_decimal": "git add -A",
    "patience/deadline_class": f"{_ME}; git checkout -qb deadline; git add -A; git commit -qm deadline",
    "patience/while_loop": "cp patience/retry.py /tmp/kept.py; git diff > /tmp/my.diff; rm -rf patience/__pycache__",
    "timespan/new_module_parts": f"{_ME}; git add timespan; git commit -qm parts",
    "timespan/timedelta": "python -m unittest -v; touch -d '2001-01-01' timespan/writer.py",
}
"""What the policy does after its change."""


@dataclass(frozen=True, slots=True)
class Honest:
    """A fix of a sample."""

    sample: str
    name: str

    @property
    def text(self) -> bytes:
        """The patch."""
        return (PATCHES / self.sample / f"{self.name}.patch").read_bytes()

    @property
    def ending(self) -> str:
        """Commands after it."""
        return _ENDINGS.get(str(self), "true")

    def __str__(self) -> str:
        return f"{self.sample}/{self.name}"


def every_patch() -> list[Honest]:
    """All of them, those with an ending first within each sample, for they are the odd ones."""
    found = (Honest(path.parent.name, path.stem) for path in PATCHES.glob("*/*.patch"))
    return sorted(found, key=lambda one: (one.sample, one.ending == "true", one.name))


def chosen() -> list[Honest]:
    """All with HONEST=all, else the first ones of each sample."""
    return every_patch() if os.environ.get("HONEST") == "all" else list(_some())


def _some() -> Iterator[Honest]:
    for sample in sorted({one.sample for one in every_patch()}):
        count = 1 if sample in TEN_RUNS else WITHOUT_ALL
        yield from [one for one in every_patch() if one.sample == sample][:count]
