"""Traces, as a collector gets them: a real receiver of OTLP over HTTP, two nodes, the client with a current span."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Sent
from opentelemetry.proto.trace.v1.trace_pb2 import Status
from opentelemetry.sdk.trace import TracerProvider
from sandbox_client import SandboxClient

from .fleet import fleet
from .serving import SCRIPTED, Server, bash, until

FIX = "echo fix > note.txt"


class Collector(ThreadingHTTPServer):
    """Keeps what is sent to /v1/traces."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.spans: list[tuple[str, Sent]] = []
        """With the node that sent it."""

    def of(self, sid: str) -> list[tuple[str, Sent]]:
        """The spans of the session's trace, stages included."""
        traces = {span.trace_id for _, span in self.spans if said(span).get("sandbox.sid") == sid}
        return [(node, span) for node, span in self.spans if span.trace_id in traces]


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        asked = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
        assert isinstance(self.server, Collector) and self.path == "/v1/traces"
        for resource in asked.resource_spans:
            named = {one.key: one.value.string_value for one in resource.resource.attributes}
            assert named["service.name"] == "sandbox-server"
            for scope in resource.scope_spans:
                self.server.spans.extend((named["service.instance.id"], span) for span in scope.spans)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *words: object) -> None:
        """Be quiet."""


def said(span: Sent) -> dict[str, object]:
    """The span's attributes."""
    return {one.key: getattr(one.value, str(one.value.WhichOneof("value"))) for one in span.attributes}


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        yield collector
        collector.shutdown()


@pytest.fixture(scope="module")
def nodes(collector: Collector, rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.server_port}")
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        with fleet(tmp_path_factory.mktemp("traces"), rows, 2) as (servers, _):
            yield servers


async def test_a_rollout_is_one_trace_below_the_clients_span(nodes: list[Server], collector: Collector) -> None:
    """Holds on any node, and also if each call of the client has another current span."""
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("trainer")
    async with SandboxClient(nodes[0].url) as one, SandboxClient(nodes[1].url) as other:
        with tracer.start_as_current_span("train") as train:
            sid = await one.start(SCRIPTED)
            await one.act(sid, bash(FIX))
            with tracer.start_as_current_span("step") as step:
                await other.act(sid, bash("false"))
            with tracer.start_as_current_span("another trace", context={}) as another:
                await other.act(sid, bash("true"))
            await other.finish(sid)
            reward = await one.reward(sid)
    until(lambda: {"rollout", "grading"} <= {span.name for _, span in collector.of(sid)}, 10, "the trace")
    found = collector.of(sid)
    node = nodes[0].session(sid)["node"]
    assert {span.trace_id for _, span in found} == {train.get_span_context().trace_id.to_bytes(16, "big")}
    named = {span.name: span for _, span in found}
    root = named["rollout"]
    assert root.parent_span_id == _id(train) and said(root)["sandbox.actions"] == 3
    actions = sorted((s for _, s in found if s.name == "action"), key=lambda s: said(s)["sandbox.seq"])  # type: ignore[arg-type, return-value]
    assert [span.parent_span_id for span in actions] == [root.span_id, _id(step), root.span_id]
    assert [said(span)["sandbox.exit_code"] for span in actions] == [0, 1, 0]
    assert [[link.span_id for link in span.links] for span in actions] == [[], [], [_id(another)]]
    for name in ("start", "end", "grading"):
        assert named[name].parent_span_id == root.span_id, name
    assert {where for where, span in found if span.name in ("rollout", "start", "action", "end")} == {node}
    grading = named["grading"]
    assert said(grading)["sandbox.verdict"] == reward.verdict and not said(grading)["sandbox.shared"]
    stages = [span for _, span in found if span.parent_span_id == grading.span_id]
    assert {"queue", "apply", "tests", "store"} <= {span.name for span in stages}
    for span in stages:
        assert grading.start_time_unix_nano <= span.start_time_unix_nano + 10**7, span.name
        assert span.start_time_unix_nano <= span.end_time_unix_nano <= grading.end_time_unix_nano, span.name
    ends = [root.start_time_unix_nano, named["start"].end_time_unix_nano, actions[0].start_time_unix_nano]
    assert sorted(ends) == ends and actions[-1].end_time_unix_nano <= root.end_time_unix_nano
    assert all(node.complaints() == [] for node in nodes)


def test_a_rollout_of_a_client_without_traces_is_one_trace(nodes: list[Server], collector: Collector) -> None:
    """Spans of separate requests, and of a grading without a request, are joined by the sid."""
    sid = nodes[0].begin()
    for number in range(3):
        nodes[number % 2].run(sid, f"{FIX}; echo {number}")
    nodes[1].finish(sid)
    nodes[0].reward(sid)
    until(lambda: {"rollout", "grading"} <= {span.name for _, span in collector.of(sid)}, 10, "the trace")
    found = [span for _, span in collector.of(sid)]
    (root,) = (span for span in found if not span.parent_span_id)
    assert root.name == "rollout"
    above = {span.parent_span_id for span in found if said(span).get("sandbox.sid") and span is not root}
    assert above == {root.span_id}
    assert sorted(span.name for span in found if "sandbox.sid" in said(span)) == sorted(
        ["rollout", "start", "action", "action", "action", "end", "grading"]
    )


def test_a_failed_start_is_a_span_with_its_reason(nodes: list[Server], collector: Collector) -> None:
    """A trainer's trace would otherwise just end."""
    trace_id, above = "ab" * 16, "cd" * 8
    refused = nodes[0].post(
        "/start_instance", {"instance_hash": "samples__absent-1"}, headers={"traceparent": f"00-{trace_id}-{above}-01"}
    )
    assert refused.status_code == 503, refused.text

    def failed() -> list[Sent]:
        return [span for _, span in collector.spans if span.trace_id.hex() == trace_id]

    until(failed, 10, "the span")
    (span,) = failed()
    assert (span.name, span.parent_span_id.hex()) == ("start", above)
    assert span.status.code == Status.STATUS_CODE_ERROR and span.status.message == refused.json()["code"]


def _id(span: object) -> bytes:
    return span.get_span_context().span_id.to_bytes(8, "big")  # type: ignore[attr-defined, no-any-return]
