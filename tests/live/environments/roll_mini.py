"""Runs of the real mini-swe-agent, by examples/mini_agent.py: `roll_mini.py < job`, outcomes on stdout.

Runs in an environment of its own, with sandbox_client and examples on PYTHONPATH. The model is the package's own
deterministic one.
"""

import json
import os
import sys
import tempfile

os.environ |= {"MSWEA_SILENT_STARTUP": "1", "MSWEA_GLOBAL_CONFIG_DIR": tempfile.mkdtemp()}

from mini_agent import SUBMIT, solve  # the package reads these when it is imported
from minisweagent.environments import get_environment
from sandbox_client.errors import SandboxError


def boxed(job: dict) -> dict:
    """A box by mini-swe-agent's own configuration; what one command gives, and one that is killed."""
    named = {"environment_class": "sandbox_client.mini.SandboxEnvironment", "image": job["image"], "url": job["url"]}
    environment = get_environment(named)
    told = environment.execute({"command": "echo $HOME; echo wrong >&2; exit 3"}, cwd="/tmp")
    killed = environment.execute({"command": "echo begun; sleep 60"}, timeout=1)
    sid = environment.serialize()["info"]["sandbox_sid"]
    environment.cleanup()
    return {"told": told, "killed": killed, "sid": sid}


job = json.load(sys.stdin)
outcomes = {}
for name, script in job["scripts"].items():
    row = {"instance_id": job["instances"][name], "problem_statement": name}
    try:
        outcomes[name] = solve(row, [*script, SUBMIT], job["url"])
    except SandboxError as error:
        outcomes[name] = {"error": f"{type(error).__name__}: {error}"}
json.dump({"rollouts": outcomes, "box": boxed(job)}, sys.stdout)
