"""When a box is running, paused, or ended."""

from dataclasses import replace

import pytest

from sandbox_server import clock
from sandbox_server.boxes.view import BoxView
from sandbox_server.records import BoxRecord, OnTimeout, SessionRecord

BOX = BoxRecord(
    sid="7",
    kind="e2b",
    image="image:1",
    template="base",
    metadata={},
    env={},
    user="root",
    token="secret",
    network="bridge",
    cpus=1.0,
    memory_mb=2048,
    disk_mb=10,
    last_s=0.0,
    on_timeout=OnTimeout.PAUSE,
    pausable_s=50.0,
)


@pytest.mark.parametrize(
    ("ends_in_s", "last_in_s", "changes", "live", "paused"),
    [
        (10, 100, {}, True, False),
        (-10, 100, {}, True, True),  # its end was a pause, which the reaper has not made yet
        (-10, 100, {"on_timeout": OnTimeout.KILL}, False, False),
        (-60, 100, {}, False, False),  # the pause would be over too
        (-10, 100, {"pausable_s": 0.0}, False, False),  # it was paused for as long as it may be
        (-10, -10, {}, False, False),  # the longest life of a box: it could never run again
        (10, -10, {"paused_at": 1.0}, True, True),
        (-1, 100, {"paused_at": 1.0}, False, False),
    ],
)
def test_what_a_box_is(ends_in_s: int, last_in_s: int, changes: dict, live: bool, paused: bool) -> None:
    """A box is not reported as running when it has ended, nor as paused when it cannot be resumed."""
    now = clock.now()
    record = SessionRecord("7", "live", "", "n1", "c0ffee", now - 1000, now - 1000, now + ends_in_s)
    view = BoxView(record, replace(BOX, last_s=now + last_in_s, **changes))
    assert (view.live, view.paused) == (live, paused)
    over = BoxView(replace(record, state="ended"), view.box)
    assert not over.live and not over.paused
