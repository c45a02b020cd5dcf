"""`python -m chaos.document`: docs/reliability.md from chaos/results/; the same results always give the same bytes."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from chaos import soak_report
from chaos.__main__ import every_fault
from chaos.results import RESULTS, Outcome, read, table
from chaos.soak import RESULTS as SOAK_RESULTS
from chaos.soak_report import Gauge, Soak, markdown

_TARGET = Path(__file__).resolve().parent.parent / "docs" / "reliability.md"
_INTRODUCTION = """# Reliability

Written by `python -m chaos.document` from the last results of `make chaos` and `make soak`; do not edit.

What an acknowledgement is worth is in [architecture.md](architecture.md), "What survives what". This is what was seen
when parts of a fleet died for real: two nodes, each a server process with a Docker engine (the second one's engine and
server in a network namespace of their own), one Redis with an append-only file, one SQL database, HAProxy before them.
"""
_READING = """## How to read it

A scripted trainer keeps rollouts of the samples going through the balancer, with the client of `client/` and its
retries. Each is a start, seven actions that append a numbered line to a file of the repository (one of them takes a
second), the gold fix, a wrong one or none, a look at the file, the end and the reward. The shell's directory and
environment are part of every check. While they run, one fault is staged; it counts only when its effect was seen (the
process gone, the connection refused, the disk without a byte).

- **finished**: the verdict of its own work. **restored**: an observation said that the sandbox was restored.
  **honestly failed**: a terminal observation, a refused call or a masked verdict, and no reward.
- **lost actions**: acknowledged, and not in the session's journal, or there twice or with another observation, or its
  line missing from the patch or twice in it, or the shell's state gone without a word. Must be 0. One exception, as
  documented: when Redis is emptied, the journal's entries of the last moment are gone, while their effect is not.
- **wrong rewards**: an unmasked verdict that is not that of what the rollout did. Must be 0.
- **leaked**: containers that neither a session nor the pool owns, one pass of the reaper after the last rollout's end.
  Sessions whose client was never told their sid are closed first; SANDBOX_SESSION_IDLE_S would end them. Must be 0.
- **longest stall**: the longest wait of one rollout for one call, the client's retries included.
"""
_REPEATING = """## How to repeat it

As root on Debian, or with Docker, HAProxy, libfaketime, iproute2 and iptables installed:

```sh
make chaos                                           # every fault, about half an hour on two cores
make chaos CHAOS_ARGS='--only node_lost --parallel 100'
make chaos CHAOS_ARGS="--quick"                      # the short form, which is among the tests
make chaos CHAOS_ARGS="--add"                        # goes on where a run was stopped, or again with what failed
make soak MINUTES=10
.venv/bin/python -m chaos.document                   # this document, from the last run of each
```

It harms only what it started: an engine with its own data, sockets and cgroup in a network namespace; a Redis and a
PostgreSQL of its own; two file systems in memory; rules of iptables within that namespace; libfaketime on one server
process. The engine of the machine gets containers, which are removed. At its end, also after Ctrl-C, it looks for
processes, mounts, namespaces, interfaces and containers of its own that are left, and fails if there are any. The logs
of the last run are in `chaos-last-logs` of the temporary folder. A new fault is a `Fault` in a file of `chaos/faults/`.
"""


def main() -> None:
    """Write it; what has not been run is left out."""
    parts = [_INTRODUCTION]
    if outcomes := read(RESULTS):
        parts += ["## Each fault\n", table(outcomes) + "\n", _seen(outcomes)]
    parts += ["## What a rollout sees\n", _faults(), _READING]
    if SOAK_RESULTS.exists():
        parts += ["## Soak\n", markdown(_soak(json.loads(SOAK_RESULTS.read_text()))), _bounds()]
    _TARGET.write_text("\n".join([*parts, _REPEATING]))


def _faults() -> str:
    rows = [f"| {fault.name} | {fault.what} | {fault.sees} |" for fault in every_fault().values()]
    return "\n".join(("| fault | done | a rollout sees |", "|---|---|---|", *rows)) + "\n"


def _seen(outcomes: list[Outcome]) -> str:
    rows = [f"| {one.fault} | {one.seen or one.error} | {one.interrupted} | {one.silence_s:.1f} |" for one in outcomes]
    head = "| fault | its effect | actions told as interrupted | longest silence of all s |"
    return "\n".join((head, "|---|---|---|---|", *rows)) + "\n"


def _soak(entry: dict[str, Any]) -> Soak:
    known = {one.name for one in fields(Soak)}
    facts = {name: value for name, value in entry.items() if name in known}
    return Soak(**{**facts, "gauges": {name: Gauge(**gauge) for name, gauge in facts["gauges"].items()}})


def _bounds() -> str:
    """The reasons, from where the bounds are."""
    return (soak_report.__doc__ or "").partition("\n\n")[2]


if __name__ == "__main__":
    main()
