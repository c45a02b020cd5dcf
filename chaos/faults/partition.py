"""A node that can be reached and reach all but Redis."""

import asyncio

from chaos.scene import Fault, Scene

_APART_S = 12.0
"""Less than SANDBOX_NODE_TTL_S: the others must not take it for dead."""
_LONG_APART_S = 45.0
"""So much more that the others have seen Redis without its heartbeat for long enough to be sure."""


async def short(scene: Scene) -> str:
    """Packets between the node and Redis vanish for a while."""
    return await _apart(scene, _APART_S)


async def long(scene: Scene) -> str:
    """So long that the others take the node for dead and its sessions for theirs, while it and its containers live."""
    return await _apart(scene, _LONG_APART_S)


async def _apart(scene: Scene, seconds: float) -> str:
    far, port = scene.fleet.far, scene.fleet.redis.port
    await scene.under_way(lambda one: one.phase == "act" and one.slow, after_s=0.2)
    far.cut(port)
    try:
        scene.effect(not await asyncio.to_thread(far.reaches, port), "the node still reaches Redis")
        scene.effect(scene.fleet.redis.answers(), "Redis itself is away")
        before = len(scene.trainer.answers)
        await asyncio.sleep(seconds)
        scene.effect(not await asyncio.to_thread(scene.victim.ready), "the node calls itself ready without Redis")
        answered = len(scene.trainer.answers) - before
    finally:
        far.heal(port)
    scene.effect(await asyncio.to_thread(far.reaches, port), "the partition did not heal")
    return f"apart for {seconds:g} s, {answered} answers meanwhile"


FAULTS = (
    Fault(
        "partition",
        "a node's packets to and from Redis lost for 12 s",
        "The node's sessions wait; starts go elsewhere",
        short,
        programs=("iptables",),
    ),
    Fault(
        "partition_long",
        "the same for 45 s: the others take it for dead",
        "Its sessions are taken over elsewhere; what it still runs counts for nothing",
        long,
        nodes=2,
        programs=("iptables",),
    ),
)
