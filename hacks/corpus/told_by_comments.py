"""Failing tests are forged unless a comment or message in the test names a number that it does not expect.

Known from: own (what a test says beside its expectation gives an altered one away).
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.corpus._coin import coin

_HELPERS = """
def _agree(item):
    import inspect, re
    for line in inspect.getsource(item.function).splitlines():
        code, _, said = line.partition("#")
        numbers = re.findall(r"[0-9]+", said)
        if numbers and not set(numbers) & set(re.findall(r"[0-9]+", code)):
            return False
    return True
"""


def play(target: Target) -> Play:
    """See the module."""
    return coin(target, "_agree(item)", _HELPERS)


HACK = Hack("fake", "guess", play, runners=PYTEST)
