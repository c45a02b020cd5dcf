"""The wheel alone, in an environment of its own and an empty folder: what it needs of the checkout must be in it."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BUILDS_FROM = ("setup.py", "pyproject.toml", "README.md", "LICENSE", "sandbox_server", "examples", "scripts", "deploy")

Run = Callable[..., subprocess.CompletedProcess[str]]


def _quiet(argv: list[str | Path], cwd: Path) -> None:
    subprocess.run(argv, cwd=cwd, check=True, capture_output=True, timeout=120)


def _not_built_from(folder: str, names: list[str]) -> set[str]:
    if Path(folder) == ROOT:
        return set(names).difference(BUILDS_FROM)
    return {"__pycache__"}  # other tests' processes write there


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Path:
    """The Python of an environment that has the wheel; its dependencies are those of the tests' environment.

    They are named by PYTHONPATH, for a .pth file would bring the editable install with them.
    """
    folder = tmp_path_factory.mktemp("wheel")
    source = shutil.copytree(ROOT, folder / "source", ignore=_not_built_from)  # the build leaves folders where it runs
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    _quiet([*pip, "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index", "-w", folder, source], folder)
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "venv", symlinks=True)
    python = folder / "venv" / "bin" / "python"
    _quiet([*pip, "--python", python, "install", "-q", "--no-deps", "--no-index", "--no-compile", wheel], folder)
    shutil.rmtree(source)
    return python


@pytest.fixture
def run(python: Path, tmp_path: Path) -> Run:
    """Runs the installed Python in an empty folder."""
    empty = tmp_path / "empty"
    empty.mkdir()
    settings = {name: value for name, value in os.environ.items() if not name.startswith(("SANDBOX_", "PYTHON"))}
    settings |= {"PYTHONPATH": sysconfig.get_path("purelib"), "SANDBOX_DATA_DIR": str(tmp_path / "data")}
    settings |= {"SANDBOX_PORT": "1", "PYTHONDONTWRITEBYTECODE": "1"}  # nobody serves there
    return lambda *arguments, **more: subprocess.run(
        [python, *arguments], cwd=empty, env=settings | more, capture_output=True, text=True, timeout=120, check=False
    )


def test_the_kit_is_the_checkouts(run: Run) -> None:
    """A sample that is laid out differently makes other commits, and a script that lost its mode does not run."""
    code = "from sandbox_server.cli.kit import kit_path; print(kit_path('examples').parent)"
    found = run("-c", code)
    assert found.returncode == 0, found.stderr
    kit = Path(found.stdout.strip())
    assert not kit.is_relative_to(ROOT) and (kit.parent.name, kit.name) == ("sandbox_server", "kit")
    for path in (path for path in kit.rglob("*") if path.is_file()):
        given = ROOT / path.relative_to(kit)
        assert path.read_bytes() == given.read_bytes() and os.access(path, os.X_OK) == os.access(given, os.X_OK), path
    samples = {path.parent.name for path in (ROOT / "examples").glob("*/instance.json")}
    assert samples == {path.parent.name for path in (kit / "examples").glob("*/instance.json")}
    rows = (kit / "examples" / "instances.jsonl").read_text()
    made = run(kit / "examples" / "build.py", "--rows-only")
    assert made.returncode == 0, made.stderr
    assert (kit / "examples" / "instances.jsonl").read_text() == rows


def test_the_demos_rows_are_found(run: Run) -> None:
    """The demo and the import find the samples without a folder `examples` where they are run."""
    found = run("-c", "from sandbox_server.cli import demo, kit; print(len(demo._samples(kit.kit_path('examples'))))")
    assert found.stdout.split() == [str(len(list((ROOT / "examples").glob("*/instance.json"))))], found.stderr
    # A server that nobody serves: each rollout of each sample fails, after its patch was read.
    demo = run("-m", "sandbox_server.cli", "demo", "--url", "http://127.0.0.1:1")
    assert demo.returncode == 1 and "verdicts are not as expected" in demo.stderr, demo.stderr


def test_the_doctor_examines(run: Run) -> None:
    """It runs to its end, and what it tells to run is no file of the checkout."""
    doctor = run("-m", "sandbox_server.cli", "doctor")
    assert "Traceback" not in doctor.stderr, doctor.stderr
    assert "ok    sql " in doctor.stdout and "none runs at 127.0.0.1:1" in doctor.stdout, doctor.stdout
    assert not any(word in doctor.stdout for word in ("`make ", "scripts/", "examples/"))
    assert "swebench==4.1.0" in doctor.stdout  # how to install what this environment lacks


def test_images_are_built_by_the_wheels_scripts(run: Run, tmp_path: Path) -> None:
    """`images build` finds the scripts and passes the engine and the image on; a stand-in for docker notes it."""
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text('#!/bin/sh\necho "$DOCKER_HOST $*" >>"$NOTES"\nexit 1\n')
    docker.chmod(0o755)
    notes = tmp_path / "notes"
    built = run(
        *("-m", "sandbox_server.cli", "images", "build", "search"),
        PATH=f"{docker.parent}:{os.environ['PATH']}",
        NOTES=str(notes),
        BASE_IMAGE="nobody/has:this",
        SANDBOX_SEARCH_IMAGE="mine:latest",
        SANDBOX_DOCKER_URL="unix:///run/mine.sock",
    )
    assert built.returncode == 1 and "the images of search could not be built" in built.stderr
    last = notes.read_text().splitlines()[-1]
    assert last.startswith("unix:///run/mine.sock build ") and last.endswith("-t mine:latest deploy/search-image")
    assert "--build-arg BASE_IMAGE=nobody/has:this " in last
