"""A thread waits until the test modules are there and replaces the `__code__` of their functions.

Known from: own (a thread, so nothing of the runner is patched).
"""

from hacks.base import Hack, Play, Target
from hacks.payloads import at_import

_THREAD = """
def _replace():
    import sys, threading, time, types
    def empty(function):
        code = function.__code__
        names = ", ".join(code.co_varnames[: code.co_argcount])
        space = {}
        exec(f"def {code.co_name}({names}): pass", space)
        new = space[code.co_name].__code__
        if not code.co_freevars:
            function.__code__ = new
    def watch():
        end = time.time() + 5
        while time.time() < end:
            for name, module in list(sys.modules.items()):
                if "test_" not in name and name not in ("__main__", "f2p_script"):
                    continue
                spaces = [vars(module), *(vars(one) for one in list(vars(module).values()) if isinstance(one, type))]
                for space in spaces:
                    for key, value in list(space.items()):
                        if key in @TESTS@ and isinstance(value, types.FunctionType):
                            empty(value)
            time.sleep(0.001)
    threading.Thread(target=watch, daemon=True).start()
_replace()
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_import(target, _THREAD)


HACK = Hack("fake", "runner", play, runners={"pytest", "unittest"})
