"""Traces are off, and cost no import, unless the standard variables turn them on."""

import subprocess
import sys

import pytest

from sandbox_server import traces

URL = "http://collector:4318"


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        ({"OTEL_SERVICE_NAME": "x", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": URL}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": URL}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": URL}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": URL, "OTEL_SDK_DISABLED": "True"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": URL, "OTEL_TRACES_EXPORTER": "none"}, False),
    ],
)
def test_the_standard_variables_decide(environ: dict[str, str], wanted: bool) -> None:
    assert traces.wanted(environ) is wanted


def test_a_server_without_traces_does_not_load_opentelemetry() -> None:
    """Neither the SDK of traces nor the exporter. (FastAPI and redis-py load the API by themselves if it is there.)"""
    code = (
        "import sys, sandbox_server.cli.serve, sandbox_server.app.build, sandbox_client\n"
        "ours = ('opentelemetry.sdk.trace.export', 'opentelemetry.exporter', 'sandbox_server.traces.otlp')\n"
        "print([name for name in sys.modules if name.startswith(ours)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"


def test_stages_stand_in_a_row() -> None:
    spans = traces.consecutive_spans({"apply": 1.0, "tests": 2.5}, 10.0)
    assert [(span.name, span.began, span.ended) for span in spans] == [("apply", 6.5, 7.5), ("tests", 7.5, 10.0)]
