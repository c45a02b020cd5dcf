"""When a box counts as idle."""

from contextvars import copy_context

from sandbox_server import clock
from sandbox_server.boxes.use import BoxUse


def test_a_request_is_use_until_its_end():
    """A command that is followed for an hour sends no second request."""
    use = BoxUse(idle_s=10)
    later = clock.now() + 1000
    with use.request():
        use.note("7")
        use.note("7")
        assert not use.idle("7", 0, later)
        with use.request():  # another one into the same box ends first
            use.note("7")
        assert not use.idle("7", 0, later)
        assert use.idle("8", 0, later)
    assert use.idle("7", 0, later) and not use.idle("7", later - 1, later)


def test_a_task_that_outlives_its_request_holds_nothing():
    """Else a box that it looks at later would never be idle."""
    use = BoxUse(idle_s=10)
    with use.request():
        outliving = copy_context()
    outliving.run(use.note, "7")
    assert use.idle("7", 0, clock.now() + 1000)


def test_nothing_is_idle_at_once_after_a_restart_or_without_a_limit():
    """A server that knows of no use yet must not end all boxes; without the setting none ends."""
    assert not BoxUse(idle_s=10).idle("7", 0, clock.now())
    assert not BoxUse(idle_s=0).idle("7", 0, clock.now() + 1e9)


def test_boxes_that_have_ended_are_forgotten():
    """Else each box that ever was would take memory."""
    use = BoxUse(idle_s=10)
    use.note("7")
    use.note("8")
    use.keep(["8"])
    at = clock.now() + 5
    use._since = 0.0
    assert use.idle("7", 0, at) and not use.idle("8", 0, at)
