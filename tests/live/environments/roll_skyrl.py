"""Rollouts of a scripted policy in the real skyrl-gym, as SkyRL drives them: `roll_skyrl.py < jobs`, results on stdout.

Runs in an environment of its own, with sandbox_client on PYTHONPATH.
"""

import dataclasses
import json
import sys
from concurrent.futures import ThreadPoolExecutor

import skyrl_gym


def typed(values: dict) -> object:
    """A configuration as SkyRL's own: a dataclass."""
    return dataclasses.make_dataclass("CodeSearchConfig", values)(**values)


def roll(job: dict, policy: list[str]) -> dict:
    """One rollout: init, a step for each turn, metrics, close; a second close does nothing."""
    config = typed(job["typed"]) if "typed" in job else job.get("config", {})
    env = skyrl_gym.make(job["id"], env_config=config, extras=job["extras"])
    prompt, info = env.init([{"role": "user", "content": "Find it."}])
    steps = []
    for text in policy:
        steps.append(env.step(text))
        if steps[-1]["done"]:
            break
    metrics = env.get_metrics()
    env.close()
    env.close()
    return {"prompt": prompt, "info": info, "steps": steps, "metrics": metrics}


def play(number: int, job: dict) -> dict:
    """All rollouts of a job at once, in an environment registered for it."""
    job["id"] = f"code_search_{number}"
    skyrl_gym.register(
        id=job["id"],
        entry_point="sandbox_client.skyrl:CodeSearchEnv",
        kwargs={"settings": job.get("settings")},
    )
    with ThreadPoolExecutor(len(job["policies"])) as pool:
        outcomes = list(pool.map(lambda policy: roll(job, policy), job["policies"]))
    mean = skyrl_gym.envs.base_text_env.BaseTextEnv.aggregate_metrics([outcome["metrics"] for outcome in outcomes])
    return {"rollouts": outcomes, "mean": mean}


jobs = json.load(sys.stdin)
json.dump({name: play(number, jobs[name]) for number, name in enumerate(jobs)}, sys.stdout)
