"""The lines about each failed test are found in what real runners print, in time linear in the log's length."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_server.grading.excerpts import excerpts

PYTEST = """\
============================= test session starts ==============================
collected 5 items

test_a.py FF..F                                                          [100%]

=================================== FAILURES ===================================
_________________________________ TestX.test_m _________________________________

    def test_m(self):
        print("said m")
>       assert 1 == 2
E       assert 1 == 2

test_a.py:5: AssertionError
----------------------------- Captured stdout call -----------------------------
said m
_________________________________ test_p[a b] __________________________________

>       assert v == "c"
E       AssertionError: assert 'a b' == 'c'

test_a.py:8: AssertionError
==================================== PASSES ====================================
=========================== short test summary info ============================
PASSED test_a.py::test_p[c]
FAILED test_a.py::TestX::test_m - assert 1 == 2
FAILED test_a.py::test_p[a b] - AssertionError: assert 'a b' == 'c'
========================= 2 failed, 2 passed in 0.34s ==========================
"""
UNITTEST = """\
test_u (test_a.U.test_u) ... FAIL

======================================================================
FAIL: test_u (test_a.U.test_u)
----------------------------------------------------------------------
Traceback (most recent call last):
  File "test_a.py", line 11, in test_u
AssertionError: 1 != 3

======================================================================
ERROR: test_v (test_a.U.test_v)
----------------------------------------------------------------------
ZeroDivisionError: division by zero

----------------------------------------------------------------------
Ran 2 tests in 0.001s

FAILED (failures=1)
"""
GO = """\
=== RUN   TestA
=== RUN   TestA/sub
    a_test.go:3: one is not two
--- FAIL: TestA (0.00s)
    --- FAIL: TestA/sub (0.00s)
        a_test.go:3: one is not two
=== RUN   TestB
--- PASS: TestB (0.00s)
FAIL\tg\t0.002s
"""
RUST = """\
test tests::adds ... FAILED

failures:

---- tests::adds stdout ----
thread 'tests::adds' panicked at src/lib.rs:9:5:
left: 3, right: 4

failures:
    tests::adds

test result: FAILED. 0 passed; 1 failed
"""
JEST = """\
FAIL ./sum.test.js
  ● sum \u203a adds

    expect(received).toBe(expected)

    Expected: 4

Tests:       1 failed, 1 total
"""


@pytest.mark.parametrize(
    ("log", "test", "told", "not_told"),
    [
        (PYTEST, "test_a.py::TestX::test_m", ["E       assert 1 == 2", "said m", "FAILED test_a.py::TestX"], "'a b'"),
        (PYTEST, "test_a.py::test_p[a", ["E       AssertionError: assert 'a b' == 'c'"], "said m"),
        (UNITTEST, "test_u (test_a.U.test_u)", ["AssertionError: 1 != 3", "... FAIL"], "ZeroDivisionError"),
        (UNITTEST, "test_v (test_a.U.test_v)", ["ZeroDivisionError"], "Ran 2 tests"),
        (GO, "TestA/sub", ["one is not two"], "TestB"),
        (RUST, "tests::adds", ["left: 3, right: 4"], "test result"),
        (JEST, "sum \u203a adds", ["Expected: 4"], "sum.test.js"),
    ],
)
async def test_a_failed_test_has_its_own_lines(log: str, test: str, told: list[str], not_told: str) -> None:
    text = (await excerpts(log, [test]))[test]
    assert all(line in text for line in told), text
    assert not_told not in text


async def test_a_test_that_the_log_does_not_name_has_none() -> None:
    assert await excerpts(PYTEST, ["test_b.py::test_other"]) == {}
    assert await excerpts(PYTEST, []) == {}


async def test_size_is_bounded_and_the_error_at_the_end_is_kept() -> None:
    tests = [f"t.py::test_{number}" for number in range(300)]
    log = "".join(f"{'_' * 9} test_{number} {'_' * 9}\n{'x' * 9_999}\nE   wrong\n" for number in range(30))
    found = await excerpts(log, tests)
    assert 0 < len(found) <= 20
    assert all(len(text) < 1_600 and text.endswith("E   wrong") for text in found.values())


@pytest.mark.parametrize(
    "piece", ["_ ", "___ ", "--- FAIL: ", "● ", "\n", "t.py::test_1 ", "FAIL: x\n", "___ test_1 ___\n"]
)
async def test_hostile_logs_cost_no_more_than_their_length(piece: str) -> None:
    began = time.process_time()
    await excerpts(piece * (4_000_000 // len(piece)), [f"t.py::test_{number}" for number in range(20)])
    assert time.process_time() - began < 10


_LINES = st.sampled_from(["___ a ___", "FAIL: a", "--- FAIL: b", "● a b", "=====", "a is here"]) | st.text(max_size=20)


@given(st.lists(_LINES, max_size=20).map("\n".join), st.lists(st.sampled_from("ab") | st.text("ab \n", min_size=1)))
async def test_only_lines_of_the_log_are_told(log: str, tests: list[str]) -> None:
    found = await excerpts(log, tests)
    assert set(found) <= set(tests)
    lines = {*log.splitlines(), *log.split("\n")}
    assert all(set(text.split("\n")) <= lines or "\n" in test for test, text in found.items())
