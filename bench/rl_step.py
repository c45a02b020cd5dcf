"""A whole RL step: all rollouts at once, ten actions each, then all rewards; ours against docker exec and the harness.

The step is one in the middle of a training run: a solved rollout of each instance has been graded before, untimed, so
that its certificate exists. What that first reward costs is `grade_first_s`, in `gradings`.

The model takes no time, so the wall time is the sandboxes' cost, and every second inside a call is one that a trainer
would have waited.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from bench import containers
from bench.containers import RUN
from bench.peer import Peer, PeerFailed
from bench.results import Figure, Side
from bench.rollouts import Rollout, rollouts
from bench.samples import samples
from bench.subject import Bench, Served, prepare, served
from bench.trainer import Clock

_TRIED = (8, 16)
"""Numbers of concurrent rollouts tried with docker exec; a quick run uses the first without trying."""
_WORKERS = 32
"""Concurrent gradings by the harness, most of whose time is its 15 s teardown; its own advice for this size is 2."""
_PEER = "docker exec + swebench run_instance"
_STEP_S = 300.0
_OTHERS = 1000
"""Added to the numbers of a step's rollouts, so that no two patches are alike; even, as even rollouts solve theirs."""


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
    instances, each = bench.of(4, 2), bench.of(4, 2)
    todo = rollouts(known, instances, each)
    rows = [known[number % len(known)].numbered(number) for number in range(instances)]
    await prepare(bench)
    theirs: list[Step] = []
    async with served(bench, rows) as server:
        before = await _step(server, _numbered(todo[::each], 1))  # even ones, which solve their instance
        ours = [await _step(server, todo)]
        try:
            concurrency, note = await _best(bench, todo)
            theirs.append(await _theirs(todo, concurrency))
            note = f"{note}; {_WORKERS} gradings at a time"
        except (PeerFailed, containers.DockerFailed) as error:
            bench.miss("rl_step: docker exec + swebench", error)
            note = "the peer failed"
        if not bench.quick:
            ours.append(await _step(server, _numbered(todo, 2)))
    _add(bench, before, ours, theirs, f"{instances} instances x {each} samples, no two patches alike; {note}")


def _numbered(todo: Sequence[Rollout], step: int) -> list[Rollout]:
    return [replace(rollout, number=rollout.number + step * _OTHERS) for rollout in todo]


def _add(bench: Bench, before: Step, ours: Sequence[Step], theirs: Sequence[Step], note: str) -> None:
    both = (ours, theirs)

    def figure(name: str, unit: str, of: Callable[[Step], Iterable[float]], said: str = "") -> Figure:
        values = [[value for step in steps for value in of(step)] for steps in both]
        sides = [Side.median(of) if of else None for of in values]
        return Figure(name, unit, sides[0], sides[1], _PEER, said)

    bench.add(
        figure("rl_step_s", "s", lambda step: [step.wall_s], note),
        figure("rl_step_rollouts_s", "s", lambda step: [step.rollouts_s]),
        figure("rl_step_wait_sum_s", "s", lambda step: [sum(step.waits.values())]),
        figure("rl_step_wait_rollout_s", "s", lambda step: step.waits.values()),
    )
    for kind in ("start", "action", "test", "postprocess", "reward"):
        bench.add(figure(f"rl_step_{kind}_s", "s", partial(_calls, kind=kind), "of one call"))
    judged = ([before, *ours], theirs)
    wrong = [Side(sum(step.wrong for step in steps), sum(len(step.waits) for step in steps)) for steps in judged]
    bench.add(Figure("rl_step_wrong_verdicts", "", wrong[0], wrong[1] if theirs else None, _PEER))


def _calls(step: Step, kind: str) -> list[float]:
    return step.calls[kind]


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
        return _TRIED[0], f"{_TRIED[0]} docker rollouts at a time, not searched"
    took = {}
    for concurrency in _TRIED:
        with Clock() as clock:
            await _rolled(Step(), todo, concurrency)
        took[concurrency] = clock.s
    best = min(took, key=lambda one: took[one])
    shown = ", ".join(f"{concurrency}: {s:.1f} s" for concurrency, s in took.items())
    return best, f"{best} docker rollouts at a time ({len(todo)} rollouts took, by how many at a time, {shown})"


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
