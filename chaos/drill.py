"""One fault from end to end: rollouts running, the fault, rollouts after it, and the checks."""

import asyncio
import sys
import time

from chaos.checks import leaks, lost_actions, unexpected_end, wrong_rewards
from chaos.fault import Fault, FaultContext
from chaos.fleet import Fleet
from chaos.processes import ChaosFailed
from chaos.results import RESULTS, Outcome, write_rollouts
from chaos.rollout import Rollout
from chaos.trainer import Trainer

_FLOW_S = 120.0
_FLOW_EACH_S = 6.0
"""Extra seconds per concurrent rollout: until all run, and until some that began after the fault have ended."""
_AFTER = 8
"""Rollouts that must end after the fault; fewer if fewer run at a time."""
_READY_S = 90.0
_MESSAGES = 5


async def drill(fleet: Fleet, fault: Fault, parallel: int) -> Outcome:
    """Inject `fault` once; failures of the fleet or the fault are in the outcome, never raised."""
    outcome = Outcome(fault.name, fault.what)
    began = time.monotonic()
    trainer = Trainer(fleet, parallel)
    context = FaultContext(fleet, trainer)
    harmed = began
    flow_s = _FLOW_S + _FLOW_EACH_S * parallel
    try:
        async with trainer.rolling():
            await trainer.until(lambda: _flows(trainer.rollouts), flow_s, "rollouts running")
            harmed = time.monotonic()
            outcome.seen = await fault.harm(context)
            mended = time.monotonic()
            await context.until(fleet.ready, _READY_S, "every node is ready after the fault")
            enough = min(parallel, _AFTER)
            await trainer.until(
                lambda: len(_since(trainer.rollouts, mended)) >= enough, flow_s, "rollouts go on after it"
            )
        unexpected_end(fleet)
        _count(outcome, trainer, harmed, mended)
        gap = (harmed - fault.journal_gap_s, mended) if fault.journal_gap_s else (0.0, 0.0)
        outcome.lost = await lost_actions(fleet, trainer.rollouts, gap)
        outcome.wrong = wrong_rewards(trainer.rollouts)
        outcome.leaked = await leaks(fleet)
    except Exception as error:  # noqa: BLE001 - whatever it is, the report says it, and the next fault has its turn
        outcome.error = f"{'' if isinstance(error, ChaosFailed) else type(error).__name__ + ': '}{error}"
        _count(outcome, trainer, harmed, time.monotonic())
        await _mend(fleet)
    outcome.seconds = time.monotonic() - began
    if not outcome.ok:
        write_rollouts(trainer.rollouts, RESULTS.with_name(f"{fault.name}.json"))
    _show(outcome)
    return outcome


def _flows(rollouts: list[Rollout]) -> bool:
    """Some are in the middle of their work, and one has run to its end."""
    return any(one.finished for one in rollouts) and any(one.phase == "act" for one in rollouts)


def _since(rollouts: list[Rollout], moment: float) -> list[Rollout]:
    return [one for one in rollouts if one.began > moment and one.finished]


def _count(outcome: Outcome, trainer: Trainer, harmed: float, mended: float) -> None:
    rollouts = trainer.rollouts
    outcome.started = len(rollouts)
    outcome.finished = sum(one.finished for one in rollouts)
    outcome.restored = sum(one.restored for one in rollouts)
    outcome.honestly_failed = sum(one.failed_honestly for one in rollouts)
    outcome.interrupted = sum(one.interrupted for one in rollouts)
    outcome.longest_stall_s = max((one.longest_s for one in rollouts), default=0.0)
    outcome.silence_s = trainer.longest_silence_s(harmed)
    outcome.after = len(_since(rollouts, mended))
    lines = [one.gave_up or f"{one.verdict}: {one.cause}" for one in rollouts if one.failed_honestly]
    outcome.failures = list(dict.fromkeys(lines))[:_MESSAGES]


async def _mend(fleet: Fleet) -> None:
    """Restart what a fault that failed half-way has left down; if that fails, the next fault reports it."""

    def mend() -> None:
        if not fleet.redis.process.runs:
            fleet.redis.start()
        if not (fleet.engine.dockerd.runs and fleet.engine.containerd.runs):
            fleet.engine.start()
        for node in fleet.nodes:
            if not node.server.runs:
                node.start()

    try:
        await asyncio.to_thread(mend)
    except ChaosFailed as error:
        print(f"could not be repaired: {error}", file=sys.stderr)


def _show(outcome: Outcome) -> None:
    """Print progress on stderr."""
    state = "ok" if outcome.ok else "FAILED"
    lines = [f"  {state}: {outcome.seen or 'no effect seen'} ({outcome.seconds:.0f} s)"]
    for kind in ("error", "lost", "wrong", "leaked", "failures"):
        found = getattr(outcome, kind)
        lines += [
            f"  {kind}: {text}" for text in ([found] if isinstance(found, str) and found else list(found)[:_MESSAGES])
        ]
    print("\n".join(lines), file=sys.stderr, flush=True)
