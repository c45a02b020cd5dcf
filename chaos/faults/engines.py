"""Containers, the Docker daemon, and a whole host."""

import asyncio

from chaos.fault import Fault, FaultContext

_AWAY_S = 5.0


async def container_killed(context: FaultContext) -> str:
    """The kernel, or a person, kills a container under a live session."""
    rollout = await context.under_way(lambda one: one.phase == "act" and len(one.lines) >= 2, after_s=0.0)
    (found,) = await asyncio.to_thread(context.victim.containers, f"sid={rollout.sid}", "role=session")
    context.effect(found.running, "the container did not run")
    await context.off(lambda: context.fleet.engine.docker("kill", found.container))
    await context.trainer.until(
        lambda: rollout.over or rollout.restored or rollout.errors or rollout.lines[-1:] == [7],
        120,
        "the session noticed",
    )
    return "killed under a session that had acknowledged actions"


async def daemon_killed(context: FaultContext) -> str:
    """dockerd dies; after its restart it ends every container that it finds, because live-restore is off."""
    await context.under_way(lambda one: one.phase == "act", after_s=0.0)
    before = len(await asyncio.to_thread(context.victim.containers, "role=session"))
    await context.off(context.fleet.engine.kill_daemon)
    context.effect(not await asyncio.to_thread(context.fleet.engine.answers), "the engine still answers")
    await asyncio.sleep(_AWAY_S)
    context.effect(not await asyncio.to_thread(context.victim.ready), "the node calls itself ready without an engine")
    await context.off(context.fleet.engine.start)
    await context.until(context.victim.ready, 60, "the node is ready again")
    return f"{before} sessions had containers on it; down for {_AWAY_S:g} s"


async def node_lost(context: FaultContext) -> str:
    """Server, engine and containers at once, as in a power failure; the host comes back after the others went on."""
    await context.under_way(lambda one: one.phase == "act" and one.slow, after_s=0.2)
    hit = [one for one in context.trainer.rollouts if one.node == context.victim.name and not one.over]
    await context.kill_server()
    await context.off(context.fleet.engine.kill_host)
    context.effect(not await asyncio.to_thread(context.fleet.engine.processes), "processes of the host are left")
    try:
        await context.trainer.until(lambda: all(one.over for one in hit), 240, "the rollouts of the dead node ended")
    finally:
        await context.off(context.fleet.engine.start)
        await context.ready_again()
    going_on = sum(one.finished for one in hit)
    return f"{len(hit)} rollouts were on it, {going_on} of them got their verdict while it was dead"


FAULTS = (
    Fault(
        "container_killed",
        "docker kill of a live session's container",
        "The container is started again with its files; if that fails: `sandbox_lost`, masked",
        container_killed,
    ),
    Fault(
        "engine_killed",
        "kill -9 of dockerd, back after 5 s",
        "As if each of the node's containers were killed; starts go to other nodes",
        daemon_killed,
    ),
    Fault(
        "node_lost",
        "kill -9 of a node's server, engine and containers; the node stays away",
        "Its sessions are restored elsewhere from the journal at their next request, and the observation says so",
        node_lost,
        nodes=2,
    ),
)
