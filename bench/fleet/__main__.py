"""`python -m bench.fleet`: a rollout's cost for Redis, SQL and network, and placement of starts in a large fleet."""

import argparse
import asyncio
from dataclasses import asdict

from bench import machine
from bench.fleet import costs, simulation
from bench.results import Run
from bench.subject import Bench

_FLEETS = (10, 100, 1000)


def main() -> None:
    """Measure the costs, simulate the placement, and print the tables of docs/scaling.md."""
    parser = argparse.ArgumentParser(prog="python -m bench.fleet", description=__doc__)
    parser.add_argument("--only", choices=("costs", "placement"))
    only = parser.parse_args().only
    if only != "placement":
        _costs()
    if only != "costs":
        _placement()


def _costs() -> None:
    measured = asyncio.run(costs.measure(Bench(Run("whole", machine.description()))))
    print("| of one rollout | value |\n|---|---|")
    for name, value in asdict(measured).items():
        print(f"| `{name}` | {value:.3g} |")


def _placement() -> None:
    print(
        "\n| hosts | policy | starts | image ready | pulls a start | start p50 | p99 | queued despite room | fullest"
        " | choice |"
        "\n|---|---|---|---|---|---|---|---|---|---|"
    )
    for count in _FLEETS:
        for policy in simulation.POLICIES:
            one = simulation.simulate(count, policy, steps=3 if count < 1000 else 2)
            print(
                f"| {one.nodes} | {one.policy} | {one.starts} | {one.ready_pct:.0f} % | {one.pulls_per_start:.3f}"
                f" | {one.start_p50_s:.2f} s | {one.start_p99_s:.1f} s | {one.queued} | {one.fullest:.2f}"
                f" | {one.choose_us:.0f} us |",
                flush=True,
            )


if __name__ == "__main__":
    main()
