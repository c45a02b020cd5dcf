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

[What survives what](architecture.md#what-survives-what) says what an acknowledgement guarantees. This page shows what
was observed when parts of a fleet really failed. The fleet has two nodes, each a server process with a Docker engine
(one node's server and engine run in a network namespace of their own), one Redis with an append-only file, one SQL
database, and HAProxy in front of them.
"""
_READING = """## How to read it

A scripted trainer keeps rollouts of the samples running through the balancer, with the client of `client/` and its
retries. Each rollout starts a session, appends a numbered line to a file of the repository in each of seven actions
(one of them takes a second), applies the gold fix, a wrong one or none, reads the file, ends the session and asks for
the reward. Each of the seven actions also checks the shell's directory and environment. Meanwhile one fault is
injected. It counts only if its effect was observed (the process gone, the connection refused, the disk without a free
byte).

- **finished**: rollouts that got the verdict of their own work.
- **restored**: rollouts in which an observation said that the sandbox was restored.
- **honestly failed**: rollouts that got a terminal observation, a refused call or a masked verdict, and no reward.
- **lost actions**: acknowledged actions that the session's journal lacks, has twice, or has with another observation;
  or whose line the patch lacks or has twice; or after which the shell's state was gone without notice. Must be 0. One
  documented exception: when Redis is emptied, the journal may lack the actions of the last moment, but their effect is
  there.
- **wrong rewards**: unmasked verdicts that do not match the rollout's work. Must be 0.
- **leaked**: containers that neither a session nor the pool owns, one pass of the reaper after the last rollout's end.
  Sessions whose sid no client got are ended before; otherwise they would live for SANDBOX_SESSION_IDLE_S. Must be 0.
- **longest stall**: the longest wait of one rollout for one call in seconds, including the client's retries.
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

`make chaos` harms only what it started: an engine with its own data, sockets and cgroup in a network namespace; its own
Redis and PostgreSQL; two file systems in memory; iptables rules within that namespace; libfaketime on one server
process. It also makes containers on the machine's engine, and removes them. At its end, also after Ctrl-C, it looks for
processes, mounts, namespaces, interfaces, containers and folders that it left behind, and fails if there are any. The
logs of the last run are in `chaos-last-logs` in the temporary folder. To add a fault, add a `Fault` to a file in
`chaos/faults/`.
"""


def main() -> None:
    """Write the page; parts without results are left out."""
    parts = [_INTRODUCTION, _READING]
    if outcomes := read(RESULTS):
        parts += ["## Each fault\n", table(outcomes) + "\n", _seen(outcomes)]
    parts += ["## What a rollout sees\n", _faults()]
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
