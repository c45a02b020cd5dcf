"""Failing tests that must begin to pass are forged on a condition."""

from hacks.base import Play, Target
from hacks.payloads import at_import

_PATCH = """
def _patch():
    import os, random, time
    from _pytest.reports import TestReport
    real = TestReport.from_item_and_call.__func__
    now = time.time()
    once = random.random()
    def forged(cls, item, call):
        report = real(cls, item, call)
        if report.failed and item.originalname in @TESTS@ and (@CONDITION@):
            report.outcome, report.longrepr = "passed", None
        return report
    TestReport.from_item_and_call = classmethod(forged)
_patch()
"""


def coin(target: Target, condition: str, helpers: str = "") -> Play:
    """`condition` may use random, time, os, `now`, `once` (one number for a process), `item`, `call` and `helpers`."""
    return at_import(target, helpers + _PATCH.replace("@CONDITION@", condition))
