"""Prints docs/metrics.md: every metric of `/metrics`, from the declarations (`make metrics`)."""

from prometheus_client.metrics import MetricWrapperBase

from sandbox_server import telemetry

_HEAD = """\
# Metrics

`GET /metrics` of each node, in Prometheus's text format. Made by `make metrics` from `sandbox_server/telemetry.py`. A
histogram has `_bucket`, `_sum` and `_count`. The Python process's own metrics (`process_`, `python_`) are exported too.

| metric | type | labels | what |
|---|---|---|---|
"""


def markdown() -> str:
    """The document, in the order of the declarations."""
    rows = []
    for metric in vars(telemetry).values():
        if isinstance(metric, MetricWrapperBase):
            (described,) = metric.describe()
            name = f"{described.name}_total" if described.type == "counter" else described.name
            labels = ", ".join(f"`{label}`" for label in metric._labelnames)  # there is no public name for this
            rows.append(f"| `{name}` | {described.type} | {labels} | {described.documentation} |\n")
    return _HEAD + "".join(rows)


if __name__ == "__main__":
    print(markdown(), end="")
