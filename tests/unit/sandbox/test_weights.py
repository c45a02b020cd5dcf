"""Which sandboxes give way on a busy host."""

from pathlib import Path

from sandbox_server.sandbox.docker.weights import HostTime, busy


def test_those_that_compute_without_a_pause_are_busy() -> None:
    """A brief action that is taken for a busy one waits as before."""
    brief = {f"brief-{n}": 0.03 for n in range(8)}
    assert busy({**brief, "one": 1.0, "other": 0.2}, cpus=2) == {"one", "other"}
    assert busy(brief, cpus=2) == set()


def test_forty_on_two_cpus_are_busy_with_less_than_a_tenth_each() -> None:
    """Each hostile session gets less the more there are; the more they are, the less would give way."""
    many = {f"hostile-{n}": 0.05 for n in range(40)}
    assert busy({**many, "brief": 0.012, "idle": 0.0}, cpus=2) == set(many)


def test_idle_sandboxes_do_not_compete() -> None:
    """With 200 idle sessions an action of some milliseconds would count as busy."""
    idle = {f"idle-{n}": 0.001 for n in range(200)}
    assert busy({**idle, "brief": 0.03, "one": 0.9}, cpus=2) == {"one"}


def test_the_hosts_cpu_time_is_read(tmp_path: Path) -> None:
    """Time that waits for a disk is free for others; guests' time is in that of users already."""
    stat = tmp_path / "proc/stat"
    stat.parent.mkdir()
    stat.write_text("cpu  100 10 50 800 40 0 0 0 70 7\ncpu0 1 2 3 4\n")
    before = HostTime.now(root=tmp_path)
    assert before == HostTime(idle=840, all=1000)
    stat.write_text("cpu  250 10 80 810 50 0 0 0 70 7\ncpu0 1 2 3 4\n")
    assert HostTime.now(root=tmp_path).used_since(before) == 0.9
    assert before.used_since(before) == 0.0, "no time has passed"
