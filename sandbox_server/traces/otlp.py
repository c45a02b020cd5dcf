"""Sends spans by OTLP over HTTP, with OpenTelemetry's SDK, which reads the OTEL_ variables itself."""

import hashlib
from collections.abc import Mapping
from contextvars import ContextVar

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from sandbox_server.records import SessionRecord
from sandbox_server.traces import Span, Value

_NONE = Context()
_PROPAGATOR = TraceContextTextMapPropagator()
_LONGEST_ERROR = 500
_FORCED: ContextVar[SpanContext | None] = ContextVar("forced", default=None)


class _Ids(RandomIdGenerator):
    """Random ids, except those of the span that is being forced."""

    def generate_span_id(self) -> int:
        forced = _FORCED.get()
        return super().generate_span_id() if forced is None else forced.span_id

    def generate_trace_id(self) -> int:
        forced = _FORCED.get()
        return super().generate_trace_id() if forced is None else forced.trace_id


class Otlp:
    """Implements `traces.Tracer`. Spans are queued in memory (OTEL_BSP_MAX_QUEUE_SIZE) and sent by a thread."""

    def __init__(self, environ: Mapping[str, str], *, node: str, version: str) -> None:
        named = environ.get("OTEL_SERVICE_NAME") or "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
        name: dict[str, str] = {} if named else {SERVICE_NAME: "sandbox-server"}
        resource = Resource.create({SERVICE_INSTANCE_ID: node, SERVICE_VERSION: version, **name})
        # closed by `close`, within the server's life, not at the interpreter's exit
        self._provider = TracerProvider(resource=resource, id_generator=_Ids(), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("sandbox_server", version)

    def root(self, session: SessionRecord, span: Span) -> None:
        """See `Tracer.root`."""
        client = _parsed(session.traceparent)
        forced = _FORCED.set(self._root_of(session))
        try:
            self._write(span, client, _facts(session))
        finally:
            _FORCED.reset(forced)

    def child(self, session: SessionRecord, span: Span, client: str) -> None:
        """See `Tracer.child`.

        Its parent is the client's span if that belongs to the rollout's trace, else the root; a client's span of
        another trace is linked.
        """
        parent = self._root_of(session)
        links = []
        if client and client != session.traceparent and (asked := _parsed(client)) is not None:
            if asked.trace_id == parent.trace_id:
                parent = asked
            else:
                links = [Link(asked)]
        self._write(span, parent, _facts(session), links)

    def alone(self, span: Span, client: str) -> None:
        """See `Tracer.alone`."""
        self._write(span, _parsed(client), {})

    def close(self) -> None:
        """See `Tracer.close`."""
        self._provider.shutdown()

    def _write(
        self, span: Span, parent: SpanContext | None, facts: Mapping[str, Value], links: list[Link] | None = None
    ) -> None:
        within = _NONE if parent is None else trace.set_span_in_context(NonRecordingSpan(parent), _NONE)
        written = self._tracer.start_span(
            span.name,
            within,
            SpanKind.INTERNAL,
            {**facts, **span.attributes},
            links,
            start_time=_ns(span.began),
        )
        if span.error:
            written.set_status(Status(StatusCode.ERROR, span.error[:_LONGEST_ERROR]))
        for stage in span.stages:
            self._write(stage, written.get_span_context(), {})
        written.end(_ns(span.ended))

    def _root_of(self, session: SessionRecord) -> SpanContext:
        """The context of the rollout's root, the same on every node."""
        client = _parsed(session.traceparent)
        digest = hashlib.sha256(session.sid.encode()).digest()
        trace_id = int.from_bytes(digest[:16]) if client is None else client.trace_id
        if client is None:
            decision = self._provider.sampler.should_sample(None, trace_id, "rollout").decision
            sampled = decision is Decision.RECORD_AND_SAMPLE
            flags = TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT)
        else:
            flags = client.trace_flags
        return SpanContext(trace_id, int.from_bytes(digest[16:24]), is_remote=True, trace_flags=flags)


def _parsed(traceparent: str) -> SpanContext | None:
    """The span that a `traceparent` names; None if it names none."""
    found = trace.get_current_span(_PROPAGATOR.extract({"traceparent": traceparent}, _NONE)).get_span_context()
    return found if found.is_valid else None


def _facts(session: SessionRecord) -> dict[str, Value]:
    return {
        "sandbox.sid": session.sid,
        "sandbox.instance_id": session.instance_id,
        "sandbox.run": session.run,
        "sandbox.node": session.node,
    }


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
