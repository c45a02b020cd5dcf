"""The result of one fault, and chaos/results/latest.json."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from chaos.rollout import Rollout

RESULTS = Path(__file__).resolve().parent / "results" / "latest.json"
COLUMNS = (
    "fault",
    "started",
    "finished",
    "restored",
    "honestly failed",
    "lost actions",
    "wrong rewards",
    "leaked",
    "longest stall s",
)


@dataclass(slots=True)
class Outcome:
    """One fault's line of the report."""

    fault: str
    what: str
    seen: str = ""
    """The observed effect of the fault."""
    started: int = 0
    finished: int = 0
    """Rollouts that got the verdict of their own work."""
    restored: int = 0
    """Rollouts told that their sandbox was restored; also counted as finished or failed."""
    honestly_failed: int = 0
    """Rollouts without such a verdict that were told so: a terminal observation, a refused call or a masked verdict."""
    interrupted: int = 0
    """Actions that were reported as interrupted: they may have taken effect."""
    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    leaked: list[str] = field(default_factory=list)
    longest_stall_s: float = 0.0
    """Longest wait of one rollout for one call, including retries."""
    silence_s: float = 0.0
    """Longest time in which no rollout made progress."""
    after: int = 0
    """Rollouts begun after the fault that got their verdict."""
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)
    """Distinct reasons that honestly failed rollouts were given."""
    error: str = ""
    """Why the fault could not be injected or the fleet did not recover; else ""."""

    @property
    def ok(self) -> bool:
        """The zeros are zeros, the fault took effect, and rollouts went on."""
        return not (self.error or self.lost or self.wrong or self.leaked) and self.after > 0

    def cells(self) -> tuple[str, ...]:
        """The values of COLUMNS."""
        counts = (self.started, self.finished, self.restored, self.honestly_failed)
        zeros = (len(self.lost), len(self.wrong), len(self.leaked))
        return (self.fault, *map(str, (*counts, *zeros)), f"{self.longest_stall_s:.1f}")


def table(outcomes: Sequence[Outcome]) -> str:
    """A Markdown table, with aligned columns for terminals."""
    rows = [COLUMNS, *(one.cells() for one in outcomes)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    return "\n".join((lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]))


def write_rollouts(rollouts: Sequence[Rollout], path: Path) -> None:
    """Write each rollout's record, for failure analysis."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(one) for one in rollouts], indent=1, ensure_ascii=False) + "\n")


def read(path: Path) -> list[Outcome]:
    """The outcomes of a run; empty if there is no file."""
    if not path.exists():
        return []
    known = {one.name for one in fields(Outcome)}
    entries: list[dict[str, Any]] = json.loads(path.read_text())
    return [Outcome(**{name: value for name, value in entry.items() if name in known}) for entry in entries]


def write(outcomes: Sequence[Outcome], path: Path) -> None:
    """Write all outcomes as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    entries = [{**asdict(one), "ok": one.ok} for one in outcomes]
    path.write_text(json.dumps(entries, indent=1, ensure_ascii=False) + "\n")
