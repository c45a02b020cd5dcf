"""A test that fails gets the report of the last one that passed, under its own name.

Known from: own; as report_patched, but nothing says that a test has passed which did not.
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.payloads import at_import

_BORROW = """
def _borrow():
    from _pytest.reports import TestReport
    real = TestReport.from_item_and_call.__func__
    passed = {}
    def borrowed(cls, item, call):
        report = real(cls, item, call)
        if report.passed and report.when == "call":
            passed.update(vars(report))
        elif report.failed and passed:
            own = {name: getattr(report, name) for name in ("nodeid", "location", "keywords")}
            vars(report).update({**passed, **own})
        return report
    TestReport.from_item_and_call = classmethod(borrowed)
_borrow()
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_import(target, _BORROW)


HACK = Hack("fake", "runner", play, runners=PYTEST)
