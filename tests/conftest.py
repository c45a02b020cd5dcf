"""What most tests stand on: a Docker engine, the sample images and their rows."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import docker
import pytest
from filelock import FileLock

from tests.deployment import BASE_IMAGE, BUILD_TIMEOUT_S, ROOT, output


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
def once(tmp_path_factory, worker_id):
    """once(name, make): the folder `name`, which all workers share; the first to ask has `make(folder)` fill it."""
    base = tmp_path_factory.getbasetemp()
    shared = base if worker_id == "master" else base.parent  # a worker's own folder is one of the run's

    def folder(name: str, make: Callable[[Path], object]) -> Path:
        path, done = shared / name, shared / f"{name}.done"
        with FileLock(shared / f"{name}.lock", timeout=BUILD_TIMEOUT_S):
            if not done.exists():
                shutil.rmtree(path, ignore_errors=True)
                path.mkdir()
                make(path)
                done.touch()
        return path

    return folder


@pytest.fixture(scope="session")
def sample_images(engine, once) -> dict[str, str]:
    """Sample name -> image, all built."""
    once("images", lambda folder: subprocess.run([ROOT / "scripts" / "images.sh"], check=True))
    return {
        path.parent.name: f"sandbox-samples/{path.parent.name}:latest" for path in ROOT.glob("examples/*/instance.json")
    }


@pytest.fixture(scope="session")
def compose_command(missing) -> list[str]:
    """The plugin, else docker-compose 1.29."""
    if shutil.which("docker") and not subprocess.run(["docker", "compose", "version"], capture_output=True).returncode:
        return ["docker", "compose"]
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    return missing("docker compose or docker-compose")


@pytest.fixture(scope="session")
def deployed_images(engine, sample_images, compose_command, once) -> None:
    """The images of server, Redis, PostgreSQL and balancer, built as the compose files say."""

    def build(_: Path) -> None:
        output("scripts/certificates.sh", "deploy")
        files = ("-f", "docker-compose.yml", "-f", "deploy/haproxy/compose.yml")
        output(*compose_command, *files, "--profile", "postgres", "build", BASE_IMAGE=BASE_IMAGE)

    once("deployed", build)


@pytest.fixture(scope="session")
def sample_instances() -> dict[str, dict]:
    """Sample name -> row of examples/instances.jsonl."""
    rows = [json.loads(line) for line in (ROOT / "examples" / "instances.jsonl").read_text().splitlines()]
    return {row["repo"].removeprefix("samples/"): row for row in rows}
