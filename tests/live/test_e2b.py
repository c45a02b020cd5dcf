"""The real E2B SDK against a real server: the scripts in `e2b_sdk/`, run with each release of the SDK."""

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .e2b import SDKS
from .serving import Server, docker, serving

CHECKS = Path(__file__).with_name("e2b_sdk") / "checks.py"
NAMES = [
    name
    for file in (CHECKS, CHECKS.with_name("file_checks.py"))
    for name in re.findall(r"^def check_(\w+)\(", file.read_text(), re.MULTILINE)
]
RELEASES = ("oldest", "older", "newest")
"""As in requirements/sdk-e2b-*.in."""
IMAGE = "sandbox-samples/e2b:latest"
DOCKERFILE = """
FROM sandbox-samples/base:latest
RUN useradd -m -s /bin/bash user && useradd -m -s /bin/bash agent \\
 && mkdir -p /opt/tools/bin && printf '#!/bin/sh\\necho found\\n' > /opt/tools/bin/only-on-the-images-path \\
 && chmod 755 /opt/tools/bin/only-on-the-images-path
COPY mcp-gateway /usr/local/bin/
ENV PATH=/opt/tools/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
"""
"""A stand-in for E2B's own template: its user, another, and programs: one that only the image's PATH leads to."""
GATEWAY = """#!/bin/sh
mkdir /etc/mcp-gateway
printf %s "$GATEWAY_ACCESS_TOKEN" >/etc/mcp-gateway/.token
printf %s "$2" >/tmp/mcp.json
"""
SETTINGS = {
    "box_templates": json.dumps({"base": IMAGE}),
    "box_user": "user",
    "disk_mb": 100,
}


@pytest.fixture(scope="session", params=RELEASES)
def python(request: pytest.FixtureRequest, missing: Callable[[str], None]) -> Path:
    """The interpreter that has one release of the SDK."""
    found = SDKS / f"e2b-{request.param}" / "bin" / "python"
    if not found.exists():
        missing(f"{found} (make test makes it)")
    return found


@pytest.fixture(scope="session")
def box_image(sample_images: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> str:
    """The image behind template `base`."""
    folder = tmp_path_factory.mktemp("image")
    (folder / "Dockerfile").write_text(DOCKERFILE)
    (folder / "mcp-gateway").write_text(GATEWAY)
    (folder / "mcp-gateway").chmod(0o755)
    docker("build", "-q", "-t", IMAGE, str(folder))
    return IMAGE


@pytest.fixture(scope="session")
def boxes(box_image: str, rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose template `base` is the image."""
    with serving(tmp_path_factory.mktemp("e2b"), rows, **SETTINGS) as server:
        yield server


def client(server: Server) -> dict[str, str]:
    """The environment of an SDK that speaks to the server and to nobody else."""
    clean = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    url = f"{server.url}/e2b"
    return clean | {"E2B_API_URL": url, "E2B_SANDBOX_URL": url, "E2B_API_KEY": "e2b_" + "0" * 40}


@pytest.fixture(scope="session")
def results(python: Path, boxes: Server) -> dict[str, dict[str, object]]:
    """The result of each check, by name."""
    # the largest amounts, which cost the most, with the newest release alone
    small = {} if python.parents[1].name == f"e2b-{RELEASES[-1]}" else {"SMALL_AMOUNTS": "yes"}
    environment = client(boxes) | small
    done = subprocess.run([python, CHECKS], env=environment, capture_output=True, text=True, timeout=240, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    found = {line["name"]: line for line in lines}
    assert set(found) == set(NAMES), done.stdout[-2000:] + done.stderr[-3000:]
    return found


@pytest.mark.timeout(300)  # the first one waits for all
@pytest.mark.parametrize("name", NAMES)
def test_sdk(results: dict[str, dict[str, object]], name: str) -> None:
    """A program written for E2B would fail here."""
    assert not results[name]["wrong"], results[name]["wrong"]


def test_nothing_unforeseen(results: dict[str, dict[str, object]], boxes: Server) -> None:
    """A client that retries would hide an unexpected error of the server."""
    assert [entry for entry in boxes.complaints() if entry["level"] in ("error", "critical")] == []


def test_a_restart_under_running_commands(python: Path, box_image: str, serve: Callable[..., Server]) -> None:
    """A client waits forever for a command that the restarted server does not follow, and cannot kill it."""
    server = serve(**SETTINGS)
    with subprocess.Popen(
        [python, CHECKS, "restart"],
        env=client(server),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline() == "ready\n"
            server.restart()
            told, complaint = running.communicate("go on\n", timeout=90)
        finally:
            running.kill()
    assert told, complaint[-3000:]
    found = {name: value for line in told.splitlines() for name, value in json.loads(line).items()}
    assert not found["hung"], found
    assert found["outcome"], found
    code, why = found["unseen"]
    assert code == -1 and "the server restarted while it ran" in why, found
    assert found["file"] == "/home/user/after", found
    assert found["listed"] and found["killed"] and found["left"] == [], found
