"""Several faults within the same seconds."""

import asyncio
import signal

from chaos.faults.clients import hang_up
from chaos.faults.engines import container_killed
from chaos.faults.sql import locked
from chaos.scene import Fault, Scene


async def storm(scene: Scene) -> str:
    """A container dies, clients hang up, SQL is locked; then Redis pauses, and the server dies in the pause."""
    first, second, third = await asyncio.gather(container_killed(scene), hang_up(scene), locked(scene))
    await scene.under_way(lambda one: one.phase == "act", after_s=0.0)
    scene.fleet.redis.process.send(signal.SIGSTOP)
    try:
        scene.effect(not await asyncio.to_thread(scene.fleet.redis.answers), "Redis still answers")
        await scene.kill_server()
        await asyncio.sleep(4)
    finally:
        scene.fleet.redis.process.send(signal.SIGCONT)
    await scene.ready_again()
    return f"{first}; {second}; {third}; then the server killed while Redis was paused for 4 s"


FAULTS = (
    Fault(
        "mixed",
        "a container, clients and SQL at once, then the server while Redis is paused",
        "All of the above",
        storm,
    ),
)
