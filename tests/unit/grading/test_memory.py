"""Reading the kernel's counters of cgroup v1 and v2."""

import pytest

from sandbox_server.errors import InfrastructureError
from sandbox_server.grading.memory import limit_was_hit

_V1 = "oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\noom {hits}\n"
_V2 = "low 0\nhigh 0\nmax {hits}\noom {hits}\noom_kill {kills}\noom_group_kill 0\n"


@pytest.mark.parametrize("counters", [_V1, _V2])
def test_own_limit_and_host_are_told_apart(counters: str) -> None:
    """Our host's lack of memory must never look like the policy's fault, nor the other way round."""
    assert limit_was_hit(counters.format(kills=1, hits=7)) is True
    assert limit_was_hit(counters.format(kills=0, hits=7)) is False
    with pytest.raises(InfrastructureError, match="host"):
        limit_was_hit(counters.format(kills=1, hits=0))


def test_an_engine_that_does_not_say_is_not_a_kill() -> None:
    """gVisor and others have no such files."""
    assert limit_was_hit("") is False
