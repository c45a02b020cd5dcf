"""The session filter in a list's query. Not a plugin, hence the underscore."""

from typing import Annotated

from fastapi import Query, Request

from sandbox_server.catalogue.insight.records import SessionFilter, SessionWithVerdict
from sandbox_server.lifecycle import SessionState
from sandbox_server.protocols._caller import owner_of_caller
from sandbox_server.verdicts import VerdictName

_TEXT = "^[^\\x00]*$"
CURSOR = "^[0-9]{1,12}(\\.[0-9]{1,9})?:[0-9]{1,19}$"

Run = Annotated[str | None, Query(max_length=100, pattern=_TEXT)]
InstanceId = Annotated[str | None, Query(max_length=400, pattern=_TEXT)]
Since = Annotated[float | None, Query(ge=0, le=1e12)]


def wanted_sessions(
    request: Request,
    state: SessionState | None = None,
    run: Run = None,
    instance: InstanceId = None,
    verdict: VerdictName | None = None,
    masked: bool | None = None,
    node: Annotated[str | None, Query(max_length=300, pattern=_TEXT)] = None,
    since: Since = None,
    before: Annotated[str | None, Query(pattern=CURSOR)] = None,
) -> SessionFilter:
    """The filter in a request's query; for a tenant's key, only its own sessions."""
    at, _, sid = (before or "").partition(":")
    return SessionFilter(
        state=state,
        run=run,
        instance=instance,
        verdict=verdict,
        masked=masked,
        node=node,
        owner=owner_of_caller(request),
        since=since,
        before=(float(at), sid) if before else None,
    )


def cursor(last: SessionWithVerdict) -> str:
    """The value of `before` that requests the page after this session."""
    return f"{last.record.created_at!r}:{last.record.sid}"
