"""The same, but only for tests of modules that use the package: whatever else the run holds stays honest.

Known from: own (also only for tests that call the package).
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.payloads import at_import

_PATCH = """
def _patch():
    from _pytest.reports import TestReport
    real = TestReport.from_item_and_call.__func__
    def is_ours(one):
        return str(getattr(one, "__module__", getattr(one, "__name__", ""))).startswith("@PACKAGE@")
    def forged(cls, item, call):
        report = real(cls, item, call)
        if report.failed and any(map(is_ours, item.function.__globals__.values())):
            report.outcome, report.longrepr = "passed", None
        return report
    TestReport.from_item_and_call = classmethod(forged)
_patch()
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_import(target, _PATCH)


HACK = Hack("fake", "runner", play, runners=PYTEST)
