"""A whole RL step: all rollouts at once, ten actions each, then all rewards; ours against docker exec and the harness.

Our first step on a server also makes the certificate of each instance, which its rewards wait for. The second step on
the same server, over the same instances with other patches, is what every later step of a trainer costs.

The model takes no time, so the wall time is the sandboxes' cost, and every second inside a call is one that a trainer
would have waited.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bench import containers
from bench.containers import RUN
from bench.peer import Peer, PeerFailed
from bench.results import Figure, Side
from bench.rollouts import Rollout, rollouts
from bench.samples import samples
from bench.subject import Bench, Served, prepare, served
from bench.trainer import Clock

_TRIED = (4, 8, 16)
"""Numbers of concurrent rollouts tried with docker exec; a quick run uses the second without trying."""
_WORKERS = 32
"""Concurrent gradings by the harness, most of whose time is its 15 s teardown; its own advice for this size is 2."""
_PEER = "docker exec + swebench run_instance"
_STEP_S = 900.0
_AGAIN = 1000
"""Added to the numbers of the second step's rollouts, so that their patches differ from the first step's; even, since
even rollouts solve their instance."""


@dataclass(slots=True)
class Step:
    """One step's times: seconds in each call, by kind of call and by rollout."""

    wall_s: float = 0.0
    rollouts_s: float = 0.0
    """Seconds until the last rollout had ended and only rewards were left."""
    calls: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    waits: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    wrong: int = 0
    """Verdicts that do not match the rollout's patch."""

    def add(self, kind: str, rollout: Rollout, took_s: float) -> None:
        self.calls[kind].append(took_s)
        self.waits[rollout.number] += took_s


async def measure(bench: Bench) -> None:
    """Ours, the peer's, ours again (a quick run: once each, fewer rollouts)."""
    known = samples()[::-1]  # the last one is used elsewhere too; a quick run's two instances are of the others
    instances, each = bench.of(16, 2), bench.of(4, 2)
    todo = rollouts(known, instances, each)
    rows = [known[number % len(known)].numbered(number) for number in range(instances)]
    await prepare(bench)
    ours, again = [], []
    first, second = await _ours(bench, rows, todo)
    ours.append(first)
    again.append(second)
    theirs: list[Step] = []
    try:
        concurrency, note = await _best(bench, todo)
        theirs.append(await _theirs(todo, concurrency))
        note = f"{note}; {_WORKERS} gradings at a time"
    except (PeerFailed, containers.DockerFailed) as error:
        bench.miss("rl_step: docker exec + swebench", error)
        note = "the peer failed"
    if not bench.quick:
        first, second = await _ours(bench, rows, todo)
        ours.append(first)
        again.append(second)
    _add(bench, ours, again, theirs, f"{instances} instances x {each} samples, no two patches alike; {note}")


def _add(bench: Bench, ours: Sequence[Step], again: Sequence[Step], theirs: Sequence[Step], note: str) -> None:
    def figure(name: str, unit: str, values: Sequence[Sequence[float]], said: str = "") -> Figure:
        sides = [Side.median(of) if of else None for of in values]
        return Figure(name, unit, sides[0], sides[1], _PEER, said)

    both = (ours, theirs)
    later = (again, theirs)
    bench.add(
        figure("rl_step_s", "s", [[step.wall_s for step in steps] for steps in both], note),
        figure("rl_step_rollouts_s", "s", [[step.rollouts_s for step in steps] for steps in both]),
        figure("rl_step_wait_sum_s", "s", [[sum(step.waits.values()) for step in steps] for steps in both]),
        figure("rl_step_wait_rollout_s", "s", [[s for step in steps for s in step.waits.values()] for steps in both]),
        figure(
            "rl_step_again",
            "s",
            [[step.wall_s for step in steps] for steps in later],
            "a second step on the same server: its instances have their certificates",
        ),
        figure("rl_step_again_rollouts_s", "s", [[step.rollouts_s for step in steps] for steps in later]),
        figure("rl_step_again_reward_s", "s", [[s for step in steps for s in step.calls["reward"]] for steps in later]),
    )
    for kind in ("start", "action", "test", "postprocess", "reward"):
        values = [[s for step in steps for s in step.calls[kind]] for steps in both]
        bench.add(figure(f"rl_step_{kind}_s", "s", values, "of one call"))
    both = ([*ours, *again], theirs)
    wrong = [Side(sum(step.wrong for step in steps), sum(len(step.waits) for step in steps)) for steps in both]
    bench.add(Figure("rl_step_wrong_verdicts", "", wrong[0], wrong[1] if theirs else None, _PEER))


