"""The instances of examples/, multiplied under other ids, and patches that differ from sample to sample."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox_server.catalogue.eval_script import make_eval_script
from sandbox_server.catalogue.rows import SourceRow

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
PLAIN = "ledger"
"""The sample for everything but the RL step: pytest, half a second."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A SWE-bench row of examples/ and its patches; both our server and the benchmark's harness can grade it."""

    name: str
    row: dict[str, Any]
    gold: str
    wrong: str

    @property
    def instance_id(self) -> str:
        return str(self.row["instance_id"])

    @property
    def image(self) -> str:
        return str(self.row["image"])

    @property
    def source(self) -> str:
        """A Python file of its repository, for reading."""
        repository = EXAMPLES / self.name / "repo"
        return min(str(path.relative_to(repository)) for path in repository.rglob("*.py") if path.stat().st_size > 500)

    def numbered(self, number: int) -> dict[str, Any]:
        """The row under another instance id."""
        return {**self.row, "instance_id": f"{self.instance_id}-{number}"}

    def harness_row(self, number: int) -> dict[str, Any]:
        """The row in swebench 5's format, with the script that our own importer generates from it."""
        row = self.numbered(number)
        script = make_eval_script(
            workdir=row["workdir"],
            base_commit=row["base_commit"],
            test_patch=row["test_patch"],
            files=SourceRow(1, row).test_files(),
            test_cmd=row["test_cmd"],
        )
        return {**row, "eval_script": script, "eval_type": "pass_and_fail"}


def rows() -> list[dict[str, Any]]:
    """All rows of examples/, each with its own image.

    Raises:
        OSError: examples/instances.jsonl is missing; `make images` writes it.

    """
    return [json.loads(line) for line in (EXAMPLES / "instances.jsonl").read_text().splitlines()]


NUMBERS = 25
"""Ids available per row: enough for 200 sessions in groups of 8."""


def every_row() -> list[dict[str, Any]]:
    """All rows, and those of the samples under every number."""
    return [*rows(), *(one.numbered(number) for one in samples() for number in range(NUMBERS))]


def image_of(row: dict[str, Any]) -> str:
    """The image of a row, in either schema."""
    return str(row["image"] if "image" in row else row["sandbox"]["images"][0])


def samples() -> list[Sample]:
    """The samples that the benchmark's harness can grade too, by name."""
    found = []
    for row in rows():
        if "test_cmd" in row:
            name = row["repo"].partition("/")[2]
            gold, wrong = ((EXAMPLES / name / f"{kind}.patch").read_text() for kind in ("gold", "wrong"))
            found.append(Sample(name, row, gold, wrong))
    return sorted(found, key=lambda sample: sample.name)


def sample(name: str = PLAIN) -> Sample:
    """The sample of that name."""
    return next(one for one in samples() if one.name == name)


def distinct(patch: str, number: int) -> str:
    """`patch` with a new file that contains `number`, so that no two patches are the same and no result is shared."""
    path = f"SAMPLE_{number}.txt"
    head = f"diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n"
    return f"{patch}{head}@@ -0,0 +1 @@\n+{number}\n"


def write_rows(rows: Sequence[dict[str, Any]], folder: Path) -> Path:
    """Write a file for `instances import`."""
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path
