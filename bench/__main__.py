"""`python -m bench`: measure, print, write bench/results/ and, in a whole run, docs/performance.md with its plots."""

import argparse
import asyncio
import signal
import sys
from pathlib import Path

from bench import (
    actions,
    boxes,
    containers,
    direct,
    forks,
    gradings,
    history,
    imports,
    judging,
    machine,
    neighbours,
    report,
    rl_step,
    scale,
    search,
    starts,
    ui,
)
from bench.results import Run
from bench.subject import Bench

ROOT = Path(__file__).resolve().parent.parent
SUBJECTS = {
    "imports": imports.measure,
    "actions": actions.alone,
    "direct": direct.measure,
    "start_cold": starts.cold,
    "history": history.measure,
    "start_warm": starts.warm,
    "start_group": starts.groups,
    "gradings": gradings.measure,
    "judging": judging.measure,
    "rl_step": rl_step.measure,
    "search": search.measure,
    "scale": scale.measure,
    "boxes": boxes.measure,
    "fork": forks.measure,
    "neighbours": neighbours.measure,
    "ui": ui.measure,
}
"""Measured in this order."""
_WHOLE_ALONE = ("history", "search", "boxes", "fork", "neighbours", "ui")
"""Too long for a quick run; `--only` measures them there too."""


def main() -> None:
    """Run the benchmarks that the command line selects."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, smaller shapes: under three minutes")
    parser.add_argument("--only", choices=SUBJECTS, action="append", help="only these subjects; nothing is written")
    options = parser.parse_args()
    run = Run("quick" if options.quick else "whole", machine.description())
    bench = Bench(run)
    try:
        asyncio.run(
            _measure(bench, options.only or [name for name in SUBJECTS if not (bench.quick and name in _WHOLE_ALONE)])
        )
    except (asyncio.CancelledError, KeyboardInterrupt):
        sys.exit("stopped; nothing was written")
    finally:
        if left := containers.sweep():
            print(f"could not be removed: {', '.join(left)}", file=sys.stderr)
    if not options.only:
        run.complete()
        run.write(ROOT / "bench" / "results")
        if not options.quick:
            report.write(run, ROOT)
    print(report.budgets(run))
    print(report.figures(run))
    for what, why in run.missing.items():
        print(f"without figures: {what}: {why}")


async def _measure(bench: Bench, names: list[str]) -> None:
    task = asyncio.current_task()
    assert task is not None  # asyncio.run created one
    # like Ctrl-C: cancels what is running, which cleans up after itself
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        for name in names:
            await bench.subject(name, SUBJECTS[name])
    finally:
        await bench.close()


if __name__ == "__main__":
    main()
