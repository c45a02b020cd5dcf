"""The real SWE-agent, by examples/swe_agent.py: `roll_swe_agent.py < job`, the outcome on stdout.

Runs in a Python that has SWE-agent, with sandbox_client and examples on PYTHONPATH.
"""

import json
import os
import sys

os.environ |= {"SWE_AGENT_LOG_STREAM_LEVEL": "CRITICAL", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}

from swe_agent import solve  # the package reads these when it is imported

job = json.load(sys.stdin)
out = os.dup(1)
os.dup2(2, 1)  # what its log writes is not the outcome
done = solve(job["row"], job["calls"], job["url"])
os.write(out, json.dumps(done | {"trajectory": [step["observation"] for step in done["trajectory"]]}).encode())
