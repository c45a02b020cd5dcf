"""mini-swe-agent's Docker environment. Runs in its own environment."""

import time
from typing import Any

from minisweagent.environments.docker import DockerEnvironment

environments: list[DockerEnvironment] = []


async def start(image: str, label: str) -> dict[str, Any]:
    """Start a container; its time."""
    began = time.perf_counter()
    environments.append(DockerEnvironment(image=image, cwd="/testbed", run_args=["--rm", "--init", "--label", label]))
    return {"s": time.perf_counter() - began}


async def run(command: str, times: int) -> dict[str, Any]:
    """Time of each execution in ms."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        done = environments[-1].execute({"command": command})
        took.append((time.perf_counter() - began) * 1000)
        if done["returncode"]:
            raise RuntimeError(f"{command}: {done}")
    return {"ms": took}


async def clean_up() -> None:
    for environment in environments:
        environment.cleanup()


OPERATIONS = {"start": start, "run": run}
