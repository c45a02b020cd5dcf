"""`python -m hacks`: try every hack on every target, the benchmark's harness beside; write what came of it."""

import argparse
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from hashlib import sha256
from pathlib import Path
from typing import cast

from hacks import corpus
from hacks.base import Hack, Target
from hacks.delay import measure
from hacks.document import write_document
from hacks.harness import harness
from hacks.player import Player
from hacks.results import RESULTS, Results, keep, kept, read, table
from hacks.targets import ONE_EACH, targets, write_rows
from sandbox_server.cli.local_server import local_server
from sandbox_server.plugins import discover

SETTINGS = {
    # small limits, so that hacks that exhaust a resource end soon
    "SANDBOX_GRADE_TIMEOUT_S": "60",
    "SANDBOX_REWARD_WAIT_S": "60",
    "SANDBOX_MEMORY_MB": "512",
    "SANDBOX_DISK_MB": "2048",
    "SANDBOX_POOL_SIZE": "3",
    "SANDBOX_COMMAND_TIMEOUT_S": "30",
}
LAST_LOG = Path(tempfile.gettempdir()) / "hacks-last-server.log"
_PARALLEL = 3


def every_hack() -> dict[str, Hack]:
    """All hacks by name, which is the name of the file."""
    return {name: cast(Hack, hack) for name, hack in discover(corpus, "HACK").items()}


def pairs(hacks: dict[str, Hack], of: Iterable[Target]) -> list[tuple[str, Hack, Target]]:
    """Every hack with every target it fits; the delay hacks, which load the machine, come last.

    The order is otherwise pseudo-random but fixed, so that a run that is stopped early is a sample of the whole.
    """
    found = [(name, hack, target) for target in of for name, hack in hacks.items() if hack.fits(target)]
    return sorted(found, key=lambda one: (one[1].kind == "delay", sha256(f"{one[0]} {one[2].name}".encode()).digest()))


def one_of_each(every: Sequence[tuple[str, Hack, Target]]) -> list[tuple[str, Hack, Target]]:
    """The short form: one hack of each class for each grader family and runner."""
    chosen: dict[tuple[str, str, str], tuple[str, Hack, Target]] = {}
    for name, hack, target in every:
        chosen.setdefault((hack.group, target.family, target.runner), (name, hack, target))
    return list(chosen.values())


def main() -> None:
    """Play the hacks selected on the command line."""
    options = _options()
    known = targets()
    hacks = every_hack()
    if unknown := [
        name for name in (*(options.only or ()), *(options.targets or ())) if name not in {**hacks, **known}
    ]:
        sys.exit(f"no such hack or target: {', '.join(unknown)}; there are {', '.join((*known, *hacks))}")
    whole = not (options.only or options.targets or options.quick or options.families)
    wanted = options.targets or (ONE_EACH if options.families or options.quick else known)
    chosen = pairs(
        {name: hack for name, hack in hacks.items() if not options.only or name in options.only},
        (known[name] for name in wanted),
    )
    if options.quick and not options.only:
        chosen = one_of_each(chosen)
    results = read(options.into) if options.add or options.harness_only else Results([], [])
    done = {(one.hack, one.target) for one in results.outcomes if not one.fooled}
    asked = {(name, target.name) for name, _, target in chosen} - done
    if not options.harness_only:
        results.outcomes = [one for one in results.outcomes if (one.hack, one.target) not in asked]
    signal.signal(signal.SIGTERM, _interrupted)
    try:
        if options.harness_only:
            _ask_harness(results, options.into)
        else:
            _play([one for one in chosen if (one[0], one[2].name) in asked], hacks, known, results, options)
    except KeyboardInterrupt:
        sys.exit("stopped; --add goes on from here")
    except RuntimeError as error:  # LocalServerFailed too
        sys.exit(str(error))
    print(table(results.outcomes, lambda one: one.family, "family"))
    if whole:
        write_document(results, hacks, len(chosen))
    if results.bad:
        print("\n".join(("", "got through:", *results.bad)))
        sys.exit(f"{len(results.bad)} got through; see {options.into}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m hacks", description=__doc__)
    parser.add_argument("--only", action="append", metavar="HACK", help="these hacks alone")
    parser.add_argument("--targets", nargs="+", metavar="TARGET", help="these targets alone")
    parser.add_argument("--families", action="store_true", help=f"one target a grader family: {', '.join(ONE_EACH)}")
    parser.add_argument("--quick", action="store_true", help="one hack of each class for each family")
    parser.add_argument("--add", action="store_true", help="to the run before; what that stopped is left out")
    beside = parser.add_mutually_exclusive_group()
    beside.add_argument("--no-harness", action="store_true", help="leave the benchmark's own harness out")
    beside.add_argument(
        "--harness-only", action="store_true", help="ask it about the patches of the run before, which left it out"
    )
    parser.add_argument("--no-delays", action="store_true", help="leave the innocents' waiting times out")
    parser.add_argument("--into", type=Path, default=RESULTS, help="the file of results")
    parser.add_argument("--attackers", type=int, default=8, help="at a time, beside innocents")
    return parser.parse_args()


def _play(
    chosen: Sequence[tuple[str, Hack, Target]],
    hacks: dict[str, Hack],
    known: dict[str, Target],
    results: Results,
    options: argparse.Namespace,
) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hacks-")))
        beside = None if options.no_harness else stack.enter_context(harness())
        server = stack.enter_context(local_server(write_rows(folder), SETTINGS))
        stack.callback(_keep_log, server.log)
        player = Player(server.url)
        stack.callback(player.close)
        for target in dict.fromkeys(target for _, _, target in chosen):
            print(player.check(target), file=sys.stderr, flush=True)
        played = [0]
        turn = threading.Lock()

        def one(name: str, hack: Hack, target: Target) -> None:
            outcome, sid = player.try_hack(name, hack, target)
            if hack.kind == "fake" and sid:
                keep(options.into, outcome, player.patch(sid))
            # not for other kinds: the harness has no limits, so they would harm the machine
            if beside is not None and hack.kind == "fake" and sid:
                outcome.harness = beside.resolves(target.name, player.patch(sid))
            with turn:
                played[0] += 1
                results.outcomes.append(outcome)
                results.write(options.into)
                print(f"{played[0]}/{len(chosen)} {outcome.line()}", file=sys.stderr, flush=True)

        with ThreadPoolExecutor(_PARALLEL) as pool:
            waiting = [pool.submit(one, *each) for each in chosen]
            try:
                for future in waiting:
                    future.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        if not options.no_delays:
            results.delays = []
            for name in dict.fromkeys(name for name, hack, _ in chosen if hack.kind == "delay"):
                delay = measure(player, name, hacks[name], known, options.attackers)
                results.delays.append(delay)
                results.write(options.into)
                print(delay.line(), file=sys.stderr, flush=True)


def _ask_harness(results: Results, into: Path) -> None:
    """Score the stored patches of a run without the harness; if stopped, the next call continues."""
    waiting = [
        one for one in results.outcomes if one.kind == "fake" and one.harness is None and kept(into, one).exists()
    ]
    with harness() as beside:
        for number, outcome in enumerate(waiting):
            outcome.harness = beside.resolves(outcome.target, kept(into, outcome).read_bytes().decode())
            results.write(into)
            print(f"{number + 1}/{len(waiting)} {outcome.line()}", file=sys.stderr, flush=True)


def _keep_log(log: Path) -> None:
    with suppress(OSError):
        shutil.copyfile(log, LAST_LOG)


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
