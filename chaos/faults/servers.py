"""A server process ends in the middle of something, and is restarted."""

import asyncio
import signal
import time

from chaos.fault import FIND_S, Fault, FaultContext, NoEffect, events

_AWAY_S = 2.0
"""Between the kill and the restart, so that the balancer notices."""


async def _return(context: FaultContext) -> None:
    await asyncio.sleep(_AWAY_S)
    await context.ready_again()


async def in_start(context: FaultContext) -> str:
    """Killed when the engine creates a session's container while a start is waiting."""
    async with events(context.fleet.engine, "type=container", "event=create", "label=sandbox.role=session") as seen:
        end = time.monotonic() + FIND_S
        while time.monotonic() < end:
            async with asyncio.timeout(FIND_S):
                await seen.get()
            if context.trainer.under_way("start"):
                context.victim.server.send(signal.SIGKILL)
                still = len(context.trainer.under_way("start"))
                await context.kill_server()
                await _return(context)
                return f"killed at the creation of a container, {still} starts waiting"
    raise NoEffect("no container was created while a start was waiting")


async def in_action(context: FaultContext) -> str:
    """Killed after an action of one of its sessions has run for a while."""
    rollout = await context.under_way(lambda one: one.phase == "act" and one.slow, after_s=0.3)
    await context.kill_server()
    context.effect(rollout.phase == "act", "the action was answered before the kill")
    await _return(context)
    return "killed while an action ran"


async def in_postprocess(context: FaultContext) -> str:
    """Killed while the patch of one of its sessions is being captured."""
    for _ in range(10):
        rollout = await context.under_way(lambda one: one.phase == "finish", after_s=0.0)
        context.victim.server.send(signal.SIGKILL)
        caught = rollout.phase == "finish"
        await context.kill_server()
        await _return(context)
        if caught:
            return "killed while a postprocess was waiting"
    raise NoEffect("every postprocess was answered before the kill")


async def in_grading(context: FaultContext) -> str:
    """Killed when the tests of a patch begin to run."""
    async with events(context.fleet.engine, "type=container", "event=start", "label=sandbox.role=grade") as seen:
        end = time.monotonic() + FIND_S
        while time.monotonic() < end:
            async with asyncio.timeout(FIND_S):
                await seen.get()
            if context.trainer.under_way("finish", "reward"):
                context.victim.server.send(signal.SIGKILL)
                still = len(context.trainer.under_way("finish", "reward"))
                await context.kill_server()
                await _return(context)
                return f"killed with a grading container running, {still} verdicts awaited"
    raise NoEffect("no grading container started while a verdict was awaited")


async def terminated(context: FaultContext) -> str:
    """SIGTERM in the middle of everything; the next server takes over."""
    await context.under_way(lambda one: one.phase == "act", after_s=0.0)
    began = time.monotonic()
    await context.off(lambda: context.victim.server.end(signal.SIGTERM))
    took = time.monotonic() - began
    context.effect(not context.victim.server.runs, "the server still runs")
    await context.ready_again()
    return f"ended {took:.1f} s after SIGTERM"


FAULTS = (
    Fault(
        "server_killed_in_start",
        "kill -9 of a server as it creates a session's container",
        "The client retries and gets another session; the session without a client ends after SANDBOX_SESSION_IDLE_S",
        in_start,
    ),
    Fault(
        "server_killed_in_action",
        "kill -9 of a server while an action of one of its sessions runs",
        "The retry's observation says that the action was interrupted and may have taken effect; the shell lives on",
        in_action,
    ),
    Fault(
        "server_killed_in_postprocess",
        "kill -9 of a server while it captures a patch",
        "The retry captures the patch, or finds it captured",
        in_postprocess,
    ),
    Fault(
        "server_killed_in_grading",
        "kill -9 of a server while it grades",
        "The patch is graded again; the request for the reward waits",
        in_grading,
    ),
    Fault(
        "server_terminated",
        "SIGTERM to a server in the middle of everything, then its restart",
        "Running actions are answered first; new requests wait for the next server",
        terminated,
    ),
)