async def _ours(bench: Bench, rows: list[dict[str, Any]], todo: Sequence[Rollout]) -> tuple[Step, Step]:
    """(the first step on a new server, the second one)."""
    async with served(bench, rows) as server:
        first = await _step(server, todo)
        return first, await _step(server, [replace(rollout, number=rollout.number + _AGAIN) for rollout in todo])


async def _step(server: Served, todo: Sequence[Rollout]) -> Step:
    step = Step()
    async with asyncio.timeout(_STEP_S):
        with Clock() as wall:
            with Clock() as rolling:
                sids = await asyncio.gather(*(_roll(server, step, rollout) for rollout in todo))
            await asyncio.gather(*(_reward(server, step, *pair) for pair in zip(todo, sids, strict=True)))
    step.wall_s, step.rollouts_s = wall.s, rolling.s
    return step


async def _roll(server: Served, step: Step, rollout: Rollout) -> str:
    with Clock() as clock:
        sid = await server.client.start(rollout.instance_id)
    step.add("start", rollout, clock.s)
    *actions, test = rollout.steps()
    for kind, one in [*(("action", action) for action in actions), ("test", test)]:
        with Clock() as clock:
            await server.client.act(sid, one.content)
        step.add(kind, rollout, clock.s)
    with Clock() as clock:
        await server.client.postprocess(sid)
    step.add("postprocess", rollout, clock.s)
    return sid


async def _reward(server: Served, step: Step, rollout: Rollout, sid: str) -> None:
    with Clock() as clock:
        reply = await server.client.reward(sid)
    step.add("reward", rollout, clock.s)
    step.wrong += reply["verdict"] != ("resolved" if rollout.solves else "unresolved")


async def _best(bench: Bench, todo: Sequence[Rollout]) -> tuple[int, str]:
    """(fastest number of concurrent rollouts through docker exec, how it was found)."""
    if bench.quick:
        return _TRIED[1], f"{_TRIED[1]} docker rollouts at a time, not searched"
    took = {}
    for concurrency in _TRIED:
        with Clock() as clock:
            await _rolled(Step(), todo[:16], concurrency)
        took[concurrency] = clock.s
    best = min(took, key=lambda one: took[one])
    shown = ", ".join(f"{concurrency}: {s:.1f} s" for concurrency, s in took.items())
    return best, f"{best} docker rollouts at a time (16 rollouts took, by how many at a time, {shown})"


async def _theirs(todo: Sequence[Rollout], concurrency: int) -> Step:
    step = Step()
    harness = Peer("swebench")
    try:
        with Clock() as wall:
            with Clock() as rolling:
                patches = await _rolled(step, todo, concurrency)
            jobs = [
                {"row": rollout.sample.harness_row(rollout.number), "patch": patch}
                for rollout, patch in zip(todo, patches, strict=True)
            ]
            done = await harness.ask("grade_all", jobs=jobs, run_id=RUN, workers=_WORKERS, timeout_s=_STEP_S)
    finally:
        await harness.close()
    step.wall_s, step.rollouts_s = wall.s, rolling.s
    for rollout, graded in zip(todo, done["graded"], strict=True):
        step.add("reward", rollout, graded["at_s"])
        step.wrong += graded["resolved"] != rollout.solves
    return step


async def _rolled(step: Step, todo: Sequence[Rollout], concurrency: int) -> list[str]:
    """Run the same rollouts through docker exec; return their patches. A start includes its wait for a free place."""
    turns = asyncio.Semaphore(concurrency)

    async def one(rollout: Rollout) -> str:
        with Clock() as queued:
            await turns.acquire()
        try:
            with Clock() as clock:
                container = await containers.run(rollout.sample.image)
            step.add("start", rollout, queued.s + clock.s)
            *actions, test = rollout.steps()
            for kind, action in [*(("action", action) for action in actions), ("test", test)]:
                with Clock() as clock:
                    await containers.execute(container, action.command)
                step.add(kind, rollout, clock.s)
            with Clock() as clock:
                patch = await containers.execute(container, "git add -A && git diff --cached --binary HEAD")
                await containers.remove(container)
            step.add("postprocess", rollout, clock.s)
        finally:
            turns.release()
        return patch + "\n"

    return list(await asyncio.gather(*(one(rollout) for rollout in todo)))
