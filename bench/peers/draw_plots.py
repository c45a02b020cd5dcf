"""Draws a run's plots: `python draw_plots.py details.json FOLDER`. Runs in an environment with matplotlib."""

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
# deterministic: no date, no random ids; text stays text, which keeps the files small
mpl.rcParams.update({"svg.hashsalt": "bench", "svg.fonttype": "none", "font.size": 9, "axes.grid": True})

from matplotlib import pyplot  # noqa: E402 - after the backend was chosen

OURS, THEIRS = "#1f6f50", "#b0b0b0"


def bars(figures: dict[str, Any], names: list[str], target: Path, title: str) -> None:
    """Ours and each peer's, in milliseconds, logarithmic."""
    shown = [figures[name] for name in names if name in figures and figures[name]["ours"]]
    if not shown:
        return
    rows = [(one["peer_name"], one["peer"]["value"], THEIRS) for one in shown if one["peer"]]
    rows.append((f"this server ({shown[0]['name']})", shown[0]["ours"]["value"], OURS))
    draw_bars(rows, target, title)


def draw_bars(rows: list[tuple[str, float, str]], target: Path, title: str) -> None:
    """One horizontal bar per row."""
    figure, axes = pyplot.subplots(figsize=(7, 0.5 * len(rows) + 1))
    names = [textwrap.fill(row[0], 30) for row in rows]
    drawn = axes.barh(names, [row[1] for row in rows], color=[row[2] for row in rows])
    axes.bar_label(drawn, [f"{row[1]:,.0f} ms" if row[1] >= 10 else f"{row[1]:.1f} ms" for row in rows], padding=3)
    axes.set_xscale("log")
    axes.set_xlim(1, 10 * max(row[1] for row in rows))
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("ms, logarithmic")
    axes.set_title(title)
    save(figure, target)


def starts(figures: dict[str, Any], target: Path) -> None:
    """Warm and cold, with plain Docker and SWE-ReX."""
    rows = []
    for name, label in (("start_warm_ms", "this server, warm"), ("start_cold_ms", "this server, cold")):
        if name in figures and figures[name]["ours"]:
            rows.append((label, figures[name]["ours"]["value"], OURS))
    for name in ("start_cold_ms", "start_cold_swerex_ms"):
        if name in figures and figures[name]["peer"]:
            rows.append((figures[name]["peer_name"], figures[name]["peer"]["value"], THEIRS))
    if rows:
        draw_bars(rows[::-1], target, "start of a sandbox, median")


def scale(points: list[dict[str, Any]], target: Path) -> None:
    """Costs by number of live sessions."""
    if not points:
        return
    panels = {
        "ms": [
            "start_cold_ms",
            "start_warm_ms",
            "grade_total_ms",
            "action_p50_ms",
            "action_p99_ms",
            "reward_cached_ms",
        ],
        "MB": ["server_mb", "redis_mb", "container_mb"],
        "% of one core, idle": ["idle_server_pct", "idle_redis_pct", "idle_containers_pct"],
    }
    figure, every = pyplot.subplots(1, len(panels), figsize=(11, 3.6))
    for axes, (unit, names) in zip(every, panels.items(), strict=True):
        for name in names:
            seen = [(point["sessions"], point["values"][name]) for point in points if name in point["values"]]
            if seen:
                axes.plot(*zip(*seen, strict=True), marker="o", markersize=3, label=name)
        axes.set_xlabel("live sessions")
        axes.set_title(unit)
        if axes.lines:
            axes.legend(fontsize=7)
        if unit == "ms":
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
    save(figure, target)


def save(figure: Any, target: Path) -> None:
    """Save without metadata that change with the date."""
    figure.tight_layout()
    figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None})
    pyplot.close(figure)


def main() -> None:
    """Draw all plots."""
    details, folder = Path(sys.argv[1]), Path(sys.argv[2])
    run = json.loads(details.read_text())
    figures = {one["name"]: one for one in run["figures"]}
    names = ["action_true_ms", "action_true_mini_ms", "action_true_exec_ms"]
    bars(figures, names, folder / "action.svg", "one action, `true`, median")
    starts(figures, folder / "start.svg")
    scale(run["scale"], folder / "scale.svg")


main()
