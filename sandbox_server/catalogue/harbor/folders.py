"""Reads Harbor task folders as rows, so that their tasks are imported, stored and compared like all others."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from sandbox_server.catalogue.harbor.archives import MOST_BYTES, packed
from sandbox_server.catalogue.harbor.config import Config
from sandbox_server.catalogue.harbor.steps import FOLDERS as STEP_FOLDERS
from sandbox_server.catalogue.harbor.steps import INSTRUCTION
from sandbox_server.catalogue.rows import SourceRow
from sandbox_server.errors import MalformedRequest, RowRejected

CONFIG = "task.toml"
ROW = "harbor"
"""Column of the task: texts by file name, archives (`archives.packed`) by folder name."""
STEP = "step"
"""Column of the steps after the first one: 1, 2, ..."""
COMPOSE = "environment/docker-compose.yaml"
"""The one that Harbor reads."""
_TEXTS = (CONFIG, INSTRUCTION, "environment/Dockerfile", "tests/Dockerfile", COMPOSE)
_FOLDERS = ("environment", "tests", "solution")
_COMPOSE = ("docker-compose.yaml", "docker-compose.yml", "compose.yaml")


def task_rows(folder: Path, carry: Sequence[str] = ()) -> Iterator[SourceRow | RowRejected]:
    """The task in `folder`, or all tasks in folders below it, ordered by path; of a task of steps a row for each step.

    `carry`: paths that gradings take from the agent's container in addition to the task's own. A task that cannot be
    read is returned as its error.

    Raises:
        MalformedRequest: there is no task.
    """
    found = [folder] if (folder / CONFIG).is_file() else sorted(path.parent for path in folder.rglob(CONFIG))
    if not found:
        raise MalformedRequest(f"{folder} holds no {CONFIG}")
    for number, task in enumerate(found, start=1):
        try:
            content, steps = _task(task)
            fields = {"instance_id": task.resolve().name, ROW: content, "carry": list(carry)}
            yield SourceRow(number, fields, task)
            for step in range(1, len(steps)):
                yield SourceRow(number, {**fields, STEP: step}, task)
        except (OSError, ValueError) as error:
            yield RowRejected(f"{task}: {error}", line=number)


def _task(folder: Path) -> tuple[dict[str, str], Sequence[str]]:
    """Its content, and the names of its steps."""
    content = {name: (folder / name).read_text() for name in _TEXTS if (folder / name).is_file()}
    for name in _FOLDERS:
        content[name] = packed(folder / name)
        for compose in _COMPOSE:
            if (folder / name / compose).is_file() and f"{name}/{compose}" != COMPOSE:
                content[f"{name}/{compose}"] = ""
    steps = [step.name for step in Config.read(content[CONFIG]).steps]
    for own in (f"steps/{name}" for name in steps):
        if (folder / own / INSTRUCTION).is_file():
            content[f"{own}/{INSTRUCTION}"] = (folder / own / INSTRUCTION).read_text()
        for name in STEP_FOLDERS:
            content[f"{own}/{name}"] = packed(folder / own / name)
        tests = folder / own / "tests"
        if (tests / "Dockerfile").is_file():
            content[f"{own}/tests/Dockerfile"] = (tests / "Dockerfile").read_text()
        content.update({f"{own}/tests/{name}": "" for name in _COMPOSE if (tests / name).is_file()})
    if not steps and not (folder / "tests" / "test.sh").is_file():
        raise ValueError("tests/test.sh is missing")
    if sum(map(len, content.values())) > MOST_BYTES:
        raise ValueError(f"its folders take more than {MOST_BYTES >> 20} MiB in all; use a prebuilt docker_image")
    return content, steps
