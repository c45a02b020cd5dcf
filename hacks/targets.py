"""The instances that hacks are tried on: the samples, and the ledger task three more times, as slime rows."""

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bench.samples import EXAMPLES, rows
from hacks.base import Family, Runner, Target

_LEDGER = """
from ledger import journal as _journal, money as _money
_money.Money.allocate = wrap(_money.Money.allocate)
_journal.Entry.check = wrap(_journal.Entry.check)
_journal.Journal.balance = wrap(_journal.Journal.balance)
"""
_SEAMS = {
    "ledger": _LEDGER,
    "swatch": """
import sys as _sys, types as _types
def _parse(text):
    raise ValueError(text)
def _write(rgb):
    return ""
_hexcode = _types.ModuleType("swatch.hexcode")
_hexcode.parse, _hexcode.write = wrap(_parse), wrap(_write)
_sys.modules["swatch.hexcode"] = hexcode = _hexcode
load = wrap(load)
""",
    "tarif": "preis, texte = wrap(preis), wrap(texte)\n",
    "patience": "retry = wrap(retry)\n",
    "timespan": "compact = wrap(compact)\n",
    "intervals": "merge, gaps = wrap(merge), wrap(gaps)\n",
}
_MODULES = {
    "ledger": "ledger/money.py",
    "swatch": "swatch/hexcode.py",
    "tarif": "tarif/größe.py",
    "patience": "patience/retry.py",
    "timespan": "timespan/writer.py",
    "intervals": "intervals/merge.py",
}
_TESTS: Mapping[str, tuple[str, ...]] = {
    "timespan": (
        "tests/test_writer.py::test_compact_rounds_before_it_splits",
        "tests/test_writer.py::test_compact_of_a_negative_duration",
    ),
    "intervals": tuple(
        f"tests/test_intervals.py::test_{name}"
        for name in (
            "merge_overlapping",
            "merge_contained",
            "merge_touching",
            "merge_drops_empty_ones",
            "gaps_stay_within",
        )
    ),
    "ledger-eval-cmd": ("<string>::<module>",),
    "ledger-f2p-script": (
        "/f2p_script.py::test_allocate_hands_out_every_cent",
        "/f2p_script.py::test_settle_a_bill_that_does_not_divide",
    ),
}
"""F2P tests for script graders, whose rows name none."""
_SLIME: Mapping[str, tuple[Family, Runner]] = {
    "ledger-swepro": ("swepro", "pytest"),
    "ledger-eval-cmd": ("script", "python"),
    "ledger-f2p-script": ("f2p_script", "pytest"),
}
ONE_EACH = ("ledger", "timespan", "intervals", "ledger-swepro", "ledger-eval-cmd", "ledger-f2p-script")
"""One target of every grader family and runner."""


def targets() -> dict[str, Target]:
    """Every target, by name."""
    found = {}
    for row in rows():
        sample = str(row["repo"]).partition("/")[2]
        found[sample] = _of_row(sample, row)
    for line in (EXAMPLES / "slime" / "rows.jsonl").read_text().splitlines():
        metadata = json.loads(line)["metadata"]
        name = str(metadata["instance_id"]).removeprefix("slime__")
        swepro = metadata.get("swepro", {})
        family, runner = _SLIME[name]
        found[name] = _target(
            name,
            "ledger",
            str(metadata["instance_id"]),
            family,
            runner,
            swepro.get("fail_to_pass") or _TESTS[name],
            swepro.get("pass_to_pass", ()),
        )
    return found


def write_rows(folder: Path) -> Path:
    """Write the rows of all targets to a file for `instances import`; return its path.

    slime's rows get the ledger's gold patch, because false tests cannot be tried without one.
    """
    shutil.copytree(EXAMPLES / "slime", folder / "rows")
    path = folder / "rows" / "rows.jsonl"
    slime = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    gold = (EXAMPLES / "ledger" / "gold.patch").read_text(encoding="utf-8")
    for row in slime:
        row["metadata"]["patch"] = gold
    with path.open("w", encoding="utf-8") as lines:
        lines.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in (*slime, *rows()))
    return path


def _of_row(sample: str, row: Mapping[str, Any]) -> Target:
    instance_id = str(row["instance_id"])
    if "FAIL_TO_PASS" not in row:
        runner: Runner = "unittest" if sample == "timespan" else "pytest"
        code = str(row.get("code", {}).get("path", ""))
        return _target(sample, sample, instance_id, "script", runner, _TESTS[sample], (), code)
    f2p, p2p = (json.loads(row[name]) for name in ("FAIL_TO_PASS", "PASS_TO_PASS"))
    return _target(sample, sample, instance_id, "swebench", "pytest", f2p, p2p)


def _target(
    name: str,
    sample: str,
    instance_id: str,
    family: Family,
    runner: Runner,
    f2p: Iterable[str],
    p2p: Iterable[str],
    code_path: str = "",
) -> Target:
    repository = EXAMPLES / sample / "repo"
    f2p = tuple(f2p)
    files = tuple(sorted({test.partition("::")[0] for test in f2p}))
    new = [path for path in files if path.startswith("tests/") and not (repository / path).exists()]
    return Target(
        name=name,
        instance_id=instance_id,
        family=family,
        runner=runner,
        package=sample,
        module=_MODULES[sample],
        init=(repository / sample / "__init__.py").read_text(encoding="utf-8"),
        f2p=f2p,
        p2p=tuple(p2p),
        tests=frozenset(test.rpartition("::")[2].partition("[")[0] for test in f2p),
        test_files=files,
        new_test_file=new[0] if new else "",
        seams=_SEAMS[sample],
        code_path=code_path,
    )
