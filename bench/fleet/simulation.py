"""Placement of starts in a fleet larger than one machine: the server's own weights on simulated nodes.

Servers know the nodes from heartbeats that are up to two seconds old, and all placements since then from a counter in
Redis; the balancer sends each a random share of the starts. A step's starts arrive within some seconds, each rollout
holds its slot for the duration of recorded rollouts plus the model's time, and images missing on a node are pulled
and prepared.
"""

import heapq
import random
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from sandbox_server.fleet.placement import Ring, Wanted, candidates, score
from sandbox_server.state.nodes import Holders, NodeRecord

BEAT_S = 2.0
SLOTS = 64
INSTANCES = 2438
"""In SWE-Gym."""
IMAGES_KEPT = 150
"""Images that fit on a node's disk; the least recently used goes first."""
SAMPLES_EACH = 16
BURST_S = 5.0
FULL_TO = 0.7
"""Share of all slots that a step fills."""
PULL_S = 25.0
"""A 2.5 GB image at 100 MB/s; assumed."""
PREPARE_S = 2.5
COLD_S = 0.15
"""Starting a container of a prepared image, as recorded."""
ROLLOUT_S = (13.0, 33.0, 51.0, 62.0, 78.0)
"""Quantiles of recorded rollouts without a model (5, 25, 50, 75, 95 %)."""
MODEL_S = 80.0
"""Ten turns of 8 s; assumed."""


@dataclass(slots=True)
class _Node:
    name: str
    used: int = 0
    images: OrderedDict[int, float] = field(default_factory=OrderedDict)
    """Instance -> time at which it is ready."""
    pulls: int = 0
    seen_used: int = 0
    """From its last heartbeat."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Results of one fleet under one policy, over the steps after the first."""

    nodes: int
    policy: str
    starts: int
    ready_pct: float
    """Starts whose image was already prepared on their node."""
    pulls_per_start: float
    start_p50_s: float
    start_p99_s: float
    queued: int
    """Starts sent to a full node while another had room."""
    fullest: float
    """Sessions of the fullest node, as a multiple of the mean, at its worst."""
    choose_us: float
    """CPU time of one choice."""


Policy = Callable[["_Fleet", int, int], int]


class _Fleet:
    def __init__(self, count: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.nodes = [_Node(f"node-{number}") for number in range(count)]
        self.placed: Counter[int] = Counter()
        """Node -> placements since its last heartbeat."""
        self.ring = Ring(node.name for node in self.nodes)
        self.number = {node.name: number for number, node in enumerate(self.nodes)}
        self.holders: dict[int, frozenset[str]] = {}

    def beat(self) -> None:
        self.placed.clear()
        holders: dict[int, set[str]] = {}
        for node in self.nodes:
            node.seen_used = node.used
            for instance in node.images:
                holders.setdefault(instance, set()).add(node.name)
        self.holders = {instance: frozenset(names) for instance, names in holders.items()}


def ours(fleet: _Fleet, server: int, instance: int) -> int:
    """As `fleet.placement.Placement.choose`."""
    ready = fleet.holders.get(instance, frozenset())
    wanted = Wanted(str(instance), Holders(ready, ready))

    def rank(name: str) -> float:
        number = fleet.number[name]
        record = NodeRecord(name, "", "", slots=SLOTS, used=fleet.nodes[number].seen_used)
        return score(record, wanted, placed=fleet.placed[number], here=number == server)

    best = max(candidates(fleet.ring, wanted) | {fleet.nodes[server].name}, key=rank)
    return fleet.number[best if rank(best) > 0 else max(fleet.ring, key=rank)]


def least_used(fleet: _Fleet, server: int, instance: int) -> int:
    """By free room only."""
    return min(range(len(fleet.nodes)), key=lambda n: fleet.nodes[n].seen_used + fleet.placed[n])


def anywhere(fleet: _Fleet, server: int, instance: int) -> int:
    """Wherever the balancer sent it."""
    return server


POLICIES: dict[str, Policy] = {"ours": ours, "room alone": least_used, "as balanced": anywhere}


def simulate(count: int, policy: str, *, steps: int = 3, seed: int = 1) -> Outcome:
    """Simulate `steps` training steps on `count` nodes; the first fills the disks and is not counted."""
    fleet = _Fleet(count, seed)
    took: list[float] = []
    ready = queued = pulls = 0
    fullest, spent, clock = 0.0, 0.0, 0.0
    for step in range(steps):
        groups = int(FULL_TO * count * SLOTS / SAMPLES_EACH)
        starts = sorted(
            (clock + fleet.random.uniform(0, BURST_S), instance)
            for instance in (fleet.random.randrange(INSTANCES) for _ in range(groups))
            for _ in range(SAMPLES_EACH)
        )
        ends: list[tuple[float, int]] = []
        next_beat = clock
        for now, instance in starts:
            while next_beat <= now:
                fleet.beat()
                next_beat += BEAT_S
            while ends and ends[0][0] <= now:
                fleet.nodes[heapq.heappop(ends)[1]].used -= 1
            server = fleet.random.randrange(count)
            began = time.process_time()
            chosen = POLICIES[policy](fleet, server, instance)
            spent += time.process_time() - began
            fleet.placed[chosen] += 1
            node = fleet.nodes[chosen]
            waits, was_ready, pulled = _start(node, instance, now)
            if step:
                took.append(waits)
                ready += was_ready
                pulls += pulled
                queued += node.used >= SLOTS and any(other.used < SLOTS for other in fleet.nodes)
            node.used += 1
            heapq.heappush(ends, (now + waits + _rollout_s(fleet.random), chosen))
        if step:
            mean = sum(node.used for node in fleet.nodes) / count
            fullest = max(fullest, max(node.used for node in fleet.nodes) / mean)
        clock = max(end for end, _ in ends)  # the trainer waits for its last rollout
        for _, number in ends:
            fleet.nodes[number].used -= 1
        fleet.beat()
    took.sort()
    all_starts = steps * len(starts)
    return Outcome(
        nodes=count,
        policy=policy,
        starts=len(took),
        ready_pct=100 * ready / len(took),
        pulls_per_start=pulls / len(took),
        start_p50_s=took[len(took) // 2],
        start_p99_s=took[len(took) * 99 // 100],
        queued=queued,
        fullest=fullest,
        choose_us=1e6 * spent / all_starts,
    )


def _start(node: _Node, instance: int, now: float) -> tuple[float, bool, bool]:
    """(wait for image and container, whether the image was ready, whether it is pulled for this start)."""
    ready_at = node.images.get(instance)
    pulled = ready_at is None
    if ready_at is None:
        ready_at = now + PULL_S + PREPARE_S
        if len(node.images) >= IMAGES_KEPT:
            node.images.popitem(last=False)
        node.images[instance] = ready_at
    node.images.move_to_end(instance)
    return max(0.0, ready_at - now) + COLD_S, ready_at <= now, pulled


def _rollout_s(numbers: random.Random) -> float:
    place = numbers.random() * (len(ROLLOUT_S) - 1)
    low = int(place)
    return MODEL_S + ROLLOUT_S[low] + (place - low) * (ROLLOUT_S[min(low + 1, len(ROLLOUT_S) - 1)] - ROLLOUT_S[low])
