"""Variants of the tests of real rows, rebuilt from what their test patches show."""

import ast
import json
import textwrap
from collections.abc import Mapping
from pathlib import Path

import pytest
from unidiff.patch import PatchSet

from sandbox_server.grading.variants.making import units

REAL_ROWS = Path(__file__).parents[4] / "shared" / "swebench_rows.jsonl"


@pytest.mark.skipif(not REAL_ROWS.exists(), reason="the benchmark's rows are not here")
def test_the_tests_of_real_rows_get_variants() -> None:
    covered, missing = 0, []
    for line in REAL_ROWS.read_text().splitlines():
        row = json.loads(line)
        tests = _names(row["FAIL_TO_PASS"])
        found = units(_from_patch(row), tests, _names(row["PASS_TO_PASS"]), seed=row["instance_id"])
        with_one = {test for unit in found if unit.variants for test in unit.tests}
        covered += len(with_one)
        missing += sorted(set(tests) - with_one)
    # of this one the patch shows no assertion
    assert {name.partition("[")[0] for name in missing} == {"xarray/tests/test_groupby.py::test_groupby_repr"}
    assert (covered, len(missing)) == (15, 8)


def _names(value: object) -> list[str]:
    return json.loads(value) if isinstance(value, str) else list(value)  # type: ignore[call-overload]


def _from_patch(row: Mapping[str, str]) -> dict[str, bytes]:
    """The functions that the test patch shows, as files."""
    owners = {name.split("::")[-1].split("[")[0]: name.split("::")[1:-1] for name in _names(row["FAIL_TO_PASS"])}
    for name in _names(row["FAIL_TO_PASS"]):
        if " (" in name:
            owners[name.split(" ")[0]] = [name.rstrip(")").split(".")[-1]]
    files = {}
    for file in PatchSet(row["test_patch"]):
        text = ""
        for hunk in file:
            shown = [line.value for line in hunk if not line.is_removed]
            for name, owner in owners.items():
                text += _function(name, owner, [hunk.section_header + "\n", *shown])
        files[file.path] = text.encode()
    return files


def _function(name: str, owner: list[str], shown: list[str]) -> str:
    begin = next((at for at, line in enumerate(shown) if line.strip().startswith(f"def {name}(")), None)
    if begin is None:
        return ""
    depth = len(shown[begin]) - len(shown[begin].lstrip()) if begin else 4 * bool(owner)
    above = begin
    while above and shown[above - 1].strip():
        above -= 1
    if not shown[above].lstrip().startswith("@"):
        above = begin
    end = begin + 1
    while end < len(shown) and (not (line := shown[end]).strip() or line[depth] in " )"):
        end += 1
    body = textwrap.dedent("".join(shown[begin + 1 : end]))
    if body.count('"""') % 2:
        body = '"""' + body
    head = shown[begin].strip()
    if head.endswith("("):  # its arguments are on separate lines
        head, body = f"def {name}():", textwrap.dedent("".join(shown[begin + 3 : end]))
    text = textwrap.dedent("".join(shown[above:begin])) + head + "\n" + textwrap.indent(body, "    ")
    while text.count("\n") > 1:
        try:
            ast.parse(text)
        except SyntaxError:  # the hunk ends within a statement
            text = text[: text.rindex("\n", 0, -1) + 1]
            continue
        break
    else:
        return ""
    return f"class {owner[0]}:\n{textwrap.indent(text, '    ')}\n" if owner else text + "\n"
