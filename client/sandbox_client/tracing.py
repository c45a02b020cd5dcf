"""Passes the caller's trace on, so that the service's spans are below the caller's. OpenTelemetry is no dependency."""

from __future__ import annotations

import sys

__all__ = ["traceparent"]


def traceparent() -> str:
    """The current span of OpenTelemetry, as a header of W3C Trace Context; "" without one."""
    trace = sys.modules.get("opentelemetry.trace")  # a caller with a current span has imported it
    if trace is None:
        return ""
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
