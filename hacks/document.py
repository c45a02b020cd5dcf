"""`python -m hacks.document`: docs/trust.md from hacks/trust.md and a run's results; the same give the same."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from hacks import corpus
from hacks.base import Hack
from hacks.results import RESULTS, Outcome, Results, read, table
from hacks.targets import targets
from sandbox_server.plugins import discover

_TEMPLATE = Path(__file__).resolve().parent / "trust.md"
_TARGET = _TEMPLATE.parent.parent / "docs" / "trust.md"


def main() -> None:
    """Write the document."""
    parser = argparse.ArgumentParser(prog="python -m hacks.document", description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS, help="the file of results")
    parser.add_argument("--note", help="what whoever reads of this run must know; kept with the results")
    options = parser.parse_args()
    hacks = {name: cast(Hack, hack) for name, hack in discover(corpus, "HACK").items()}
    whole = sum(hack.fits(target) for hack in hacks.values() for target in targets().values())
    results = read(options.results)
    if options.note is not None:
        results.note = options.note
        results.write(options.results)
    write_document(results, hacks, whole)


def write_document(results: Results, hacks: Mapping[str, Hack], whole: int) -> None:
    """Fill the template's placeholders; `whole` is the number of plays of a complete run."""
    text = _TEMPLATE.read_text(encoding="utf-8")
    for mark, value in marks(results, hacks, whole).items():
        text = text.replace(f"@{mark}@", value)
    _TARGET.write_text(text, encoding="utf-8")


def marks(results: Results, hacks: Mapping[str, Hack], whole: int) -> dict[str, str]:
    """The value of each placeholder of the template."""
    outcomes = [one for one in results.outcomes if not one.remains]
    played = [one for one in outcomes if not one.error]
    asked = [one for one in played if one.harness is not None]
    got = {what: sum(one.fooled == what for one in played) for what in ("resolved", "reward", "masked")}
    found_out = sum(one.verdict == "tampered" for one in played)
    return {
        "HACKS": str(len(hacks)),
        "PLAYS": str(len(played)),
        "WHOLE": str(whole),
        "NOTE": f"{results.note}\n\n" if results.note else "",
        "REMAINS": _remains(results, hacks),
        "RESOLVED": str(got["resolved"]),
        "REWARD": str(got["reward"]),
        "MASKED": str(got["masked"]),
        "TAMPERED": str(found_out),
        "PREVENTED": str(len(played) - found_out - sum(got.values())),
        "DELAYED": str(sum(one.delayed for one in results.delays)),
        "DELAYS": str(len(results.delays)) if results.delays else "0 (in this run none was measured)",
        "HARNESS": f"{sum(one.harness is True for one in asked)} of {len(asked)}"
        if asked
        else "none (in this run it was not asked)",
        "OURS": f"{sum(one.fooled in ('resolved', 'reward') for one in asked)} of {len(asked)}",
        "BY_FAMILY": table(outcomes, lambda one: one.family, "grader"),
        "BY_TARGET": table(outcomes, lambda one: one.target, "instance"),
        "BY_CLASS": table(outcomes, lambda one: f"{one.kind}: {one.group}", "wants: class"),
        "EACH": _each(results, hacks),
        "WAITS": _waits(results),
    }


def what(hack: Hack) -> tuple[str, str]:
    """What the hack does and where it is known from, taken from its file's docstring."""
    said, _, known = (hack.play.__globals__["__doc__"] or "").partition("Known from:")
    return " ".join(said.split()), " ".join(known.split()).rstrip(".")


def _remains(results: Results, hacks: Mapping[str, Hack]) -> str:
    rows = ["| hack | why it gets through | played | ended |", "|---|---|---|---|"]
    for name, hack in hacks.items():
        if hack.remains:
            played = [one for one in results.outcomes if one.hack == name and not one.error]
            rows.append(f"| {name} | {hack.remains} | {len(played)} | {_ends(played)} |")
    return "\n".join(rows)


def _each(results: Results, hacks: Mapping[str, Hack]) -> str:
    rows = ["| hack | does | known from | played | ended | harness |", "|---|---|---|---|---|---|"]
    for name, hack in hacks.items():
        played = [one for one in results.outcomes if one.hack == name and not one.error]
        does, known = what(hack)
        asked = [one.harness for one in played if one.harness is not None]
        beside = f"{sum(asked)} of {len(asked)}" if asked else ""
        rows.append(f"| {name} | {does} | {known} | {len(played)} | {_ends(played)} | {beside} |")
    return "\n".join(rows)


def _ends(played: list[Outcome]) -> str:
    ends = [f"{one.verdict}{', masked' if one.mask else ''}" for one in played]
    return ", ".join(f"{ends.count(end)} {end}" for end in sorted(set(ends)))


def _waits(results: Results) -> str:
    rows = [
        "| hack | attackers | alone s | beside honest s | beside attackers s | bound s |",
        "|---|---|---|---|---|---|",
    ]
    for one in results.delays:
        figures = (*one.worst_s, one.bound_s)
        rows.append(f"| {one.hack} | {one.attackers} | {' | '.join(f'{value:.2f}' for value in figures)} |")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
