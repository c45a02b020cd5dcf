"""What most tests stand on: a Docker engine, the sample images and their rows."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import docker
import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def missing():
    """missing(what): skip on a laptop, fail in CI, where a skip would hide that nothing was tested."""

    def skip_or_fail(what: str) -> None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{what} is needed in CI", pytrace=False)
        pytest.skip(f"{what} is needed")

    return skip_or_fail


@pytest.fixture(scope="session")
def engine(missing):
    """A client of the Docker engine."""
    # asked first by the command: the SDK leaves a socket open where nothing answers
    if shutil.which("docker") is None:
        missing("the docker command")
    said = subprocess.run(["docker", "version"], capture_output=True, text=True, timeout=30, check=False)
    if said.returncode != 0:
        missing(f"a Docker engine ({said.stderr.strip()})")
    client = docker.from_env()
    yield client
    client.close()


@pytest.fixture(scope="session")
def sample_images(engine) -> dict[str, str]:
    """Sample name -> image, all built."""
    subprocess.run([ROOT / "scripts" / "images.sh"], check=True)
    return {
        path.parent.name: f"sandbox-samples/{path.parent.name}:latest" for path in ROOT.glob("examples/*/instance.json")
    }


@pytest.fixture(scope="session")
def sample_instances() -> dict[str, dict]:
    """Sample name -> row of examples/instances.jsonl."""
    rows = [json.loads(line) for line in (ROOT / "examples" / "instances.jsonl").read_text().splitlines()]
    return {row["repo"].removeprefix("samples/"): row for row in rows}
