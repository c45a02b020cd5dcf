"""Traces of rollouts (OpenTelemetry). Off, and without an import of its SDK, unless OTEL_ variables turn them on.

One rollout is one trace. Its root span, `rollout`, has ids that follow from the sid and from the `traceparent` of the
start, which the session's record keeps; so every node can add spans without asking another one. Spans are written when
they are over. `otlp.py` sends them.
"""

import asyncio
import importlib
import importlib.util
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol

from sandbox_server import clock, telemetry
from sandbox_server.records import SessionRecord

log = telemetry.logger(__name__)

Value = str | int | float | bool

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_ON_HTTP = "http/protobuf"


@dataclass(frozen=True, slots=True)
class Span:
    """One finished span."""

    name: str
    began: float
    """Unix seconds, as `clock.now`."""
    ended: float
    attributes: Mapping[str, Value] = field(default_factory=dict)
    error: str = ""
    """Why it failed; "" if it did not."""
    stages: tuple["Span", ...] = ()
    """Its children."""


class Tracer(Protocol):
    """Sends spans. No method waits or raises."""

    def root(self, session: SessionRecord, span: Span) -> None:
        """The span of the whole rollout."""
        ...

    def child(self, session: SessionRecord, span: Span, client: str) -> None:
        """A span of the rollout. `client`: the request's traceparent, or ""."""
        ...

    def alone(self, span: Span, client: str) -> None:
        """A span that belongs to no session."""
        ...

    def close(self) -> None:
        """Send what is left. Blocks, at most for OTEL_EXPORTER_OTLP_TIMEOUT."""
        ...


_CLIENT: ContextVar[str] = ContextVar("traceparent", default="")
_tracer: Tracer | None = None


def wanted(environ: Mapping[str, str]) -> bool:
    """Whether the standard variables turn traces on."""
    return (
        any(environ.get(name, "").strip() for name in ENDPOINTS)
        and environ.get("OTEL_SDK_DISABLED", "").strip().lower() != "true"
        and environ.get("OTEL_TRACES_EXPORTER", "").strip().lower() in ("", "otlp")
    )


@asynccontextmanager
async def sending(environ: Mapping[str, str], *, node: str, version: str) -> AsyncIterator[None]:
    """Send traces during the block if they are wanted. If they cannot be sent, a log line says why."""
    global _tracer
    if not wanted(environ):
        yield
        return
    if importlib.util.find_spec("opentelemetry") is None or importlib.util.find_spec("opentelemetry.sdk") is None:
        log.error("no traces: OpenTelemetry is not installed; pip install 'sandbox-server[otel]', or unset OTEL_ names")
        yield
        return
    protocol = environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    if protocol not in (None, "", _ON_HTTP):
        log.warning("traces are sent by http/protobuf, whatever OTEL_EXPORTER_OTLP_PROTOCOL says", asked=protocol)
    # imported here, so that a server without traces does not load OpenTelemetry
    tracer: Tracer = importlib.import_module("sandbox_server.traces.otlp").Otlp(environ, node=node, version=version)
    _tracer = tracer
    try:
        yield
    finally:
        _tracer = None
        await asyncio.to_thread(tracer.close)


def is_enabled() -> bool:
    """Whether traces are sent. Ask before computing a span's attributes."""
    return _tracer is not None


def note_traceparent(traceparent: str) -> None:
    """Note the `traceparent` of the request that this task answers."""
    _CLIENT.set(traceparent)


def client() -> str:
    """The `traceparent` of the request that this task, or the task that began it, answers; "" without one."""
    return _CLIENT.get()


def span(session: SessionRecord, given: Span, *, asked: bool = True) -> None:
    """Add a span to the rollout's trace. `asked`: the request under way is its cause. Boxes have no traces."""
    if _tracer is not None and session.kind.is_rollout:
        _tracer.child(session, given, client() if asked else "")


def rollout(session: SessionRecord) -> None:
    """Add the root span of a session that is over."""
    if _tracer is None or not session.kind.is_rollout:
        return
    attributes: dict[str, Value] = {
        "sandbox.end_reason": session.end_reason,
        "sandbox.actions": session.actions,
        "sandbox.restores": session.restores,
    }
    ended = session.ended_at or clock.now()
    _tracer.root(session, Span("rollout", _arrived(session), ended, attributes, error=session.cause))


def start(session: SessionRecord) -> None:
    """Add the span of a start that has succeeded."""
    seconds = {name: taken_s for name, taken_s in session.timings_s.items() if name.startswith("start_")}
    span(session, Span("start", _arrived(session), clock.now(), in_seconds(seconds)), asked=False)


def failed_start(instance_id: str, run: str, *, began: float, error: str) -> None:
    """Add the span of a start that gave no session."""
    if _tracer is not None:
        attributes: dict[str, Value] = {"sandbox.instance_id": instance_id, "sandbox.run": run}
        _tracer.alone(Span("start", began, clock.now(), attributes, error=error), client())


def in_seconds(timings_s: Mapping[str, float]) -> dict[str, Value]:
    """Stages as attributes of a span."""
    return {f"sandbox.{name}_s": round(taken_s, 6) for name, taken_s in timings_s.items()}


def consecutive_spans(timings_s: Mapping[str, float], ended: float) -> tuple[Span, ...]:
    """Stages as consecutive spans; the last one ends at `ended` (Unix seconds)."""
    spans = []
    for name, taken_s in reversed(list(timings_s.items())):
        spans.append(Span(name, ended - taken_s, ended))
        ended -= taken_s
    return tuple(reversed(spans))


def _arrived(session: SessionRecord) -> float:
    """Unix seconds when its start arrived: `created_at` minus the durations of the start's stages."""
    waited = (session.timings_s.get(f"start_{stage}", 0.0) for stage in ("queue", "prepare", "container"))
    return session.created_at - sum(waited)
