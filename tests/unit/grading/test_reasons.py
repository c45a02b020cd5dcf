"""Why a test failed, as three runners print it."""

import pytest

from sandbox_server.grading.reasons import bare, failed_as_expected, failures, mentions

_PYTEST = """
============================= test session starts ==============================
collected 4 items

=================================== FAILURES ===================================
_________________________________ test_parse[a] ________________________________

    def test_parse(text):
>       assert f(text) == 2
E       assert 1 == 2

tests/test_a.py:4: AssertionError
______________________________ TestA.test_refuses ______________________________
tests/test_a.py:9: in test_refuses
    f(1)
E   a.errors.Mine: no

a/errors.py:3: Mine
==================================== PASSES ====================================
__________________________________ test_other __________________________________
----------------------------- Captured stdout call -----------------------------
tests/test_a.py:4: KeyError
=========================== short test summary info ============================
PASSED tests/test_a.py::test_other
FAILED tests/test_a.py::test_parse[a] - assert 1 == 2
FAILED tests/test_a.py::test_short - Failed: DID NOT RAISE <class 'ValueError'>
"""
_UNITTEST = """
test_a (tests.test_a.A.test_a) ... FAIL
======================================================================
FAIL: test_a (tests.test_a.A.test_a) [59.7]
----------------------------------------------------------------------
Traceback (most recent call last):
  File "/testbed/tests/test_a.py", line 15, in test_a
    self.assertEqual(compact(1), "x")
AssertionError: '1s' != 'x'

======================================================================
ERROR: test_b (tests.test_a.A)
The first line of what it says.
----------------------------------------------------------------------
Traceback (most recent call last):
  File "/testbed/tests/test_a.py", line 19, in test_b
    Decimal("4.x0")
decimal.InvalidOperation: [<class 'decimal.ConversionSyntax'>]

----------------------------------------------------------------------
Ran 2 tests in 0.000s
"""
_SYMPY = """
sympy/physics/units/tests/test_prefixes.py[2] F.                          [FAIL]

________________________________________________________________________________
_______ sympy/physics/units/tests/test_prefixes.py:test_prefix_operations ________
Traceback (most recent call last):
  File "/testbed/sympy/physics/units/tests/test_prefixes.py", line 20, in test_prefix_operations
    assert m * k is not S.One
AssertionError

============ tests finished: 1 passed, 1 failed, in 0.05 seconds =============
"""


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (_PYTEST, {"test_parse[a]": {"AssertionError"}, "test_refuses": {"Mine"}, "test_short": {"Failed"}}),
        (_UNITTEST, {"test_a": {"AssertionError"}, "test_b": {"InvalidOperation"}}),
        (_SYMPY, {"test_prefix_operations": {"AssertionError"}}),
        ("FAILED a.py::test_x[a b] - Failed: no\nFAILED a.py::test_y\n", {"test_x[a b]": {"Failed"}}),
        # words of an id were taken for the exception, so none of a test's alterations counted as right
        ("FAILED a.py::A::test_x[x::y - z] - Failed: no\n", {"test_x[x::y - z]": {"Failed"}}),
        ("nothing that is known", {}),
    ],
    ids=["pytest", "unittest", "sympy", "blanks", "dashes", "unknown"],
)
def test_exceptions_by_test(log: str, expected: dict[str, set[str]]) -> None:
    assert failures(log) == expected


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("tests/test_a.py::TestA::test_x[1.5-a::b]", "test_x[1.5-a::b]"),
        ("test_x (module.Class)", "test_x"),
        ("TestA.test_x", "test_x"),
        ("test_prefix", "test_prefix"),
    ],
)
def test_bare_names(name: str, short: str) -> None:
    assert bare(name) == short


_DOCTEST = """
=================================== FAILURES ===================================
____________________________ [doctest] usage.rst _____________________________
007 >>> roman(4)
Expected:
    'VI'
Got:
    'IV'

/testbed/docs/usage.rst:7: DocTestFailure
=========================== short test summary info ============================
FAILED docs/usage.rst::usage.rst
"""


def test_a_document_that_says_something_else_is_right() -> None:
    """No document of doctests was altered."""
    assert failed_as_expected(_DOCTEST, ["docs/usage.rst::usage.rst"], ())
    assert not failed_as_expected(_DOCTEST, ["docs/other.rst::other.txt"], ())


def test_only_an_assertion_is_right() -> None:
    """A variant that breaks the test itself would be met by nothing, and so would say nothing."""
    assert failed_as_expected(_PYTEST, ["tests/test_a.py::test_parse[a]"], ())
    assert failed_as_expected(_PYTEST, ["tests/test_a.py::TestA::test_refuses"], ("Mine",))
    assert not failed_as_expected(_PYTEST, ["tests/test_a.py::TestA::test_refuses"], ())
    assert not failed_as_expected(_UNITTEST, ["test_b (tests.test_a.A)"], ())
    assert not failed_as_expected(_PYTEST, ["tests/test_a.py::test_gone"], ())
    assert failed_as_expected(_PYTEST, ["test_parse"], ())  # all cases of it
    cut = _PYTEST.replace("test_parse[a]", "test_parse[a - b]")
    assert failed_as_expected(cut, ["tests/test_a.py::test_parse[a"], ()) and not failed_as_expected(
        cut, ["tests/test_a.py::test_parse[b"], ()
    )
    assert failed_as_expected("a format that is not known", ["x"], ())


@pytest.mark.parametrize(
    ("log", "told"),
    [("  \u2715 7 + 8 = 15 (2 ms)", True), ("7 + 8 = 151", False), ("--- FAIL: x/7 + 8 = 15", True), ("", False)],
)
def test_names_in_logs(log: str, told: bool) -> None:
    assert mentions(log, "7 + 8 = 15") == told
