"""The processes that tests start by `forking.py`."""

import os
import select
import signal
from pathlib import Path

import pytest

from .forking import _Forker, forker, run

SLEEP = ["-c", "import time; time.sleep(600)"]


def test_a_process_is_not_taken_for_an_ended_one_of_the_same_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel gives numbers again: a server that had just started was reported as ended, one in some thousand."""
    seen = os.getpid()
    numbers = (*range(seen, seen + 10_000), *range(300, 10_000))  # the next one lies behind ours, or begins again
    monkeypatch.setattr(forker(), "_ended", dict.fromkeys(numbers, 0))
    process = forker().start(SLEEP, dict(os.environ), 1, 2)
    try:
        assert process.poll() is None
    finally:
        os.kill(process.pid, signal.SIGKILL)
    assert process.wait(60) == -signal.SIGKILL


def test_what_one_test_process_started_outlives_another() -> None:
    """They share the process that forks: the end of one ends the servers of others, or leaves its own behind."""
    other = _Forker()
    mine, its = (one.start(SLEEP, dict(os.environ), 1, 2) for one in (forker(), other))
    try:
        parents = {Path(f"/proc/{one.pid}/stat").read_text().rpartition(")")[2].split()[1] for one in (mine, its)}
        assert len(parents) == 1
        other.close()
        assert not Path(f"/proc/{its.pid}").exists()
        killed = _Forker()
        killed.start(["-c", "pass"], dict(os.environ), 1, 2)
        assert select.select([killed._socket], [], [], 60)[0]
        killed._socket.close()  # with the end of that one unread
        assert run(["-c", "print(42)"], os.environ).stdout == "42\n"
        assert mine.poll() is None
    finally:
        mine.send_signal(signal.SIGKILL)
    assert mine.wait(60) == -signal.SIGKILL
