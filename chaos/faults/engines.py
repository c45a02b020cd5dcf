"""Containers, the Docker daemon, and a whole host."""

import asyncio

from chaos.scene import Fault, Scene

_AWAY_S = 5.0


async def container_killed(scene: Scene) -> str:
    """The kernel, or a person, ends a container under a live session."""
    rollout = await scene.under_way(lambda one: one.phase == "act" and len(one.lines) >= 2, after_s=0.0)
    (found,) = await asyncio.to_thread(scene.victim.containers, f"sid={rollout.sid}", "role=session")
    scene.effect(found.running, "the container did not run")
    await scene.off(lambda: scene.fleet.engine.docker("kill", found.container))
    await scene.trainer.until(
        lambda: rollout.over or rollout.restored or rollout.errors or rollout.lines[-1:] == [7],
        120,
        "the session noticed",
    )
    return "killed under a session that had acknowledged actions"


async def daemon_killed(scene: Scene) -> str:
    """dockerd dies; when it is back it has ended every container that it finds, for it was not told to keep them."""
    await scene.under_way(lambda one: one.phase == "act", after_s=0.0)
    before = len(await asyncio.to_thread(scene.victim.containers, "role=session"))
    await scene.off(scene.fleet.engine.kill_daemon)
    scene.effect(not await asyncio.to_thread(scene.fleet.engine.answers), "the engine still answers")
    await asyncio.sleep(_AWAY_S)
    scene.effect(not await asyncio.to_thread(scene.victim.ready), "the node calls itself ready without an engine")
    await scene.off(scene.fleet.engine.start)
    await scene.until(scene.victim.ready, 60, "the node is ready again")
    return f"{before} sessions had containers on it; away for {_AWAY_S:g} s"


async def node_lost(scene: Scene) -> str:
    """Server, engine and containers at once, as when a host's power fails; it comes back after the others went on."""
    await scene.under_way(lambda one: one.phase == "act" and one.slow, after_s=0.2)
    hit = [one for one in scene.trainer.rollouts if one.node == scene.victim.name and not one.over]
    await scene.kill_server()
    await scene.off(scene.fleet.engine.kill_host)
    scene.effect(not await asyncio.to_thread(scene.fleet.engine.processes), "processes of the host are left")
    try:
        await scene.trainer.until(lambda: all(one.over for one in hit), 240, "the rollouts of the dead node ended")
    finally:
        await scene.off(scene.fleet.engine.start)
        await scene.ready_again()
    going_on = sum(one.finished for one in hit)
    return f"{len(hit)} rollouts were on it, {going_on} of them got their verdict while it was dead"


FAULTS = (
    Fault(
        "container_killed",
        "docker kill of a live session's container",
        "Its main process gone, the container is started again with its files; else `sandbox_lost`, masked",
        container_killed,
    ),
    Fault(
        "engine_killed",
        "kill -9 of dockerd, back after 5 s",
        "As the death of each of its containers; starts go to other nodes",
        daemon_killed,
    ),
    Fault(
        "node_lost",
        "kill -9 of a node's server, engine and containers; it stays away",
        "Its sessions are restored elsewhere from the journal at their next request, and told so",
        node_lost,
        nodes=2,
    ),
)
