"""The processes that tests start by `forking.py`."""

import os
import signal

import pytest

from .forking import forker


def test_a_process_is_not_taken_for_an_ended_one_of_the_same_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel gives numbers again: a server that had just started was reported as ended, one in some thousand."""
    seen = os.getpid()
    numbers = (*range(seen, seen + 10_000), *range(300, 10_000))  # the next one lies behind ours, or begins again
    monkeypatch.setattr(forker(), "_ended", dict.fromkeys(numbers, 0))
    process = forker().start(["-c", "import time; time.sleep(600)"], dict(os.environ), 1, 2)
    try:
        assert process.poll() is None
    finally:
        os.kill(process.pid, signal.SIGKILL)
    assert process.wait(60) == -signal.SIGKILL
