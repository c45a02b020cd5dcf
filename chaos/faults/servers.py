"""A server process ends in the middle of something, and comes back."""

import asyncio
import signal
import time

from chaos.scene import FIND_S, Fault, NoEffect, Scene, events

_AWAY_S = 2.0
"""Between the kill and the restart, so that the balancer sees it too."""


async def _return(scene: Scene) -> None:
    await asyncio.sleep(_AWAY_S)
    await scene.ready_again()


async def in_start(scene: Scene) -> str:
    """Killed as the engine creates a container for a session while a start is on the wire."""
    async with events(scene.fleet.engine, "type=container", "event=create", "label=sandbox.role=session") as seen:
        end = time.monotonic() + FIND_S
        while time.monotonic() < end:
            async with asyncio.timeout(FIND_S):
                await seen.get()
            if scene.trainer.under_way("start"):
                scene.victim.server.send(signal.SIGKILL)
                still = len(scene.trainer.under_way("start"))
                await scene.kill_server()
                await _return(scene)
                return f"killed at the creation of a container, {still} starts on the wire"
    raise NoEffect("no container was created while a start was on the wire")


async def in_action(scene: Scene) -> str:
    """Killed while an action of one of its sessions has run for a while."""
    rollout = await scene.under_way(lambda one: one.phase == "act" and one.slow, after_s=0.3)
    await scene.kill_server()
    scene.effect(rollout.phase == "act", "the action was answered before the kill")
    await _return(scene)
    return "killed while an action ran"


async def in_postprocess(scene: Scene) -> str:
    """Killed while the patch of one of its sessions is being taken."""
    for _ in range(10):
        rollout = await scene.under_way(lambda one: one.phase == "finish", after_s=0.0)
        scene.victim.server.send(signal.SIGKILL)
        caught = rollout.phase == "finish"
        await scene.kill_server()
        await _return(scene)
        if caught:
            return "killed while a postprocess was on the wire"
    raise NoEffect("every postprocess was answered before the kill")


async def in_grading(scene: Scene) -> str:
    """Killed as the tests of a patch begin to run."""
    async with events(scene.fleet.engine, "type=container", "event=start", "label=sandbox.role=grade") as seen:
        end = time.monotonic() + FIND_S
        while time.monotonic() < end:
            async with asyncio.timeout(FIND_S):
                await seen.get()
            if scene.trainer.under_way("finish", "reward"):
                scene.victim.server.send(signal.SIGKILL)
                still = len(scene.trainer.under_way("finish", "reward"))
                await scene.kill_server()
                await _return(scene)
                return f"killed with a grading container running, {still} verdicts awaited"
    raise NoEffect("no grading container started while a verdict was awaited")


async def terminated(scene: Scene) -> str:
    """SIGTERM in the middle of everything; the next server takes over."""
    await scene.under_way(lambda one: one.phase == "act", after_s=0.0)
    began = time.monotonic()
    await scene.off(lambda: scene.victim.server.end(signal.SIGTERM))
    took = time.monotonic() - began
    scene.effect(not scene.victim.server.runs, "it still runs")
    await scene.ready_again()
    return f"ended {took:.1f} s after SIGTERM"


FAULTS = (
    Fault(
        "server_killed_in_start",
        "kill -9 of a server as it makes a session's container",
        "The client asks again and gets another session; one that nobody learnt of ends by SANDBOX_SESSION_IDLE_S",
        in_start,
    ),
    Fault(
        "server_killed_in_action",
        "kill -9 of a server while an action of one of its sessions runs",
        "The retry is told that the action was interrupted and may have taken effect; the shell lives on",
        in_action,
    ),
    Fault(
        "server_killed_in_postprocess",
        "kill -9 of a server while it takes a patch",
        "The retry takes the patch, or finds it taken",
        in_postprocess,
    ),
    Fault(
        "server_killed_in_grading",
        "kill -9 of a server while it grades",
        "Graded again; the request for the reward waits",
        in_grading,
    ),
    Fault(
        "server_terminated",
        "SIGTERM to a server in the middle of everything, then its restart",
        "Actions under way are answered first; what is new waits for the next server",
        terminated,
    ),
)
