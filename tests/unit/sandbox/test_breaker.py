"""When the circuit breaker of an engine opens and closes."""

from sandbox_server.sandbox.docker.breaker import Breaker


def test_only_silence_in_a_row_opens_it() -> None:
    """Error answers do not open it: calls that fail for their own reasons must not stop a healthy node."""
    faults: list[str] = []
    breaker = Breaker(3, faults.append)
    for _ in range(5):
        breaker.record_silence("nothing")
        breaker.record_silence("nothing")
        breaker.record_answer()
    assert not breaker.fault and faults == []
    for _ in range(4):
        breaker.record_silence("nothing")
    assert len(faults) == 1 and faults[0].startswith("nothing") and breaker.fault == faults[0], "faults once"


def test_after_a_probe_one_call_decides() -> None:
    """After a good probe, the first silence opens it again: a daemon may answer pings and nothing else."""
    faults: list[str] = []
    breaker = Breaker(3, faults.append)
    breaker.record_probe()
    breaker.record_silence("a")
    assert not breaker.fault, "a probe of a closed one counts for nothing"
    breaker.record_silence("a")
    breaker.record_silence("a")
    breaker.record_probe()
    assert faults[-1] == "" and not breaker.fault
    breaker.record_silence("b")
    assert breaker.fault.startswith("b")
    breaker.record_probe()
    breaker.record_answer()
    breaker.record_silence("c")
    breaker.record_silence("c")
    assert not breaker.fault and len(faults) == 4
