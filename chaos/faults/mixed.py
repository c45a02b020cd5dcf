"""Several faults within the same seconds."""

import asyncio
import signal

from chaos.fault import Fault, FaultContext
from chaos.faults.clients import hang_up
from chaos.faults.engines import container_killed
from chaos.faults.sql import locked


async def storm(context: FaultContext) -> str:
    """A container dies, clients disconnect, SQL is locked; then Redis pauses, and the server dies meanwhile."""
    first, second, third = await asyncio.gather(container_killed(context), hang_up(context), locked(context))
    await context.under_way(lambda one: one.phase == "act", after_s=0.0)
    context.fleet.redis.process.send(signal.SIGSTOP)
    try:
        context.effect(not await asyncio.to_thread(context.fleet.redis.answers), "Redis still answers")
        await context.kill_server()
        await asyncio.sleep(4)
    finally:
        context.fleet.redis.process.send(signal.SIGCONT)
    await context.ready_again()
    return f"{first}; {second}; {third}; then the server killed while Redis was paused for 4 s"


FAULTS = (
    Fault(
        "mixed",
        "a container, clients and SQL at once, then the server while Redis is paused",
        "The effects of each of these faults",
        storm,
    ),
)
