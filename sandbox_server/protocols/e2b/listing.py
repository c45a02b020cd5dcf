"""Lists of sandboxes: filters, order and pages, from the query that E2B's clients send. Pure."""

import base64
import binascii
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import parse_qsl, unquote

from starlette.datastructures import QueryParams

from sandbox_server.boxes.boxes import BoxView
from sandbox_server.catalogue.snapshots import Snapshot
from sandbox_server.errors import MalformedRequest
from sandbox_server.protocols._numbers import whole
from sandbox_server.protocols.e2b.wire import state, when

NEXT = "x-next-token"
_LIMIT, _MOST = 100, 1000


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list."""

    views: Sequence[BoxView]
    next: str | None
    """Token for the next page; None: this is the last one."""


def page(views: Sequence[BoxView], query: QueryParams) -> Page:
    """The page of `views` (all running or paused boxes) that the query requests. Raises MalformedRequest."""
    ascending = query.get("order", "desc") == "asc"
    found = sorted(filtered(views, query), key=BoxView.order, reverse=not ascending)
    if token := query.get("nextToken"):
        last = _position(token)
        found = [view for view in found if (view.order() > last if ascending else view.order() < last)]
    limit = _limit(query.get("limit", ""))
    more = len(found) > limit
    return Page(found[:limit], _token(found[limit - 1].order()) if more else None)


@dataclass(frozen=True, slots=True)
class SnapshotPage:
    """One page of a list of snapshots."""

    items: Sequence[Snapshot]
    next: str | None
    """Token for the next page; None: this is the last one."""


def snapshot_page(snapshots: Sequence[Snapshot], query: QueryParams) -> SnapshotPage:
    """The page of `snapshots` (newest first) that the query requests. Raises MalformedRequest."""
    if token := query.get("nextToken"):
        last = _position(token)
        snapshots = [one for one in snapshots if (one.created_at, one.snapshot_id) < last]
    limit = _limit(query.get("limit", ""))
    end = snapshots[limit - 1] if len(snapshots) > limit else None
    return SnapshotPage(snapshots[:limit], _token((end.created_at, end.snapshot_id)) if end else None)


def filtered(views: Sequence[BoxView], query: QueryParams) -> list[BoxView]:
    """Boxes with all the metadata, the template and one of the states in the query, started at its time or later."""
    states = {name for text in query.getlist("state") for name in text.split(",") if name}
    # clients quote keys and values before they encode the form
    wanted = [(unquote(key), unquote(value)) for key, value in parse_qsl(query.get("metadata", ""), True)]
    after, template = _time(query.get("startedAfter", "")), query.get("template", "")
    return [
        view
        for view in views
        if (not states or state(view) in states)
        and all(view.box.metadata.get(key) == value for key, value in wanted)
        and (not template or view.box.template == template)
        and (after is None or when(view.record.created_at) >= after)
    ]


def _limit(text: str) -> int:
    if not text:
        return _LIMIT
    limit = whole(text, _MOST)
    if not limit:
        raise MalformedRequest(f"limit must be a number from 1 to {_MOST}")
    return limit


def _time(text: str) -> datetime | None:
    if not text:
        return None
    try:
        # an unquoted "+" arrives as a space
        at = datetime.fromisoformat(text.replace(" ", "+") if "T" in text else text)
    except ValueError:
        raise MalformedRequest("startedAfter must be a time in ISO 8601") from None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _token(order: tuple[float, str]) -> str:
    created_at, sid = order
    return base64.urlsafe_b64encode(f"{created_at!r} {sid}".encode()).decode()


def _position(token: str) -> tuple[float, str]:
    try:
        created_at, sid = base64.urlsafe_b64decode(token.encode()).decode().split(" ")
        position = float(created_at), sid
    except (binascii.Error, ValueError):
        position = math.nan, ""
    if math.isnan(position[0]):
        raise MalformedRequest("nextToken is not valid; start again without it")
    return position
