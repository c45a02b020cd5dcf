"""Decides whether a soak was flat, and formats its table. Pure.

The median of the last quarter of the samples is compared with the median of the second quarter. The first quarter does
not count, because imports, pools and caches fill then. A single grading or start does not change a quarter's median.
The last quarter may have more than the second:

- memory of a server: 10 % + 8 MB. With 130 MB that is 21 MB, so a leak of 1 KB per action is found if half of the soak
  has more than 21,000 actions.
- descriptors: 8. A session holds one stream and a grading two; the number of both is constant during the soak.
- containers: 4. The pool parks up to 4 per node, and a grading's container briefly outlives its session.
- Redis: 10 % + 20 keys, 10 % + 1 MB. It keeps an ended session for an eighth of the soak.
- SQL: per rollout 1.5 times the bytes. It keeps everything permanently, so its total size grows.
"""

from dataclasses import dataclass, field
from statistics import median

_SQL_FACTOR = 1.5
_SQL_FREE = 2 << 20
"""PostgreSQL allocates and frees pages by its own rules."""


@dataclass(slots=True)
class Gauge:
    """A sampled quantity, and how much it may grow."""

    factor: float
    more: float
    values: list[float] = field(default_factory=list)

    @property
    def second(self) -> float:
        """Median of the second quarter."""
        quarter = len(self.values) // 4
        return median(self.values[quarter : 2 * quarter] or self.values)

    @property
    def last(self) -> float:
        """Median of the last quarter."""
        return median(self.values[-(len(self.values) // 4) or -1 :])

    @property
    def bound(self) -> float:
        """The maximum for `last`."""
        return self.second * self.factor + self.more

    @property
    def flat(self) -> bool:
        return self.last <= self.bound


@dataclass(slots=True)
class Soak:
    """All samples and counts of a soak."""

    minutes: float
    parallel: int
    nodes: int
    rollouts: int = 0
    actions: int = 0
    failed: list[str] = field(default_factory=list)
    """Reasons given to rollouts without a verdict of their own work; there should be none."""
    longest_stall_s: float = 0.0
    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    leaked: list[str] = field(default_factory=list)
    gauges: dict[str, Gauge] = field(default_factory=dict)
    sql_bytes: list[int] = field(default_factory=list)
    finished: list[int] = field(default_factory=list)
    """Rollouts that had ended by each sample."""

    def gauge(self, name: str, bounds: Gauge) -> Gauge:
        """The gauge of this name, created with `bounds` at its first sample."""
        return self.gauges.setdefault(name, bounds)

    def sql_per_rollout(self, quarter: int) -> tuple[int, int]:
        """(bytes, rollouts) added in the `quarter`-th quarter; 0 is the first."""
        at = [index * (len(self.sql_bytes) - 1) // 4 for index in (quarter, quarter + 1)]
        grown, ended = [series[at[1]] - series[at[0]] for series in (self.sql_bytes, self.finished)]
        return grown, max(ended, 1)

    @property
    def sql_flat(self) -> bool:
        """Compares growth per rollout, not per time."""
        (before, n), (after, m) = self.sql_per_rollout(1), self.sql_per_rollout(3)
        return after <= _SQL_FACTOR * before * m / n + _SQL_FREE

    @property
    def ok(self) -> bool:
        """Flat, and every rollout got its verdict."""
        whole = not (self.failed or self.lost or self.wrong or self.leaked) and self.rollouts > 0
        return whole and self.sql_flat and all(gauge.flat for gauge in self.gauges.values())


def markdown(soak: Soak) -> str:
    """The counts, then the figures as a table."""
    counts = (
        f"{soak.minutes:g} minutes, {soak.nodes} nodes, {soak.parallel} rollouts at a time: {soak.rollouts} rollouts, "
        f"{soak.actions} actions; {len(soak.failed)} rollouts without a verdict, {len(soak.lost)} lost actions, "
        f"{len(soak.wrong)} wrong rewards, {len(soak.leaked)} leaked containers; longest stall "
        f"{soak.longest_stall_s:.1f} s."
    )
    rows = ["| what | first sample | second quarter | last quarter | bound | |", "|---|---|---|---|---|---|"]
    for name, gauge in soak.gauges.items():
        state = "flat" if gauge.flat else "**grew**"
        cells = (gauge.values[0], gauge.second, gauge.last, gauge.bound)
        rows.append(f"| {name} | {' | '.join(f'{cell:.1f}' for cell in cells)} | {state} |")
    (before, n), (after, m) = soak.sql_per_rollout(1), soak.sql_per_rollout(3)
    state = "as it should" if soak.sql_flat else "**grew**"
    each = [f"{size / 1024:.1f}" for size in (before / n, after / m, before / n * _SQL_FACTOR)]
    rows.append(f"| SQL: KB a rollout | | {' | '.join(each)} | {state} |")
    rows.append(f"| SQL: MB | {soak.sql_bytes[0] / 2**20:.1f} | | {soak.sql_bytes[-1] / 2**20:.1f} | | grows |")
    return "\n".join((counts, "", *rows)) + "\n"
