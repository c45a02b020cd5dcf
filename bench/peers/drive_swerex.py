"""SWE-ReX: its Docker deployment and `run_in_session`. Runs in its own environment."""

import logging
import time
from typing import Any

from swerex.deployment.docker import DockerDeployment
from swerex.runtime.abstract import BashAction, CreateBashSessionRequest

logging.disable(logging.CRITICAL)  # its logger writes every step
deployments: list[DockerDeployment] = []


async def start(image: str, label: str) -> dict[str, Any]:
    """Start a deployment and a session, run one command, and return the seconds that this took."""
    began = time.perf_counter()
    deployment = DockerDeployment(image=image, pull="never", docker_args=["--label", label], startup_timeout=60)
    deployments.append(deployment)
    await deployment.start()
    await deployment.runtime.create_session(CreateBashSessionRequest())
    await deployment.runtime.run_in_session(BashAction(command="cd /testbed"))
    return {"s": time.perf_counter() - began}


async def run(command: str, times: int) -> dict[str, Any]:
    """Time of each `run_in_session` in ms."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        done = await deployments[-1].runtime.run_in_session(BashAction(command=command))
        took.append((time.perf_counter() - began) * 1000)
        if done.exit_code:
            raise RuntimeError(f"{command}: {done}")
    return {"ms": took}


async def stop() -> dict[str, Any]:
    """End the last deployment."""
    await deployments.pop().stop()
    return {}


async def clean_up() -> None:
    while deployments:
        await stop()


OPERATIONS = {"start": start, "run": run, "stop": stop}
