"""Episodes by OpenEnv's own client: `roll_openenv.py < job`, what it was told on stdout.

Runs in an environment of its own, with either name of the package. Each episode is one connection: resets and steps.
"""

import json
import sys

from openenv.core.generic_client import GenericEnvClient


def episode(job):
    """What each message of one connection was answered, and the last state."""
    told = []
    with GenericEnvClient(base_url=job["url"], message_timeout_s=120).sync() as env:
        for kind, data in job["messages"]:
            try:
                result = env.reset(**data) if kind == "reset" else env.step(data)
            except RuntimeError as error:
                told.append({"raised": str(error)})
                continue
            told.append({"observation": result.observation, "reward": result.reward, "done": result.done})
        return {"told": told, "state": env.state()}


json.dump([episode(one) for one in json.load(sys.stdin)], sys.stdout)
