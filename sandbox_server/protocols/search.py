"""Finds actions by the words in them."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from sandbox_server.catalogue.insight.search import FoundAction
from sandbox_server.protocols._filters import Run
from sandbox_server.protocols._refusals import refusals
from sandbox_server.protocols._wire import json_answer
from sandbox_server.protocols.insight import insight_of

ROUTER = APIRouter(prefix="/v1", tags=["v1"])

Words = Annotated[str, Query(max_length=400)]
Number = Annotated[int | None, Query(ge=1, le=2**63 - 1)]
Limit = Annotated[int, Query(ge=1, le=200)]

_CURSOR = "Sandbox-Next"
_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "headers": {
            _CURSOR: {
                "description": "`before` of the next page; absent on the last one.",
                "schema": {"type": "integer"},
            }
        }
    },
    **refusals(422, 503),
}


@ROUTER.get("/actions/search", response_model=list[FoundAction], responses=_RESPONSES)
async def search_actions(
    request: Request, q: Words, run: Run = None, before: Number = None, limit: Limit = 50
) -> Response:
    """Actions that contain all words of `q`, newest first; `word*` matches a prefix. Needs SANDBOX_ACTION_SEARCH."""
    hits = await insight_of(request).search.find(q, run=run, before=before, limit=limit)
    following = next_of(hits, limit)
    more = {} if following is None else {_CURSOR: str(following)}
    return json_answer([asdict(hit) for hit in hits], headers=more)


def next_of(hits: Sequence[FoundAction], limit: int) -> int | None:
    """The next page's `before`; None on the last page."""
    return hits[-1].id if len(hits) == limit else None
