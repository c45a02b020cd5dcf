"""The SWE-bench harness's own `run_instance` with its default options."""

import asyncio
import os
import re
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import docker
from swebench.harness.run_evaluation import run_instance
from swebench.harness.utils import make_test_spec

folder = tempfile.TemporaryDirectory(prefix="bench-swebench-")
os.chdir(folder.name)  # it writes logs/ below the working directory
client = docker.from_env(timeout=600, max_pool_size=128)


async def grade(row: dict[str, Any], patch: str, run_id: str) -> dict[str, Any]:
    """Grade one instance on a thread, like its own `run_instances`; includes the teardown."""
    return await asyncio.to_thread(_grade, row, patch, run_id)


async def grade_all(jobs: list[dict[str, Any]], run_id: str, workers: int) -> dict[str, Any]:
    """Grade many, `workers` at a time; `at_s`: when each was done, from the request on."""
    began = time.perf_counter()
    loop = asyncio.get_running_loop()

    def one(job: dict[str, Any]) -> dict[str, Any]:
        graded = _grade(job["row"], job["patch"], run_id)
        return {**graded, "at_s": time.perf_counter() - began}

    with ThreadPoolExecutor(workers) as pool:
        graded = await asyncio.gather(*(loop.run_in_executor(pool, one, job) for job in jobs))
    return {"graded": graded}


def _grade(row: dict[str, Any], patch: str, run_id: str) -> dict[str, Any]:
    instance_id = row["instance_id"]
    prediction = {"instance_id": instance_id, "model_name_or_path": "bench", "model_patch": patch}
    began = time.perf_counter()
    done = run_instance(make_test_spec(row), prediction, client, run_id, timeout=600)
    took = time.perf_counter() - began
    if done is None:
        raise RuntimeError(f"{instance_id}: run_instance produced no report")
    log = Path("logs/run_evaluation", run_id, "bench", instance_id, "run_instance.log").read_text()
    tests_s = re.findall(r"Test runtime: ([0-9_.]+) seconds", log)
    return {"s": took, "tests_s": float(tests_s[-1].replace("_", "")), "resolved": done[1][instance_id]["resolved"]}


async def clean_up() -> None:
    os.chdir("/")
    folder.cleanup()


OPERATIONS = {"grade": grade, "grade_all": grade_all}
