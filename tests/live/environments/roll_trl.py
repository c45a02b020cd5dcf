"""Steps of TRL's own trainer by examples/trl_step.py, on CPU: `roll_trl.py < job`, what it trained on on stdout.

Runs in veRL's environment, with the release of TRL, sandbox_client and examples on PYTHONPATH.
"""

import contextlib
import json
import math
import os
import sys

job = json.load(sys.stdin)
os.environ |= {"SANDBOX_URL": job["url"], "SANDBOX_RUN": "trl"}

import trl_step  # noqa: E402  # what it imports reads the environment

seen = []


class Watched(trl_step.Scripted):
    """Notes what each step is trained with."""

    def _generate_and_score_completions(self, inputs: list) -> dict:
        scored = super()._generate_and_score_completions(inputs)
        seen[-1]["advantages"] = scored["advantages"].tolist()
        return scored

    def _calculate_rewards(self, *given: object, **named: object) -> object:
        found = super()._calculate_rewards(*given, **named)
        rewards = [None if math.isnan(one) else one for (one,) in found.tolist()]
        seen.append({"rewards": rewards, "sids": [getattr(one._rollout, "sid", None) for one in self.environments]})
        return found


with contextlib.redirect_stdout(sys.stderr):
    for instance in job["instances"]:
        trl_step.step(instance, Watched, job["folder"])
json.dump(seen, sys.stdout)
