"""Best-of-tree on a sample: at each step fork the best sandbox, try an edit in each copy, keep the best copy.

    python examples/tree_search.py http://localhost:5000   # a server that has the samples, with 13 free slots

The "model" picks one of ten edits by chance, six of which are needed and four of which do harm. What it can see of its
success are six checks that follow from the problem statement. A rollout alone has no way back from a bad pick; the tree
drops it. Both get as many edits in all; the service grades what comes out.
"""

import argparse
import asyncio
import random

from sandbox_client.client import SandboxClient, Session

INSTANCE = "samples__intervals-3"
FILE = "/testbed/intervals/merge.py"
EDITS = (
    r"s/sorted(intervals):/sorted((a, b) for a, b in intervals if a < b):/",
    r"s/start < merged\[-1\]\[1\]/start <= merged[-1][1]/",
    r"s/(merged\[-1\]\[0\], end)/(merged[-1][0], max(end, merged[-1][1]))/",
    r"s/if left > start:/if start < min(left, end):/",
    r"s/append((start, left))/append((start, min(left, end)))/",
    r"s/        start = right/        start = max(start, right)/",
    # these do harm
    r"s/return merged/return merged[::-1]/",
    r"s/if start < end:/if start <= end:/",
    r"s/free = \[\]/free = [(start, start)]/",
    r"s/merged\[-1\] = /merged[0] = /",
)
CHECKS = """
from intervals.merge import gaps, merge
checks = (
    lambda: merge([(1, 10), (2, 3)]) == [(1, 10)],
    lambda: merge([(1, 2), (2, 3)]) == [(1, 3)],
    lambda: merge([(1, 2), (4, 4), (5, 6), (6, 9)])[0] == (1, 2) and (4, 4) not in merge([(1, 2), (4, 4)]),
    lambda: gaps([(12, 20)], 0, 10) == [(0, 10)],
    lambda: gaps([(0, 20), (25, 30)], 0, 10) == [],
    lambda: gaps([(1, 3)], 5, 10) == [(5, 10)],
    lambda: merge([(5, 6), (1, 2)]) == [(1, 2), (5, 6)] and gaps([(1, 2)], 0, 2) == [(0, 1)],
    lambda: merge([(1, 2), (4, 5), (4, 7)]) == [(1, 2), (4, 7)],
)
def holds(check):
    try:
        return check()
    except Exception:
        return False
print(sum(map(holds, checks)))
"""
GOAL = 8  # checks


async def attempt(session: Session, chance: random.Random) -> int:
    """One edit by chance; returns how many checks hold then."""
    await session.run(["sed", "-i", chance.choice(EDITS), FILE])
    seen = await session.run(["python3", "-c", CHECKS], cwd="/testbed")
    return int(seen.stdout.strip() or 0)


async def alone(client: SandboxClient, n: int, edits: int, chance: random.Random) -> list[float]:
    """The rewards of n rollouts of that many edits each."""

    async def rollout(sid: str) -> float:
        session = Session(client, sid)
        for _ in range(edits):
            if await attempt(session, chance) == GOAL:
                break
        return (await session.reward()).reward

    return await asyncio.gather(*(rollout(sid) for sid in await client.start_group(INSTANCE, n)))


async def tree(client: SandboxClient, n: int, edits: int, chance: random.Random) -> float:
    """The reward of the best of a tree in which n copies make one edit at a time, n * edits in all."""
    best = Session(client, await client.start(INSTANCE))
    reached = 0
    for _ in range(edits):
        copies = await best.fork(n)
        seen = await asyncio.gather(*(attempt(copy, chance) for copy in copies))
        top = max(range(len(copies)), key=seen.__getitem__)
        print(f"  {seen} checks hold in the copies")
        dropped = [copy for number, copy in enumerate(copies) if number != top]
        if seen[top] > reached:
            reached, dropped, best = seen[top], [*dropped, best], copies[top]
        else:
            dropped.append(copies[top])
        await asyncio.gather(*(copy.finish() for copy in dropped))
        if reached == GOAL:
            break
    return (await best.reward()).reward


async def main(url: str, n: int, edits: int, seed: int) -> tuple[float, list[float]]:
    """The reward of the tree, and those of n rollouts."""
    async with SandboxClient(url) as client:
        print(f"a tree of {n} copies at each of at most {edits} steps:")
        of_tree = await tree(client, n, edits, random.Random(seed))
        of_rollouts = await alone(client, n, edits, random.Random(seed))
    print(f"reward of the tree: {of_tree}; of {n} rollouts of {edits} edits each: {of_rollouts}")
    return of_tree, of_rollouts


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("url")
    arguments.add_argument("-n", type=int, default=6)
    arguments.add_argument("--edits", type=int, default=8)
    arguments.add_argument("--seed", type=int, default=1)
    given = arguments.parse_args()
    asyncio.run(main(given.url, given.n, given.edits, given.seed))
