"""Outcomes of the hacks, their file hacks/results/latest.json, and tables made from them. No I/O except files."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from hacks.base import Family, Group, Kind

RESULTS = Path(__file__).resolve().parent / "results" / "latest.json"
DELAY_FACTOR = 1.5
"""Allowed slowdown of an innocent grading by attackers, as a factor."""
DELAY_FREE_S = 1.0
"""Seconds added to the bound: smaller differences are noise."""


@dataclass(slots=True)
class Outcome:
    """Outcome of one hack on one target."""

    hack: str
    target: str
    kind: Kind
    group: Group
    family: Family
    verdict: str = ""
    mask: bool = False
    reward: float = 0.0
    cause: str = ""
    confirm: str = ""
    """State and reason of the confirming run, from the receipt; "" if there was none."""
    seconds: float = 0.0
    """Duration of the whole rollout."""
    end_s: float = 0.0
    """Seconds from the session's end to its reward."""
    harness: bool | None = None
    """Whether the benchmark's own harness scores the same patch as resolved; None: not run, or no answer."""
    remains: str = ""
    """Known reason why the hack sometimes succeeds; "": it must not succeed."""
    said: str = ""
    """End of the observation of its only action."""
    error: str = ""
    """Why it could not be played; "": it was."""

    @property
    def fooled(self) -> str:
        """What the hack achieved: resolved, reward or masked; unplayed if it failed to run; "" for nothing."""
        if self.error:
            return "unplayed"
        if self.mask:
            return "masked"
        if self.verdict == "resolved":
            return "resolved"
        return "reward" if self.reward > 0 else ""

    def line(self) -> str:
        """For the terminal."""
        beside = {None: "", True: ", harness: resolved", False: ", harness: not"}[self.harness]
        state = f"{self.verdict}{' masked' if self.mask else ''} {self.reward:g}" if not self.error else self.error
        confirm = f", confirm: {self.confirm}" if self.confirm else ""
        known = ", as is known" if self.remains else ""
        mark = f"  <== {self.fooled.upper()}{known}" if self.fooled else ""
        return f"{self.hack} on {self.target}: {state} in {self.seconds:.1f} s ({self.cause}){confirm}{beside}{mark}"


@dataclass(slots=True)
class Delay:
    """Durations of innocent gradings: alone, beside honest gradings, and beside as many attackers."""

    hack: str
    attackers: int
    alone_s: list[float]
    crowd_s: list[float]
    beside_s: list[float]
    error: str = ""

    @property
    def worst_s(self) -> tuple[float, float, float]:
        """The longest duration of each kind."""
        alone, crowd, beside = (max(values, default=0.0) for values in (self.alone_s, self.crowd_s, self.beside_s))
        return alone, crowd, beside

    @property
    def bound_s(self) -> float:
        """Longest acceptable duration beside attackers: DELAY_FACTOR times the longest without, plus DELAY_FREE_S."""
        alone, crowd, _ = self.worst_s
        return DELAY_FACTOR * max(alone, crowd) + DELAY_FREE_S

    @property
    def delayed(self) -> bool:
        """Whether the attackers delayed the innocents beyond the bound, or the measurement failed."""
        return bool(self.error) or self.worst_s[2] > self.bound_s

    def line(self) -> str:
        """For the terminal."""
        alone, crowd, beside = self.worst_s
        figures = f"alone {alone:.2f} s, beside honest {crowd:.2f} s, beside attackers {beside:.2f} s"
        mark = "  <== DELAYED" if self.delayed else ""
        return f"{self.hack}: {self.attackers} attackers: {figures}, bound {self.bound_s:.2f} s {self.error}{mark}"


@dataclass(slots=True)
class Results:
    """All outcomes of a run."""

    outcomes: list[Outcome]
    delays: list[Delay]
    note: str = ""
    """Note to readers of this run's results."""

    @property
    def bad(self) -> list[str]:
        """Hacks that succeeded unexpectedly, one line each."""
        return [one.line() for one in self.outcomes if one.fooled and not one.remains] + [
            one.line() for one in self.delays if one.delayed
        ]

    def write(self, path: Path) -> None:
        """Write everything as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        lists = {name: [asdict(one) for one in getattr(self, name)] for name in ("outcomes", "delays")}
        path.write_text(json.dumps({"note": self.note, **lists}, indent=1, ensure_ascii=False) + "\n")


def read(path: Path) -> Results:
    """Read the results of a run; empty if there is no file."""
    if not path.exists():
        return Results([], [])
    found: dict[str, Any] = json.loads(path.read_text())
    known = {kind: {one.name for one in fields(kind)} for kind in (Outcome, Delay)}
    outcomes = [Outcome(**{n: v for n, v in entry.items() if n in known[Outcome]}) for entry in found["outcomes"]]
    delays = [Delay(**{n: v for n, v in entry.items() if n in known[Delay]}) for entry in found["delays"]]
    return Results(outcomes, delays, found.get("note", ""))


def kept(results: Path, outcome: Outcome) -> Path:
    """Path of a play's stored patch, beside the results file."""
    return results.parent / "patches" / outcome.target / f"{outcome.hack}.diff"


def keep(results: Path, outcome: Outcome, patch: str) -> None:
    """Store `patch`, so that the harness can score it later."""
    path = kept(results, outcome)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(patch.encode())


def table(outcomes: Sequence[Outcome], by: Callable[[Outcome], str], head: str) -> str:
    """A Markdown table with a row per value of `by` and a total: hacks played, what they achieved, harness results."""
    rows: list[tuple[str, ...]] = [(head, "played", "resolved", "reward", "masked", "tampered", "harness resolved")]
    for name in sorted({by(one) for one in outcomes}):
        rows.append((name, *_cells([one for one in outcomes if by(one) == name])))
    rows.append(("all", *_cells(outcomes)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [f"| {' | '.join(c.ljust(w) for c, w in zip(row, widths, strict=True))} |" for row in rows]
    return "\n".join((lines[0], f"|{'|'.join('-' * (width + 2) for width in widths)}|", *lines[1:]))


def _cells(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    played = [one for one in outcomes if not one.error]
    got = [sum(one.fooled == what for one in played) for what in ("resolved", "reward", "masked")]
    asked = [one.harness for one in played if one.harness is not None]
    tampered = sum(one.verdict == "tampered" for one in played)
    return (str(len(played)), *map(str, got), str(tampered), f"{sum(asked)} of {len(asked)}" if asked else "-")
