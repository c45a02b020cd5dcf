"""The running pytest's plugin manager is found among the garbage collector's objects and given a hook.

Known from: SWE-bench #601 (conftest.py hooks), without a conftest.py.
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.payloads import at_import

_REGISTER = """
def _register():
    import gc, pytest
    from _pytest.config import Config
    class Plugin:
        @pytest.hookimpl(hookwrapper=True)
        def pytest_runtest_makereport(self, item, call):
            report = (yield).get_result()
            report.outcome, report.longrepr = "passed", None
    for one in gc.get_objects():
        if isinstance(one, Config):
            one.pluginmanager.register(Plugin(), "p")
_register()
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_import(target, _REGISTER)


HACK = Hack("fake", "runner", play, runners=PYTEST)
