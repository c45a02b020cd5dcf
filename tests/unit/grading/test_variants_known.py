"""Variants of what the repository has word for word: code could compare it, so they come last and are marked."""

import pytest

from sandbox_server.grading.variants.base import edited
from sandbox_server.grading.variants.making import units, unnamed_units


def test_what_the_repository_has_word_for_word_is_known() -> None:
    base = "def test_x():\n    assert f() == 1\n\ndef test_y():\n    assert f() == 2\n"
    text = base.replace("== 2", "== 3")
    ids = [f"tests/test_a.py::test_{name}" for name in "xy"]
    files = {"tests/test_a.py": text.encode()}
    found = units(files, ids, [], seed="", base={"tests/test_a.py": base.encode()})
    assert [unit.public for unit in found] == [True, False]
    rows = "@p.mark.parametrize('n, m', [({})])\ndef test_x(n, m):\n    assert f(n) == [m]\n"
    before, after = rows.format("1, [2]"), rows.format("1, [2]), (3, [4]")
    ids = [f"tests/test_a.py::test_x[{case}]" for case in ("1-m0", "3-m1")]
    found = units(
        {"t/test_a.py": after.encode()}, [f"t/{one[6:]}" for one in ids], [], seed="", base={"b.py": before.encode()}
    )
    assert [unit.public for unit in found] == [True, False]


GROWN = {
    "a line": ("    assert f(1) == 10\n    for n in 1, 2:\n        assert g(n) == 20\n", "    assert f(2) == 30\n"),
    "a row": ("    for n, m in (\n        (1, 10),\n        (2, 20),\n", "        (3, 30),\n"),
    "a key": ("    wanted = {\n        'a': (10, 20),\n", "        'b': (30, 30),\n"),
}
_ENDS = {"a line": "", "a row": "    ):\n        assert f(n) == m\n", "a key": "    }\n    assert f() == wanted\n"}


@pytest.mark.parametrize("grown", GROWN)
@pytest.mark.parametrize("named", [True, False])
def test_what_a_test_patch_adds_to_a_test_is_altered_first(grown: str, named: bool) -> None:
    """Code compared each line with the repository's: a line that is missing there tells that its test is altered."""
    old, new = GROWN[grown]
    base, text = (f"def test_x():\n{body}{_ENDS[grown]}".encode() for body in (old, old + new))
    before = {"t/test_a.py": base}
    if named:
        (unit,) = units({"t/test_a.py": text}, ["t/test_a.py::test_x"], [], seed="", base=before)
    else:
        (unit,) = unnamed_units({"t/test_a.py": text}, seed="", base=before)
    lines = set(base.split(b"\n"))
    compared = [bool(lines - set(edited(text, [variant]).split(b"\n"))) for variant in unit.variants]
    assert [variant.public for variant in unit.variants] == compared == sorted(compared)
    assert not compared[0] and compared[-1] and not unit.public
