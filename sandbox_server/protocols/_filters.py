"""Which sessions a list is to have, as a query says it. No plugin: its name begins with an underscore."""

from typing import Annotated

from fastapi import Query, Request

from sandbox_server.catalogue.insight.records import Seen, SessionFilter
from sandbox_server.lifecycle import SessionState
from sandbox_server.protocols._caller import owner_of_caller
from sandbox_server.records import VerdictName

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
    """The filter of a request's query; with a tenant's key its own alone."""
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


def cursor(last: Seen) -> str:
    """`before` of the page past this session."""
    return f"{last.record.created_at!r}:{last.record.sid}"
