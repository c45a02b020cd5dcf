"""Harbor's own client, unmodified, with its environment `e2b` on the sample tasks: `make clients`, not in CI."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT

from .serving import Server

IMAGE = os.environ.get("SANDBOX_TEST_HARBOR", "")
KEY = "e2b_" + 5 * "0123456789ab"
TASKS = ("hello", "history", "separate", "steps")
"""Of the others, E2B's SDK refuses the Dockerfile of two stages, and Harbor's environment `e2b` has one container."""


@pytest.mark.skipif(not IMAGE, reason="SANDBOX_TEST_HARBOR names no image (make clients)")
@pytest.mark.timeout(1000)
@pytest.mark.parametrize(("agent", "reward"), [("oracle", 1.0), ("nop", 0.0)])
def test_harbor_runs_on_boxes(serve: Callable[..., Server], tmp_path: Path, agent: str, reward: float) -> None:
    """Harbor stops at a call that is not answered, or grades what its tasks' authors did not mean."""
    server = serve(api_keys=KEY)
    jobs = tmp_path / "jobs"
    settings = {"E2B_API_KEY": KEY, "E2B_API_URL": server.url, "E2B_SANDBOX_URL": server.url}
    environment = [word for name, value in settings.items() for word in ("-e", f"{name}={value}")]
    folders = ["-v", f"{ROOT / 'examples' / 'harbor'}:/tasks:ro", "-v", f"{jobs}:/jobs"]
    chosen = [word for task in TASKS for word in ("--include-task-name", task)]
    run = ["docker", "run", "--rm", "--network", "host", *environment, *folders, IMAGE, "timeout", "600"]
    harbor = ["/opt/harbor/bin/harbor", "run", "--path", "/tasks", *chosen, "--agent", agent, "--env", "e2b"]
    more = ["--job-name", agent, "--jobs-dir", "/jobs", "--n-concurrent", "2", "--yes", "--quiet"]
    done = subprocess.run([*run, *harbor, *more], capture_output=True, text=True, timeout=700, check=False)
    told = done.stdout + done.stderr
    results = [json.loads(path.read_text()) for path in jobs.glob(f"{agent}/*__*/result.json")]
    got = {
        result["trial_name"].partition("__")[0]: (result["verifier_result"] or {}).get("rewards") for result in results
    }
    assert {task: (rewards or {}).get("reward") for task, rewards in got.items()} == dict.fromkeys(TASKS, reward), told
    assert not [result["exception_info"] for result in results if result["exception_info"]], told
    assert not server.containers()
