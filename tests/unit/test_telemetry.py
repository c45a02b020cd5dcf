"""Metrics: values that clients choose as labels are limited, and histograms are counted by their buckets."""

from prometheus_client import REGISTRY, CollectorRegistry, Histogram

from sandbox_server.telemetry import count_from, show_runs


def shown() -> dict[tuple[str, str], float]:
    samples = [s for metric in REGISTRY.collect() if metric.name == "sandbox_run_starts" for s in metric.samples]
    return {(sample.labels["run"], sample.labels["state"]): sample.value for sample in samples}


def test_runs_are_bounded() -> None:
    """A client that invents run names adds a series for each one, without bound."""
    show_runs({f"run-{number}": 100 - number for number in range(50)}, {"run-49": 3, "run-0": 7})
    series = shown()
    assert len(series) == 42 and series["run-0", "held"] == 100 and series["run-0", "waiting"] == 7
    assert series["(other)", "held"] == sum(100 - number for number in range(20, 50))
    assert series["(other)", "waiting"] == 3
    show_runs({"a": 1}, {})
    assert shown() == {("a", "held"): 1, ("a", "waiting"): 0}
    show_runs({}, {})
    assert shown() == {}


def test_values_above_a_bucket_are_counted() -> None:
    late = Histogram("late_seconds", "for this test", ["cause"], buckets=(0.05, 0.25, 1), registry=CollectorRegistry())
    assert count_from(late, 0.25) == 0
    for cause, seconds in (("busy", 0.01), ("busy", 0.3), ("blocked", 7), ("blocked", 0.25)):
        late.labels(cause).observe(seconds)
    assert count_from(late, 0.25) == 2
