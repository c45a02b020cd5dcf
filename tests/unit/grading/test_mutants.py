"""Faults and stubs of Python source: always valid, always on the lines that were asked for."""

import ast

from hypothesis import given
from hypothesis import strategies as st

from sandbox_server.catalogue.instance import SandboxSpec, TaskInstance
from sandbox_server.grading.mutants import mutants, stubs
from sandbox_server.grading.stubbing import limited

_SOURCE = b'''import os

LIMIT = 3


def split(total, parts):
    """Parts of it."""
    if parts <= 0 or total is None:
        raise SplitError("no parts")
    each = total // parts
    log(each)
    return [each + 1] * parts


class Bill:
    @property
    def share(self): return self.total / 2
'''


def test_faults_are_small_and_on_the_lines() -> None:
    found = mutants(_SOURCE, {8, 9, 10, 11, 12}, most=100, seed="s")
    assert {mutant.line for mutant in found} == {8, 9, 10, 11, 12}
    said = {mutant.what for mutant in found}
    assert "<= -> <" in said and "or -> and" in said and "// -> /" in said and "log(each) -> pass" in said
    for mutant in found:
        ast.parse(mutant.text)
        assert mutant.text != _SOURCE
    assert mutants(_SOURCE, {3}, most=100, seed="s")[0].what == "3 -> 4"


def test_the_same_seed_gives_the_same_faults() -> None:
    """A certificate that is made again must say the same."""
    assert mutants(_SOURCE, range(1, 20), most=3, seed="a") == mutants(_SOURCE, range(1, 20), most=3, seed="a")
    assert len(mutants(_SOURCE, range(1, 20), most=3, seed="a")) == 3


def test_stubs_of_what_was_changed() -> None:
    """A stub that raises what the fix raises passes the test that wants just that."""
    gold = _SOURCE.replace(b"total // parts", b"total / parts") + b"\n\ndef join(parts):\n    return sum(parts)\n"
    found = stubs(_SOURCE, gold, {10}, {10, 20, 21})
    assert list(found) == ["return None", "raise ValueError", "raise SplitError"]
    assert b"    raise ValueError\n\n\nclass Bill" in found["raise ValueError"]
    assert found["raise ValueError"].endswith(b"def join(*args, **kwargs):\n    raise ValueError\n")
    assert b"LIMIT = 3" in found["raise ValueError"] and b"sum" not in found["raise ValueError"]
    assert b"def share(self): return None\n" in stubs(_SOURCE, _SOURCE, {17}, {17})["return None"]
    assert stubs(_SOURCE, _SOURCE, {3}, {3}) == {}, "no function is changed"


def test_a_new_file_of_functions_has_stubs_too() -> None:
    """A module whose functions only raise earned 0.545 of a fix that added it."""
    assert stubs(b"", b"import re\n\n\ndef parse(text):\n    return re.match('x', text)\n", (), range(1, 6)) == {
        "return None": b"\n\ndef parse(*args, **kwargs):\n    return None\n",
        "raise ValueError": b"\n\ndef parse(*args, **kwargs):\n    raise ValueError\n",
    }


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode), st.sets(st.integers(0, 9)))
def test_nothing_raises(text: bytes, lines: set[int]) -> None:
    """Gold patches hold files of every kind."""
    mutants(text, lines, most=5, seed="s")
    stubs(text, text[::-1], lines, lines)
    stubs(b"", text, lines, lines)


def test_faulty_code_has_five_times_golds_time_and_30_s_at_least() -> None:
    """A fault that loops would run for the row's whole limit; one of a quick suite would be killed by a busy host."""
    instance = TaskInstance(
        instance_id="a-1", repo="a/b", sandbox=SandboxSpec(images=("i",)), ungradable_because="x", eval_timeout_s=600
    )
    limits = [limited(instance, slowest_s).eval_timeout_s for slowest_s in (1, 10, 1000)]
    assert limits == [30, 50, 600]
