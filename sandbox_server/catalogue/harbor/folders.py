"""Reads Harbor task folders as rows, so that their tasks are imported, stored and compared like all others."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from sandbox_server.catalogue.harbor.archives import MOST_BYTES, packed
from sandbox_server.catalogue.rows import SourceRow
from sandbox_server.errors import MalformedRequest, RowRejected

CONFIG = "task.toml"
ROW = "harbor"
"""Column of the task: texts by file name, archives (`archives.packed`) by folder name."""
COMPOSE = "environment/docker-compose.yaml"
"""The one that Harbor reads."""
_TEXTS = (CONFIG, "instruction.md", "environment/Dockerfile", "tests/Dockerfile", COMPOSE)
_FOLDERS = ("environment", "tests", "solution")
_COMPOSE = ("docker-compose.yaml", "docker-compose.yml", "compose.yaml")


def task_rows(folder: Path, carry: Sequence[str] = ()) -> Iterator[SourceRow | RowRejected]:
    """The task in `folder`, or all tasks in folders below it, ordered by path.

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
            yield SourceRow(number, {"instance_id": task.resolve().name, ROW: _task(task), "carry": list(carry)}, task)
        except (OSError, ValueError) as error:
            yield RowRejected(f"{task}: {error}", line=number)


def _task(folder: Path) -> dict[str, str]:
    content = {name: (folder / name).read_text() for name in _TEXTS if (folder / name).is_file()}
    for name in _FOLDERS:
        content[name] = packed(folder / name)
        for compose in _COMPOSE:
            if (folder / name / compose).is_file() and f"{name}/{compose}" != COMPOSE:
                content[f"{name}/{compose}"] = ""
    if "[[steps]]" not in content[CONFIG] and not (folder / "tests" / "test.sh").is_file():
        raise ValueError("tests/test.sh is missing")
    if sum(map(len, content.values())) > MOST_BYTES:
        raise ValueError(f"its folders take more than {MOST_BYTES >> 20} MiB in all; use a prebuilt docker_image")
    return content
