"""Run scripts in an environment with Uni-Agent's dependencies and any release of veRL (docs/verl.md)."""

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.conftest import ROOT

SCRIPTS = Path(__file__).parent / "environments"
PLACE = ROOT / ".cache" / "sdk" / "verl"
PYTHON = PLACE / "bin" / "python"
LOCKED = "0.9.1"
"""The release installed in the environment; others are in folders beside it."""


def run(
    release: str,
    script: str,
    job: dict[str, Any],
    missing: Callable[[str], object],
    *,
    folders: Sequence[str] = (),
) -> Any:
    """Run `environments/<script>.py` on the job; return its result.

    `release` is a locked release, or a folder with the package `verl`; `folders` are further folders for its path.
    """
    if not PYTHON.exists():
        missing("the environment of veRL (scripts/environments.sh sdk .cache/sdk verl)")
    if not list(PLACE.glob("lib/python*/site-packages/torch")):
        missing("torch in .venv, linked by scripts/environments.sh (.ci/run says which)")
    path = [str(ROOT / "client"), *folders]
    if release != LOCKED:
        beside = PLACE / "share" / f"beside-verl-{release}"
        path.insert(0, str(beside if beside.exists() else Path(release).resolve(strict=True)))
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("SANDBOX_", "RAY_"))}
    clean |= {
        "PYTHONPATH": os.pathsep.join(path),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "disabled",  # else it writes a token into the user's home
        # else it starts a worker for each CPU before one is asked for; those that stay idle cost 2 s of CPU each
        "RAY_prestart_worker_first_driver": "0",
        "RAY_enable_worker_prestart": "0",
    }
    clean.pop("PYTHONDONTWRITEBYTECODE", None)  # compiling these packages takes seconds
    done = subprocess.run(
        [PYTHON, SCRIPTS / f"{script}.py"],
        input=json.dumps(job),
        env=clean,
        capture_output=True,
        text=True,
        timeout=560,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-5000:]}"
    return json.loads(done.stdout.rstrip().rpartition("\n")[2])
