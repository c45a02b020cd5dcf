"""Episodes by OpenEnv's own client: a scripted policy mends a sample, and another one does nothing.

pip install openenv
python examples/agents/openenv_episode.py http://localhost:5000   # a server that has the samples; SANDBOX_API_KEY
"""

import argparse
import os
from pathlib import Path

from openenv.core.generic_client import GenericEnvClient

INSTANCE = "samples__ledger-12"
PATCH = (Path(__file__).parent.parent / "ledger" / "gold.patch").read_text()


def call(tool: str, **arguments: object) -> dict[str, object]:
    return {"type": "call_tool", "tool_name": tool, "arguments": arguments}


POLICIES = {
    "gold": [
        call("execute_bash", command="cd /testbed && git log --oneline | head -3"),
        call("execute_bash", command=f"git apply - <<'END_OF_PATCH'\n{PATCH}END_OF_PATCH"),
        call("submit"),
    ],
    "idle": [call("bash", command="ls"), call("submit")],
}


def play(url: str, name: str) -> float | None:
    """One episode; returns its reward, None if it is masked."""
    # a command may run for SANDBOX_COMMAND_TIMEOUT_S, 100 s; a first start may pull an image
    with GenericEnvClient(base_url=url, message_timeout_s=320).sync() as env:
        result = env.reset(instance=INSTANCE)
        print(f"{name}: {result.observation['content'].splitlines()[0]}")
        for action in POLICIES[name]:
            result = env.step(action)
            print(f"  {action['tool_name']:13} {' '.join(result.observation['content'].split())[:90]}")
            if result.done:
                break
        while result.observation["metadata"]["verdict"] == "pending":
            result = env.step({"type": "reward"})
        metadata = result.observation["metadata"]
        why = f" (masked: {metadata['grade']['cause']})" if metadata["mask"] else ""
        print(f"  {metadata['verdict']} {result.reward}{why}")
        return result.reward


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?", default="http://localhost:5000")
    host = parser.parse_args().url.rstrip("/")
    key = os.environ.get("SANDBOX_API_KEY", "")
    if key:  # in the URL, because clients before openenv 0.10 send no headers
        host = host.replace("://", f"://key:{key}@", 1)
    rewards = [play(f"{host}/openenv", name) for name in POLICIES]
    print("rewards", rewards)
