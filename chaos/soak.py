"""`python -m chaos.soak --minutes N`: steady rollouts on two nodes; checks that their resource use does not grow."""

import argparse
import asyncio
import json
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path

from bench.machine import open_files, rss_mb
from chaos.__main__ import PROGRAMS, interrupted
from chaos.checks import leaks, lost_actions, unexpected_end, wrong_rewards
from chaos.fleet import Fleet, fleet, require
from chaos.processes import ChaosFailed
from chaos.soak_report import Gauge, Soak, markdown
from chaos.trainer import Trainer

RESULTS = Path(__file__).resolve().parent / "results" / "soak.json"
_SAMPLES = 120
"""Samples per soak of any length: 30 in a quarter."""
_LEAST_PERIOD_S = 1.0
_KEPT = 1 / 8
"""Share of the soak for which Redis keeps an ended session: from the second quarter on, its keys are constant."""


def main() -> None:
    """Run for the given time, print the figures; fail if something grew or was lost."""
    parser = argparse.ArgumentParser(prog="python -m chaos.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--parallel", type=int, default=6, help="rollouts at a time")
    parser.add_argument("--nodes", type=int, choices=(1, 2), default=2)
    options = parser.parse_args()
    require(*PROGRAMS)
    signal.signal(signal.SIGTERM, interrupted)
    soak = Soak(options.minutes, options.parallel, options.nodes)
    settings = {"SANDBOX_RESULT_TTL_S": str(options.minutes * 60 * _KEPT)}
    try:
        with fleet(options.nodes, settings) as made:
            asyncio.run(_run(made, soak))
    except KeyboardInterrupt:
        sys.exit("stopped; everything was removed")
    except ChaosFailed as error:
        sys.exit(str(error))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({**asdict(soak), "ok": soak.ok}, indent=1, ensure_ascii=False) + "\n")
    print(markdown(soak))
    if not soak.ok:
        sys.exit(f"something grew or was lost; see {RESULTS}")


async def _run(made: Fleet, soak: Soak) -> None:
    trainer = Trainer(made, soak.parallel)
    period_s = max(_LEAST_PERIOD_S, soak.minutes * 60 / _SAMPLES)
    began = time.monotonic()
    async with trainer.rolling():
        while (passed := time.monotonic() - began) < soak.minutes * 60:
            await asyncio.to_thread(_look, made, soak)
            soak.finished.append(sum(one.finished for one in trainer.rollouts))
            rest = period_s - (time.monotonic() - began - passed)
            await asyncio.sleep(max(0.0, rest))
            print(f"\r{passed:.0f} s: {trainer.summary()}   ", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    unexpected_end(made)
    soak.rollouts = len(trainer.rollouts)
    soak.actions = sum(len(one.acked) for one in trainer.rollouts)
    soak.failed = [one.gave_up or f"{one.verdict}: {one.cause}" for one in trainer.rollouts if not one.finished]
    soak.longest_stall_s = max((one.longest_s for one in trainer.rollouts), default=0.0)
    soak.wrong = wrong_rewards(trainer.rollouts)
    # entries that have expired in Redis are read from SQL
    soak.lost = await lost_actions(made, trainer.rollouts, (0.0, 0.0))
    soak.leaked = await leaks(made)


def _look(made: Fleet, soak: Soak) -> None:
    """Take one sample of everything."""
    for node in made.nodes:
        name = f"server {node.name[-1]}"
        soak.gauge(f"{name}: memory, MB", Gauge(1.10, 8)).values.append(rss_mb(node.server.pid))
        soak.gauge(f"{name}: descriptors", Gauge(1.0, 8)).values.append(open_files(node.server.pid))
        soak.gauge(f"node {node.name[-1]}: containers", Gauge(1.0, 4)).values.append(len(node.containers()))
    with made.redis.client() as redis:
        soak.gauge("Redis: keys", Gauge(1.10, 20)).values.append(redis.dbsize())
        soak.gauge("Redis: memory, MB", Gauge(1.10, 1)).values.append(redis.info("memory")["used_memory"] / 2**20)
    soak.sql_bytes.append(made.sql.size())


if __name__ == "__main__":
    main()
