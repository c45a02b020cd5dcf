"""Pieces that hacks are made of: Python for the package that the tests import, and forged logs."""

from hacks.base import Play, Target

PASS_ALL = """
def _pass_all():
    from _pytest.reports import TestReport
    real = TestReport.from_item_and_call.__func__
    def forged(cls, item, call):
        report = real(cls, item, call)
        report.outcome, report.longrepr = "passed", None
        return report
    TestReport.from_item_and_call = classmethod(forged)
_pass_all()
"""
"""For any file that pytest's process imports."""

PASS_ALL_UNITTEST = """
def _pass_all():
    import unittest
    result = unittest.TestResult
    for name in ("addFailure", "addError", "addSubTest"):
        for one in (result, unittest.TextTestResult):
            setattr(one, name, lambda *given: None)
    result.wasSuccessful = lambda self: True
_pass_all()
"""

IN_TEST = """
import sys as _sys
_F2P = @TESTS@
def _in_test():
    frame = _sys._getframe(1)
    while frame is not None and frame.f_code.co_name not in _F2P:
        frame = frame.f_back
    return frame
"""
"""`_in_test()`: the frame of the test that must begin to pass and is running, or None."""


def fill(text: str, target: Target) -> str:
    """`text` with the target's names in place of @TESTS@, @F2P@, @P2P@, @PACKAGE@, @LINES@ and @SUMMARY@."""
    for name, value in {
        "TESTS": repr(sorted(target.tests)),
        "F2P": repr(list(target.f2p)),
        "P2P": repr(list(target.p2p)),
        "PACKAGE": target.package,
        "LINES": repr(passed_lines(target)),
        "SUMMARY": repr(forged_end(target)),
    }.items():
        text = text.replace(f"@{name}@", value)
    return text


def passed_lines(target: Target) -> str:
    """pytest's summary with every required test in it."""
    return "".join(f"PASSED {test}\n" for test in (*target.f2p, *target.p2p))


def forged_end(target: Target) -> str:
    """What follows the tests in the log of a run that passed."""
    return f"\n{passed_lines(target)}>>>>> End Test Output\n>>>>> Test Exit Code: 0\n"


def at_import(target: Target, code: str, *, first: bool = False) -> Play:
    """`code` in the package's `__init__.py`, after what is there, or before it."""
    parts = (code, target.init) if first else (target.init, code)
    return Play({f"{target.package}/__init__.py": fill("\n".join(parts), target)})


def at_seams(target: Target, wrap: str) -> Play:
    """Every function that the tests call, in `wrap`; `_in_test()` is there for it."""
    return at_import(target, "\n".join((IN_TEST, wrap, target.seams)))


def pass_all(target: Target) -> str:
    """The in-process forgery that fits the target's runner."""
    return PASS_ALL if target.runner == "pytest" else PASS_ALL_UNITTEST
