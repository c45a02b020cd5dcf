"""The images that stacks take from registries, and their digests (`make pins`)."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT

_DIGEST = "sha256:" + "ab" * 32
_DOCKER = """#!/bin/sh
case $1 in
pull) case $3 in $AWAY) exit 1 ;; esac ;;
image) printf 'mirror/any@%s\\n\\n' "$DIGEST" ;;
esac
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What the script reads, and a docker that answers as with a registry, which tests cannot reach."""
    for name in ("Dockerfile", "docker-compose.yml"):
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    for folder in ("scripts", "bin"):
        (tmp_path / folder).mkdir()
    shutil.copy(ROOT / "scripts" / "pins.sh", tmp_path / "scripts")
    (tmp_path / "bin" / "docker").write_text(_DOCKER)
    (tmp_path / "bin" / "docker").chmod(0o755)
    return tmp_path


def pins(checkout: Path, *words: str, away: str = "") -> subprocess.CompletedProcess[str]:
    environment = {"PATH": f"{checkout}/bin:{os.environ['PATH']}", "DIGEST": _DIGEST, "AWAY": away}
    command = [str(checkout / "scripts" / "pins.sh"), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=30)


def test_no_image_of_a_registry_is_forgotten(checkout: Path) -> None:
    """A new service would run what its tag means on that day, beside pinned ones."""
    named = set()
    for path in [ROOT / "docker-compose.yml", *ROOT.glob("deploy/**/*.y*ml")]:
        for image in re.findall(r"^\s*image: *\"?(?:\$\{\w+:-)?([^}\s\"]+)", path.read_text(), re.M):
            named.add(image)
    for path in [ROOT / "Dockerfile", *ROOT.glob("deploy/**/Dockerfile")]:
        named |= set(re.findall(r"^ARG \w*IMAGE=(\S+)", path.read_text(), re.M))
        assert set(re.findall(r"^FROM (\S+)", path.read_text(), re.M)) == {"${BASE_IMAGE}"}, path
    listed = [line.split() for line in pins(checkout, "--list").stdout.splitlines()]
    assert {name for _, name in listed} == {image for image in named if not image.startswith("sandbox-")}
    assert not [name for _, name in listed if name.endswith(":latest") or ":" not in name]


def test_each_gets_the_digest_of_today(checkout: Path) -> None:
    """A half-written list would pin some and leave the others as they are, unnoticed."""
    failed = pins(checkout, away="redis:*")
    assert failed.returncode == 1 and "redis:7.2 cannot be pulled" in failed.stderr
    assert not (checkout / "build" / "pins.env").exists()
    made = pins(checkout)
    assert made.returncode == 0, made.stderr
    settings = dict(line.split("=", 1) for line in (checkout / "build" / "pins.env").read_text().splitlines())
    assert settings["BASE_IMAGE"] == f"debian@{_DIGEST}" and settings["GRAFANA_IMAGE"] == f"grafana/grafana@{_DIGEST}"
    component = yaml.safe_load((checkout / "build" / "pins" / "kustomization.yaml").read_text())
    assert {"name": "redis", "digest": _DIGEST} in component["images"] and component["kind"] == "Component"
    assert sorted(path.name for path in (checkout / "build" / "pins").iterdir()) == ["kustomization.yaml"]
