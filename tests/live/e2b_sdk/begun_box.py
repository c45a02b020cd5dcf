"""What the checks of `checks.py` and `file_checks.py` share."""

import os
import time

from e2b import Sandbox

MIB = 1 << 20
WHOLE = not os.environ.get("SMALL_AMOUNTS")
"""Whether the largest amounts are tried: what the server does with them is the same for each release."""


def begin(**options):
    return Sandbox.create("base", timeout=300, **options)


def raises(kinds, call):
    """The exception that `call` raises, which must be one of `kinds`."""
    try:
        found = call()
    except kinds as error:
        return error
    raise AssertionError(f"{kinds} not raised, but {found!r} returned")


def wait_for(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "not within a minute"
        time.sleep(0.1)


def running(box, wanted):
    """Number of processes in the box with exactly this command line."""
    return box.commands.run("ps -eo args").stdout.splitlines().count(wanted)
