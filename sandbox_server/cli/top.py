"""`sandbox-server top`: health in one word, verdicts, wall time and nodes, refreshed regularly on a terminal."""

import sys
import time
from typing import Any

import typer

from sandbox_server.cli import api
from sandbox_server.cli.formatting import seconds
from sandbox_server.insight.sanitize import for_terminal

app = typer.Typer()

_CLEAR = "\x1b[H\x1b[2J"


@app.command(epilog="Example: sandbox-server top --run grpo-7b")
def top(
    run: str | None = typer.Option(None, help="Only this run."),
    every_s: float = typer.Option(2.0, "--every", min=0.5, help="Seconds between refreshes."),
    once: bool = typer.Option(False, "--once", help="Print once; the default if the output is not a terminal."),
) -> None:
    """Show the service's health in one word, and its evidence."""
    query: dict[str, str | int] = {} if run is None else {"run": run}
    while True:
        lines = _lines(api.call("GET", "/v1/overview", query), api.call("GET", "/v1/nodes"))
        text = "\n".join(for_terminal(line) for line in lines)
        if once or not sys.stdout.isatty():
            typer.echo(text)
            return
        typer.echo(_CLEAR + text)
        time.sleep(every_s)


def _lines(seen: dict[str, Any], nodes: list[dict[str, Any]]) -> list[str]:
    lines = [seen["word"].upper() + (f"  run {seen['run']}" if seen["run"] else "")]
    lines += [f"  {found['word']}: {found['why']}" for found in seen["findings"]]
    lines += ["", f"{'verdict':<22} {'now':>7} {'day ago':>8}"]
    counts: dict[str, list[int]] = {}
    for column, name in enumerate(("now", "before")):
        for one in seen[name]:
            label = one["verdict"] + (" (masked)" if one["mask"] else "")
            counts.setdefault(label, [0, 0])[column] += one["count"]
    lines += [f"{label:<22} {now:>7} {before:>8}" for label, (now, before) in counts.items()]
    lines += ["", "groups  " + ("  ".join(f"{kind} {n}" for kind, n in seen["groups"].items()) or "none")]
    wall = seen["wall"]
    spent = "  ".join(f"{stage} {seconds(value)}" for stage, value in wall["seconds"].items() if value >= 0.01)
    lines += [f"rollout {seconds(wall['total_s'])} of {wall['sessions']}: {spent or 'none ended'}", ""]
    for node in nodes:
        faults = "; ".join(f"{reason}: {text}" for reason, text in node["faults"].items())
        lines.append(
            f"{node['node']:<24} {node['status']:<8} {node['used']:>4}/{node['slots']} sessions"
            f" {node['waiting']:>4} waiting {node['gradings']:>3}/{node['grade_slots']} gradings{_host(node['vitals'])}"
            f"  {faults}".rstrip()
        )
    return lines


def _host(vitals: dict[str, Any]) -> str:
    if not vitals:
        return ""
    kills = f", {vitals['oom_kills']} OOM kills" if vitals["oom_kills"] else ""
    return f"  engine {seconds(vitals['engine_ms'] / 1000)}, disk {vitals['disk_used']:.0%}{kills}"
