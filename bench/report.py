"""Writes docs/performance.md and its plots from a run; deterministic."""

import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from bench.budgets import Kept, kept
from bench.results import Figure, Run, Side

_PLOTS = Path(__file__).parent / "peers" / "draw_plots.py"
_PYTHON = Path(__file__).parent / ".peers" / "plots" / "bin" / "python"
_DRAW_S = 120
PLOTS = {
    "action.svg": "One action, `true`, in one session",
    "start.svg": "Start of a sandbox",
    "scale.svg": "1 to 200 live sessions on one host",
}

_INTRODUCTION = """# Performance

Written by `make bench` from one run on one machine; do not edit. Every peer ran within the same minutes on the same
machine and image, alternating with this server.
"""

_LEDGER = """## Where the CPU goes

Measured apart from the run above, on a loaded machine of two cores: CPU time, which that inflates less than wall time.
One E2B command, `true`, back to back: 3.8 ms of CPU without the client (server 1.06, Redis 0.07, container 2.66).

| piece of one E2B command | share |
| --- | --- |
| container: the command's bash begins (exec, page faults; its loader 18 %, CPUID instructions alone 10 %) | 32 % |
| container: the channel's bash, of which its fork takes 6 %, comparing the login profile's files 3 % | 21 % |
| container: the command's bash runs and exits | 16 % |
| server: HTTP, ASGI layers, frames of the answer | 12 % |
| server: the command's beginning, FIFOs, end report and timers | 10 % |
| server: the box (one exchange with Redis), its token, the message | 6 % |
| Redis | 2 % |

Within these no single step of our own takes over 6 %. Half is the start and end of a bash, and nearly all of it comes
one after the other: server, channel, bash, channel, server. What would save most, running the text in a fork of the
channel, would cost `$$`, `$0` and the command's own name in `ps`.

A poll of an otherwise idle box, 13 a second over 8 boxes, takes 6.7 ms: container 4.0 (its caches are cold), Redis 0.2,
server 2.5, of which 0.6 would be spent without polls and 0.2 by the watch for stalls of its event loop, which looks 27
times a second then.

A server with 20 idle sessions takes 0.8 % of a core: its loop wakes 33 times a second, each time for 0.16 ms, because
nothing is in a cache any more. 7 of those are the watch for stalls, 2 each the journal and the look at the embedded
Redis, the rest heartbeats, queues of gradings and CPU weights. The engine is asked for its containers every 5 s
(dockerd: 2 ms, and 0.12 ms a session, half of it for the 9 KB of its command line; the server: 0.05 ms a session), for
its images after a change (20 ms for 123), for itself every 30 s (3 ms) and for sizes every 60 s.
"""

_METHOD = """## How to read and repeat it

`make bench` (some 20 minutes; a subject that takes over 7 is broken off) installs the peers into their own environments
under `bench/.peers`, measures, and writes this document and `bench/results/latest.json`. `make bench-quick` takes under
three minutes: fewer repetitions, smaller shapes, no code search, boxes and neighbours; it does not write this document.
`make bench BENCH_ARGS='--only start_cold'` measures one subject. Use an idle machine: the run warns if others use more
than 15 % of its CPUs.

- A value is a median, followed by the 5th and 95th percentile; for a `p99` figure the spread is median and largest. `n`
  is the number of our measurements. A ratio is ours / peer: below 1 we are faster or smaller.
- Our side is timed in the client, over HTTP on loopback: aiohttp with keep-alive connections, veRL's own client
  library. `client_ms` is the cost of the same calls to a stub that answers at once; it is not subtracted.
- Where the peer is "the engine's stream", a second server of ours with SANDBOX_FIFO_DIR=off is measured in turns with
  the first. `action_cpu_ms` is the CPU time of server, Redis, container and engine, without the client's.
- `prepare_history_s` is the stage `prepare` of a start whose image no node has seen: what lies past HEAD is removed,
  and the tree is stored as the base of the session's patch.
- SWE-ReX, mini-swe-agent and the SWE-bench harness are timed inside their own process, `docker` as its command-line
  client.
- SWE-ReX's Docker deployment starts from the sample image with its server already in it (`sandbox-bench/swerex`);
  otherwise it would fetch it from the network at every start. Its time counts in the first command of a session.
- The SWE-bench harness runs with its own container options and teardown.
- A grading is timed from sending `/postprocess` to receiving the verdict; every graded patch is different, so no
  result is shared.
- The RL step: all rollouts start at once, ten actions each (list, log, grep, view, sed, create, run, apply the fix,
  edit, a test run of at least 2 s), half of them with the right fix, then all rewards. The model takes no time.
  It is a step in the middle of a training run: before it, untimed, one right fix of each instance is graded, which
  makes the instance's false tests. `grade_first_s` is the cost of such a first reward, of one instance alone.
- `start_group16_s` is sixteen simultaneous `/start_instance` calls as veRL sends them, unannounced; `_cold` the same
  without a pool (SANDBOX_POOL_SIZE=0), `_call` one `/v1/groups`.
- In a whole run each subject has its own server; in a quick one subjects share servers, and ours grades while the
  harness waits 15 s for its container to stop.
- Images: the small samples of `examples/`. Kept between runs: `bench/.peers`, `sandbox-bench/*` and `sandbox-
  prepared` images (`make clean` removes the first two).
"""


