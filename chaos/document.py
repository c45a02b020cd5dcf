"""`python -m chaos.document`: writes docs/reliability.md from chaos/results/; deterministic."""

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

[architecture.md](architecture.md), "What survives what", says what an acknowledgement guarantees. This page shows what
was observed when parts of a fleet really failed: two nodes, each a server process with a Docker engine (the second
one's engine and server in their own network namespace), one Redis with an append-only file, one SQL database, and
HAProxy in front of them.
"""
_READING = """## How to read it

A scripted trainer keeps rollouts of the samples running through the balancer, with the client of `client/` and its
retries. Each rollout is a start, seven actions that append a numbered line to a file of the repository (one of them
takes a second), the gold fix, a wrong one or none, a look at the file, the end and the reward. The shell's directory
and environment are part of every check. Meanwhile one fault is injected; it counts only if its effect was observed (the
process gone, the connection refused, the disk without a free byte).

- **finished**: got the verdict of its own work. **restored**: an observation said that the sandbox was restored.
  **honestly failed**: got a terminal observation, a refused call or a masked verdict, and no reward.
- **lost actions**: acknowledged, but missing from the session's journal, twice in it, or there with another
  observation; or their line is missing from the patch or twice in it; or the shell's state is gone without notice. Must
  be 0. One documented exception: when Redis is emptied, the journal's entries of the last moment are gone, but not
  their effect.
- **wrong rewards**: an unmasked verdict that does not match the rollout's work. Must be 0.
- **leaked**: containers that neither a session nor the pool owns, one pass of the reaper after the last rollout's end.
  Sessions whose client never got their sid are closed first; SANDBOX_SESSION_IDLE_S would end them. Must be 0.
- **longest stall**: the longest wait of one rollout for one call, including the client's retries.
"""
_REPEATING = """## How to repeat it

As root on Debian, or with Docker, HAProxy, libfaketime, iproute2 and iptables installed:

```sh
make chaos                                           # every fault, about half an hour on two cores
make chaos CHAOS_ARGS='--only node_lost --parallel 100'
make chaos CHAOS_ARGS="--quick"                      # the short form, part of the tests
make chaos CHAOS_ARGS="--add"                        # continues a stopped run, or repeats what failed
make soak MINUTES=10
.venv/bin/python -m chaos.document                   # this page, from the last run of each
```

It harms only what it started: an engine with its own data, sockets and cgroup in a network namespace; its own Redis and
PostgreSQL; two file systems in memory; iptables rules within that namespace; libfaketime on one server process. The
machine's engine gets containers, which are removed. At its end, also after Ctrl-C, it looks for processes, mounts,
namespaces, interfaces and containers that it left, and fails if there are any. The logs of the last run are in
`chaos-last-logs` of the temporary folder. A new fault is a `Fault` in a file of `chaos/faults/`.
"""


def main() -> None:
    """Write the page; parts without results are left out."""
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
    head = "| fault | its effect | actions reported as interrupted | longest time without any answer s |"
    return "\n".join((head, "|---|---|---|---|", *rows)) + "\n"


def _soak(entry: dict[str, Any]) -> Soak:
    known = {one.name for one in fields(Soak)}
    facts = {name: value for name, value in entry.items() if name in known}
    return Soak(**{**facts, "gauges": {name: Gauge(**gauge) for name, gauge in facts["gauges"].items()}})


def _bounds() -> str:
    """The bounds and their reasons, from the module that defines them."""
    return (soak_report.__doc__ or "").partition("\n\n")[2]


if __name__ == "__main__":
    main()
