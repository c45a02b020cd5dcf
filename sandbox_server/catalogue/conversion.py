"""Converts old SWE-bench rows by swebench 4.1.0, in a process of its own and without network."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sandbox_server.catalogue.eval_script import bare_checkout_repaired
from sandbox_server.catalogue.rows import Converted, SourceRow, Unconvertible
from sandbox_server.errors import GraderBroken

_PROGRAM = Path(__file__).with_name("convert41.py")
_TIMEOUT_S = 300.0
"""2,294 rows take about 4 s, mostly for importing the library."""


class Swebench41:
    """An `OldRowConverter`."""

    def __init__(self, folder: Path | None = None) -> None:
        """`folder`: target of `pip install --no-deps --target` for swebench 4.1.0; None: share/swebench-4.1.0 here."""
        self._folder = folder or Path(sys.prefix) / "share" / "swebench-4.1.0"

    def convert(self, rows: Sequence[SourceRow]) -> list[Converted | Unconvertible]:
        """The library's answer for each row, with its bare checkout repaired; one process for all rows.

        Raises:
            RowRejected: a row lacks a field that the library needs.
            GraderBroken: the library is missing or failed.

        """
        if not rows:
            return []
        if not (self._folder / "swebench" / "__init__.py").is_file():
            raise GraderBroken(
                f"rows without eval_script need swebench 4.1.0, which is not in {self._folder}: run `make setup`, or "
                "`pip install --no-deps --target FOLDER swebench==4.1.0` and set SANDBOX_SWEBENCH4_DIR to FOLDER"
            )
        asked = "".join(json.dumps(_question(row)) + "\n" for row in rows)
        answers = [json.loads(line) for line in self._run(asked).splitlines()]
        if len(answers) != len(rows):
            raise GraderBroken(f"swebench 4.1.0 in {self._folder} answered {len(answers)} of {len(rows)} rows")
        return [_answer(row, answer) for row, answer in zip(rows, answers, strict=True)]

    def _run(self, asked: str) -> str:
        inherited = os.environ.get("PYTHONPATH", "")
        path = os.pathsep.join(part for part in (str(self._folder), inherited) if part)
        try:
            # -P keeps the program's own folder off the path, where its modules would shadow the library's
            done = subprocess.run(
                [sys.executable, "-P", str(_PROGRAM)],
                input=asked,
                env={**os.environ, "PYTHONPATH": path},
                capture_output=True,
                encoding="utf-8",
                timeout=_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise GraderBroken(f"swebench 4.1.0 in {self._folder} took more than {_TIMEOUT_S:.0f} s") from None
        if done.returncode != 0:
            last = done.stderr.strip().rpartition("\n")[2]
            raise GraderBroken(f"swebench 4.1.0 in {self._folder} failed: {last or f'exit code {done.returncode}'}")
        return done.stdout


def _question(row: SourceRow) -> dict[str, str]:
    keys = ("instance_id", "repo", "base_commit", "test_patch")
    return {key: row.text(key) for key in keys} | {"version": row.text("version", default="")}


def _answer(row: SourceRow, answer: dict[str, str]) -> Converted | Unconvertible:
    if "because" in answer:
        return Unconvertible(answer["because"])
    converted = Converted(**answer)
    script = bare_checkout_repaired(converted.eval_script, row.text("base_commit"), row.test_files())
    return replace(converted, eval_script=script)
