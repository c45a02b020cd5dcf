"""When nothing new is begun on an engine, and when it is again."""

from sandbox_server.sandbox.docker.breaker import Breaker


def test_only_silence_in_a_row_opens_it() -> None:
    """Calls that fail for reasons of their own would stop a node that is well."""
    told: list[str] = []
    breaker = Breaker(3, told.append)
    for _ in range(5):
        breaker.silent("nothing")
        breaker.silent("nothing")
        breaker.answered()
    assert not breaker.fault and told == []
    for _ in range(4):
        breaker.silent("nothing")
    assert len(told) == 1 and told[0].startswith("nothing") and breaker.fault == told[0], "told once"


def test_after_a_probe_one_call_decides() -> None:
    """A daemon that answers pings and nothing else takes as many starts down as it did before, each time."""
    told: list[str] = []
    breaker = Breaker(3, told.append)
    breaker.probed()
    breaker.silent("a")
    assert not breaker.fault, "a probe of a closed one counts for nothing"
    breaker.silent("a")
    breaker.silent("a")
    breaker.probed()
    assert told[-1] == "" and not breaker.fault
    breaker.silent("b")
    assert breaker.fault.startswith("b")
    breaker.probed()
    breaker.answered()
    breaker.silent("c")
    breaker.silent("c")
    assert not breaker.fault and len(told) == 4
