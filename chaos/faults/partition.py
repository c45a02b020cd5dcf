"""A node that is cut off from Redis but from nothing else."""

import asyncio

from chaos.fault import Fault, FaultContext

_APART_S = 12.0
"""Shorter than SANDBOX_NODE_TTL_S: the others must not consider it dead."""
_LONG_APART_S = 45.0
"""Long enough that the others are sure of its missing heartbeat."""


async def short(context: FaultContext) -> str:
    """Packets between the node and Redis are lost for a while."""
    return await _apart(context, _APART_S)


async def long(context: FaultContext) -> str:
    """Long enough that the others consider the node dead and take over its sessions; its containers still live."""
    return await _apart(context, _LONG_APART_S)


async def _apart(context: FaultContext, seconds: float) -> str:
    far, port = context.fleet.far, context.fleet.redis.port
    await context.under_way(lambda one: one.phase == "act" and one.slow, after_s=0.2)
    far.cut(port)
    try:
        context.effect(not await asyncio.to_thread(far.reaches, port), "the node still reaches Redis")
        context.effect(context.fleet.redis.answers(), "Redis itself is down")
        before = len(context.trainer.answers)
        await asyncio.sleep(seconds)
        context.effect(not await asyncio.to_thread(context.victim.ready), "the node calls itself ready without Redis")
        answered = len(context.trainer.answers) - before
    finally:
        far.heal(port)
    context.effect(await asyncio.to_thread(far.reaches, port), "the partition did not heal")
    return f"cut off for {seconds:g} s, {answered} answers meanwhile"


FAULTS = (
    Fault(
        "partition",
        "a node's packets to and from Redis are lost for 12 s",
        "The node's sessions wait; starts go elsewhere",
        short,
        programs=("iptables",),
    ),
    Fault(
        "partition_long",
        "the same for 45 s, so that the other nodes consider it dead",
        "Other nodes take its sessions over; results of what it still runs are discarded",
        long,
        nodes=2,
        programs=("iptables",),
    ),
)
