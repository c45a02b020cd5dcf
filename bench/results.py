"""Measurement results: figures with their spread, and bench/results/latest.json."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Literal

NAMES = (
    "action_true_ms",
    "action_paced64_p99_ms",
    "actions_per_s",
    "start_warm_ms",
    "start_cold_ms",
    "start_group16_s",
    "grade_overhead_s",
    "grade_total_s",
    "reward_cached_ms",
    "rl_step_s",
    "rss_mb_at_200",
    "idle_cpu_pct_at_200",
    "import_s",
)
"""Always in latest.json, whatever failed."""


def percentile(values: Sequence[float], percent: int) -> float:
    """The `percent`-th percentile, 1 to 99, interpolated; of a single value, that value."""
    if len(values) == 1:
        return values[0]
    return quantiles(values, n=100, method="inclusive")[percent - 1]


@dataclass(frozen=True, slots=True)
class Side:
    """One side's value of a figure."""

    value: float
    n: int
    """Number of measurements."""
    low: float | None = None
    high: float | None = None
    """Spread: p5 and p95 around a median, p50 and the largest around a p99."""

    @classmethod
    def median(cls, values: Sequence[float]) -> "Side":
        """The median, with p5 and p95."""
        return cls(median(values), len(values), percentile(values, 5), percentile(values, 95))

    @classmethod
    def p99(cls, values: Sequence[float]) -> "Side":
        """The 99th percentile, with the median and the largest."""
        return cls(percentile(values, 99), len(values), median(values), max(values))


@dataclass(frozen=True, slots=True)
class Figure:
    """Our value and a peer's; if one is missing, `note` says why."""

    name: str
    unit: str
    ours: Side | None
    peer: Side | None = None
    peer_name: str | None = None
    note: str = ""
    better: Literal["less", "more"] = "less"

    @property
    def ratio(self) -> float | None:
        """ours / peer: below 1 we are better, if less is better."""
        if self.ours is None or self.peer is None or not self.peer.value:
            return None
        return self.ours.value / self.peer.value

    def entry(self) -> dict[str, object]:
        """Its entry in latest.json."""
        return {
            "name": self.name,
            "ours": None if self.ours is None else _rounded(self.ours.value),
            "peer": None if self.peer is None else _rounded(self.peer.value),
            "peer_name": self.peer_name,
            "unit": self.unit,
            "ratio": None if self.ratio is None else _rounded(self.ratio),
            "n": 0 if self.ours is None else self.ours.n,
        }


@dataclass(frozen=True, slots=True)
class Conditions:
    """The machine's load just before a subject was measured."""

    load: float
    """Load average over a minute; includes what this run did before."""
    busy_pct: float
    """Share of all CPUs in use while this run itself was waiting."""
    took_s: float = 0.0
    """Seconds that the subject took."""


@dataclass(frozen=True, slots=True)
class Point:
    """The scale subject at one number of live sessions."""

    sessions: int
    values: Mapping[str, float]


@dataclass(slots=True)
class Run:
    """All results of a run."""

    mode: Literal["whole", "quick"]
    machine: Mapping[str, str]
    figures: list[Figure] = field(default_factory=list)
    scale: list[Point] = field(default_factory=list)
    conditions: dict[str, Conditions] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    """Subject or peer -> why it has no figures."""

    def figure(self, name: str) -> Figure | None:
        """The figure of that name."""
        return next((figure for figure in self.figures if figure.name == name), None)

    def complete(self) -> None:
        """Add an empty figure for each name that was not measured."""
        absent = [name for name in NAMES if self.figure(name) is None]
        self.figures += [Figure(name, "", None, note="not measured in this run") for name in absent]

    def write(self, folder: Path) -> None:
        """Write latest.json, the list for other tools, and details.json, the complete run."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in (("latest", [figure.entry() for figure in self.figures]), ("details", asdict(self))):
            (folder / f"{name}.json").write_text(json.dumps(value, indent=2) + "\n")

    @classmethod
    def read(cls, folder: Path) -> "Run":
        """Read a run from details.json."""
        stored: dict[str, Any] = json.loads((folder / "details.json").read_text())

        def side(value: dict[str, Any] | None) -> Side | None:
            return None if value is None else Side(**value)

        return cls(
            mode=stored["mode"],
            machine=stored["machine"],
            figures=[
                Figure(**{**value, "ours": side(value["ours"]), "peer": side(value["peer"])})
                for value in stored["figures"]
            ],
            scale=[Point(**value) for value in stored["scale"]],
            conditions={name: Conditions(**value) for name, value in stored["conditions"].items()},
            missing=stored["missing"],
        )


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