def write(run: Run, folder: Path) -> None:
    """Write docs/performance.md and docs/performance/*.svg below `folder`; plots that cannot be drawn are left out."""
    plots = folder / "docs" / "performance"
    drawn = draw(run, folder / "bench" / "results" / "details.json", plots)
    text = markdown(run, [name for name in PLOTS if drawn and (plots / name).exists()])
    (folder / "docs" / "performance.md").write_text(text)


def draw(run: Run, details: Path, plots: Path) -> bool:
    """Draw with matplotlib, in its own environment."""
    plots.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run([_PYTHON, _PLOTS, details, plots], capture_output=True, text=True, check=True, timeout=_DRAW_S)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        run.missing["plots"] = said.strip()[-300:]
        return False
    return True


def markdown(run: Run, plots: Sequence[str]) -> str:
    """The whole document."""
    parts = [
        _INTRODUCTION,
        _table(("machine", ""), run.machine.items()),
        f"Run: {run.mode}.\n",
        "## Budgets\n",
        "They are set for a machine that makes the 10,000,000 additions in 0.45 s.\n",
        budgets(run),
        "## Figures\n",
        figures(run),
        *([_missing(run)] if run.missing else []),
        *([scale(run)] if run.scale else []),
        *(f"![{PLOTS[name]}](performance/{name})\n" for name in plots),
        _conditions(run),
        _LEDGER,
        _METHOD,
    ]
    return "\n".join(parts)


def budgets(run: Run) -> str:
    """Each budget, the measured value, met or not."""
    words = {True: "met", False: "**not met**", None: "not measured"}

    def said(one: Kept) -> str:
        because = one.budget.why if one.met is False else ""
        return f"{words[one.met]}: {because}" if because else words[one.met]

    rows = [
        (
            one.budget.what,
            f"{'>=' if one.budget.at_least else '<='} {_number(one.budget.limit)}",
            "" if one.value is None else _number(one.value),
            said(one),
        )
        for one in kept(run)
    ]
    return _table(("what", "budget", "measured", ""), rows)


def figures(run: Run) -> str:
    """Every figure with its peer's."""
    rows = [
        (
            f"`{figure.name}`",
            _side(figure.ours),
            _side(figure.peer),
            figure.unit,
            "" if figure.ratio is None else _number(figure.ratio),
            str(figure.ours.n if figure.ours else 0) + (f" / {figure.peer.n}" if figure.peer else ""),
            _against(figure),
        )
        for figure in run.figures
    ]
    return _table(("figure", "ours", "peer", "unit", "ours / peer", "n", "peer is, notes"), rows)


def scale(run: Run) -> str:
    """The figures of the scale subject, one column per number of sessions."""
    names = dict.fromkeys(name for point in run.scale for name in point.values)
    rows = [
        (name, *("" if name not in point.values else _number(point.values[name]) for point in run.scale))
        for name in names
    ]
    head = ("live sessions", *(str(point.sessions) for point in run.scale))
    explained = (
        "`_pct`: percent of one core over 20 idle seconds (engine: dockerd, containerd and the shims; its memory counts"
        " shared pages once for each process). `container_mb`: mean memory of a session's cgroup. `parked`: containers"
        " in the pool besides the sessions'.\n"
    )
    return "\n".join(("## From 1 to 200 sessions\n", _table(head, rows), explained))


def _missing(run: Run) -> str:
    rows = [(what, why) for what, why in run.missing.items()]
    return "\n".join(("Without figures in this run:\n", _table(("what", "why"), rows)))


def _conditions(run: Run) -> str:
    rows = [
        (name, f"{seen.load:.2f}", f"{seen.busy_pct:.0f} %", f"{seen.took_s:.0f} s")
        for name, seen in run.conditions.items()
    ]
    whole_s = sum(seen.took_s for seen in run.conditions.values())
    note = f"The load average includes what this run itself did before. All subjects took {whole_s / 60:.0f} minutes.\n"
    head = ("subject", "load average at its start", "CPUs in use by others", "took")
    return "\n".join(("## Conditions\n", _table(head, rows), note))


def _against(figure: Figure) -> str:
    return "; ".join(text for text in (figure.peer_name or "", figure.note) if text)


def _side(side: Side | None) -> str:
    if side is None:
        return "-"
    if side.low is None or side.high is None or side.n == 1:
        return _number(side.value)
    return f"{_number(side.value)} ({_number(side.low)} to {_number(side.high)})"


def _number(value: float) -> str:
    """Three significant digits, no exponent."""
    if value == 0 or abs(value) >= 100:
        return f"{value:.0f}"
    return f"{float(f'{value:.3g}'):.10f}".rstrip("0").rstrip(".")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"
