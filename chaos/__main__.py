"""`python -m chaos`: inject every fault into a fleet, singly and mixed; print a report and write chaos/results/."""

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from typing import cast

from chaos import faults
from chaos.database import postgres_bin
from chaos.drill import drill
from chaos.fault import Fault
from chaos.fleet import Fleet, fleet, require
from chaos.processes import ChaosFailed
from chaos.results import RESULTS, Outcome, read, table, write
from sandbox_server.plugins import discover

QUICK = ("server_killed_in_action", "container_killed", "redis_paused", "malformed")
"""The short form: one fault of each kind that takes little time."""
PROGRAMS = ("docker", "dockerd", "containerd", "haproxy", "ip", "nsenter")


def every_fault() -> dict[str, Fault]:
    """Name -> fault, in the order of the files and of their lists."""
    found = discover(faults, "FAULTS")
    return {fault.name: fault for each in found.values() for fault in cast(Sequence[Fault], each)}


def main() -> None:
    """Inject the faults that the command line selects."""
    known = every_fault()
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--only", choices=known, action="append", help="only these faults")
    parser.add_argument("--quick", action="store_true", help=f"the short form: {', '.join(QUICK)}")
    parser.add_argument("--parallel", type=int, default=6, help="rollouts at a time")
    parser.add_argument("--nodes", type=int, choices=(1, 2), default=2)
    parser.add_argument(
        "--add", action="store_true", help="add to the previous run's results; skip the faults that it survived"
    )
    options = parser.parse_args()
    before = [one for one in read(RESULTS) if one.ok] if options.add else []
    names = options.only or [
        name for name in (QUICK if options.quick else known) if name not in {b.fault for b in before}
    ]
    chosen = [fault for fault in map(known.__getitem__, names) if _possible(fault, options.nodes)]
    require(*PROGRAMS, *(program for fault in chosen for program in fault.programs))
    signal.signal(signal.SIGTERM, interrupted)
    outcomes = [one for one in before if one.fault not in names]
    try:
        with fleet(options.nodes, {}) as made:
            asyncio.run(_stage(made, chosen, options.parallel, outcomes))
    except KeyboardInterrupt:
        sys.exit("stopped; everything was removed")
    except ChaosFailed as error:
        sys.exit(str(error))
    finally:
        outcomes.sort(key=lambda one: list(known).index(one.fault))
        write(outcomes, RESULTS)
        print(table(outcomes))
    if bad := [one.fault for one in outcomes if not one.ok]:
        sys.exit(f"not survived: {', '.join(bad)}; see {RESULTS}")


def _possible(fault: Fault, nodes: int) -> bool:
    """Whether the fleet allows the fault; prints why not."""
    if fault.nodes > nodes:
        print(f"not injected: {fault.name} needs {fault.nodes} nodes", file=sys.stderr)
    elif fault.postgres and postgres_bin() is None:
        print(f"not injected: {fault.name} needs PostgreSQL", file=sys.stderr)
    else:
        return True
    return False


async def _stage(made: Fleet, chosen: list[Fault], parallel: int, outcomes: list[Outcome]) -> None:
    for number, fault in enumerate(chosen, 1):
        print(f"{number}/{len(chosen)} {fault.name}: {fault.what}", file=sys.stderr, flush=True)
        outcomes.append(await drill(made, fault, parallel))
        write(outcomes, RESULTS)


def interrupted(*_: object) -> None:
    """Handle SIGTERM like Ctrl-C: remove everything."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
