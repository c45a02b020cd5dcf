"""What one fault did to the fleet, and chaos/results/latest.json."""

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
    """What showed that the fault took place."""
    started: int = 0
    finished: int = 0
    """With the verdict of their own work."""
    restored: int = 0
    """Told that their sandbox was restored; they count under finished or failed too."""
    honestly_failed: int = 0
    """Without a verdict of their own, and told so: a terminal observation, a refused call or a masked verdict."""
    interrupted: int = 0
    """Actions of which the rollout was told that they may have taken effect."""
    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    leaked: list[str] = field(default_factory=list)
    longest_stall_s: float = 0.0
    """Longest wait of one rollout for one call, retries included."""
    silence_s: float = 0.0
    """Longest time in which no rollout at all got on."""
    after: int = 0
    """Rollouts begun after the fault that got their verdict."""
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)
    """What rollouts were told that failed honestly, each once."""
    error: str = ""
    """Why the fault could not be staged or the fleet did not go on; "" otherwise."""

    @property
    def ok(self) -> bool:
        """The zeros are zeros, the fault took place, and rollouts went on."""
        return not (self.error or self.lost or self.wrong or self.leaked) and self.after > 0

    def cells(self) -> tuple[str, ...]:
        """As COLUMNS."""
        counts = (self.started, self.finished, self.restored, self.honestly_failed)
        zeros = (len(self.lost), len(self.wrong), len(self.leaked))
        return (self.fault, *map(str, (*counts, *zeros)), f"{self.longest_stall_s:.1f}")


def table(outcomes: Sequence[Outcome]) -> str:
    """As Markdown, in columns that a terminal shows too."""
    rows = [COLUMNS, *(one.cells() for one in outcomes)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    return "\n".join((lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]))


def write_rollouts(rollouts: Sequence[Rollout], path: Path) -> None:
    """What each one was told, for whoever looks into a failure."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(one) for one in rollouts], indent=1, ensure_ascii=False) + "\n")


def read(path: Path) -> list[Outcome]:
    """The outcomes of a run; none where none was written."""
    if not path.exists():
        return []
    known = {one.name for one in fields(Outcome)}
    entries: list[dict[str, Any]] = json.loads(path.read_text())
    return [Outcome(**{name: value for name, value in entry.items() if name in known}) for entry in entries]


def write(outcomes: Sequence[Outcome], path: Path) -> None:
    """The whole of it as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    entries = [{**asdict(one), "ok": one.ok} for one in outcomes]
    path.write_text(json.dumps(entries, indent=1, ensure_ascii=False) + "\n")
