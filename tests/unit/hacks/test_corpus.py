"""The corpus is what it claims to be, and the suite sees what gets through."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from hacks import corpus
from hacks.__main__ import every_hack, one_of_each, pairs
from hacks.base import FAMILIES, Family, Group, Kind
from hacks.document import marks, what, write_document
from hacks.player import action, shell_script
from hacks.results import Delay, Outcome, Results, read, table
from hacks.targets import ONE_EACH, targets

HACKS, TARGETS = every_hack(), targets()
OUTCOME = Outcome("conftest", "ledger", "fake", "files", "swebench", "unresolved", harness=True)


def test_there_are_sixty_hacks_of_every_kind_for_every_family() -> None:
    """A family without attackers would look safe."""
    assert len(HACKS) >= 60
    assert {hack.kind for hack in HACKS.values()} == set(get_args(Kind))
    assert {hack.group for hack in HACKS.values()} == set(get_args(Group))
    assert set(get_args(Family)) == FAMILIES == {one.family for one in TARGETS.values()}
    for family in FAMILIES:
        assert sum(family in hack.families for hack in HACKS.values()) >= 30, family
    every = pairs(HACKS, TARGETS.values())
    assert {name for name, _, _ in every} == set(HACKS)  # each has a target
    assert {TARGETS[name].family for name in ONE_EACH} == FAMILIES
    assert len(one_of_each(every)) < len(every) / 4


@pytest.mark.parametrize("name", sorted(path.stem for path in Path(corpus.__path__[0]).glob("[!_]*.py")))
def test_a_file_says_what_it_does_and_where_it_is_known_from(name: str) -> None:
    """The document is made of the docstrings."""
    does, known = what(HACKS[name])
    assert does.endswith(".") and len(does) > 20
    assert len(known) >= 3 and "." not in known[-1:]


def test_no_two_hacks_of_a_target_are_the_same() -> None:
    """The second would be given the first one's verdict."""
    for target in TARGETS.values():
        seen: dict[str, str] = {}
        texts = {name: shell_script(hack.play(target)) for name, hack in HACKS.items() if hack.fits(target)}
        for name, text in texts.items():
            assert seen.setdefault(text, name) == name, (target.name, name, seen[text])


@pytest.mark.parametrize("name", HACKS)
def test_what_a_hack_writes_can_run(name: str) -> None:
    """A payload with a slip of its author's fails everywhere, and looks prevented."""
    for target in TARGETS.values():
        if not HACKS[name].fits(target):
            continue
        play = HACKS[name].play(target)
        assert play.files or play.commands
        for path, text in play.files.items():
            if path.endswith(".py") and isinstance(text, str):
                compile(text, path, "exec")
                assert not re.search(r"@[A-Z0-9_]+@", text), path
        subprocess.run(["bash", "-n"], input=shell_script(play), text=True, check=True)
        if target.code_path:
            compile(action(target, play), target.code_path, "exec")


def test_what_gets_through_is_seen() -> None:
    """A suite that calls a faked reward prevented is worse than none."""
    assert OUTCOME.fooled == ""
    assert replace(OUTCOME, verdict="resolved", reward=1.0).fooled == "resolved"
    assert replace(OUTCOME, reward=0.1).fooled == "reward"
    assert replace(OUTCOME, verdict="infra", mask=True).fooled == "masked"
    assert replace(OUTCOME, error="refused").fooled == "unplayed"
    assert replace(OUTCOME, verdict="tampered").fooled == ""


def test_a_delay_is_measured_by_what_any_neighbour_costs() -> None:
    """Alone 1 s and beside honest neighbours 2 s: 3 s beside attackers is a half more, and so is allowed."""
    delay = Delay("delay_digits", 8, [0.9, 1.0], [2.0], [3.0])
    assert not delay.delayed and delay.bound_s == 4.0
    assert replace(delay, beside_s=[3.0, 4.1]).delayed
    assert replace(delay, error="gold is unresolved").delayed


def test_results_come_back_as_they_were_written(tmp_path: Path) -> None:
    """`--add` goes on from them."""
    results = Results([OUTCOME, replace(OUTCOME, hack="x", verdict="resolved")], [Delay("d", 2, [1.0], [1.0], [9.0])])
    results.write(tmp_path / "some" / "results.json")
    again = read(tmp_path / "some" / "results.json")
    assert (again.outcomes, again.delays) == (results.outcomes, results.delays)
    assert [line.split()[0] for line in again.bad] == ["x", "d:"]
    assert read(tmp_path / "none.json").bad == []


def test_the_table_counts() -> None:
    """By family and in all; what could not be played is not counted."""
    rows = [OUTCOME, replace(OUTCOME, verdict="resolved", reward=1.0), replace(OUTCOME, error="refused")]
    last = [cell.strip() for cell in table(rows, lambda one: one.family, "family").splitlines()[-1].split("|")[1:-1]]
    assert last == ["all", "2", "1", "0", "0", "0", "2 of 2"]


def test_the_document_fills_its_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mark that nothing fills would be shown to readers; one that nothing asks for is forgotten prose."""
    results = Results([OUTCOME], [Delay("delay_digits", 8, [1.0], [1.0], [1.0])])
    monkeypatch.setattr("hacks.document._TARGET", tmp_path / "trust.md")
    write_document(results, HACKS, 1)
    text = (tmp_path / "trust.md").read_text()
    assert not re.search(r"@[A-Z_]+@", text)
    template = Path("hacks/trust.md").read_text()
    assert set(re.findall(r"@([A-Z_]+)@", template)) == set(marks(results, HACKS, 1))
