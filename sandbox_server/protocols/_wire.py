"""How requests are read and answered, whatever the protocol. No plugin: its name begins with an underscore."""

import asyncio
import json
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from fastapi import Request, Response
from pydantic import BaseModel, ValidationError

from sandbox_server.errors import (
    CapacityError,
    MalformedRequest,
    OverQuota,
    RequestTooLarge,
    ServiceError,
    UnknownInstance,
)
from sandbox_server.protocols._values import TOO_MANY, holds_too_many, may_hold_too_many

Model = TypeVar("Model", bound=BaseModel)

KEY_NAME = "sandbox_server.key_name"
"""Where the name of a request's API key stands in its ASGI scope."""
KEY_OWNER = "sandbox_server.key_owner"
"""Whose runs the request's API key owns, there; "" of a key without a name, which may touch all runs."""
KEY_VIEWS = "sandbox_server.key_views"
"""Whether the request's API key only looks, there."""
_MAX_KEY = 200
RUN = r"[A-Za-z0-9._:/@+-]{1,100}"
_MOST_TEXTS = 4_000_000  # that are looked through, in a thread
_RETRY_S = 5  # a part that is down is usually back, or gone for good, by then


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)


def takes(model: type[BaseModel]) -> dict[str, Any]:
    """The request body, for the OpenAPI document; it is read by `read`, for FastAPI's reader answers otherwise."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": model.model_json_schema()}}}}


async def read(request: Request, model: type[Model]) -> Model:
    """The body as `model`, whatever Content-Type it claims.

    Raises:
        MalformedRequest, RequestTooLarge.

    """
    body = await request.body()
    if may_hold_too_many(body) and await asyncio.to_thread(holds_too_many, body, most_texts=_MOST_TEXTS):
        raise RequestTooLarge(TOO_MANY)
    try:
        value = _DECODER.decode(body.decode("utf-8"))
    except RecursionError:
        raise MalformedRequest("The body nests too deeply.") from None
    except ValueError as error:  # not UTF-8, not JSON, or a number of thousands of digits
        raise MalformedRequest(f"The body is not JSON in UTF-8: {error}") from None
    if not isinstance(value, dict):
        raise MalformedRequest(f"The body must be a JSON object, not {type(value).__name__}.")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        faults = error.errors(include_input=False, include_url=False)
        named = {str((*fault["loc"], "body")[0]): fault["msg"] for fault in faults}  # without a place: of the whole
        raise MalformedRequest("; ".join(f"{name}: {text}" for name, text in named.items())) from None


def named_instance(named: int | str) -> int | str:
    """What the catalogue can look up. Raises UnknownInstance for what it cannot even be asked."""
    if isinstance(named, str) and re.fullmatch("[0-9]{1,19}", named):
        named = int(named)
    known = 0 <= named < 2**63 if isinstance(named, int) else 0 < len(named) <= 400 and "\0" not in named
    if not known:
        shown = str(named)[:60] if isinstance(named, str) or abs(named) < 2**200 else "a number of 200 bits or more"
        raise UnknownInstance(f"No instance has the hash or id {shown!r}; a hash is below 2^63.")
    return named


def idempotency_key(request: Request) -> str:
    """The header of that name, "" without one. Raises MalformedRequest when it is too long."""
    key = request.headers.get("idempotency-key", "")
    if len(key) > _MAX_KEY:
        raise MalformedRequest(f"Idempotency-Key is longer than {_MAX_KEY} characters.")
    return key


def run_of(request: Request) -> str:
    """Whose start this is: the header Sandbox-Run, else the name of the API key, else "".

    Raises:
        MalformedRequest: the header is not 1 to 100 of the characters that a run's name may have.
    """
    run = request.headers.get("sandbox-run", "")
    if not run:
        return str(request.scope.get(KEY_NAME, ""))
    if not re.fullmatch(RUN, run):
        raise MalformedRequest("Sandbox-Run is a name of 1 to 100 letters, digits and . _ : / @ + -, no other sign.")
    return run


def key_owner(request: Request) -> str:
    """Name of the API key, which owns what the request starts; "": a key without a name, or none."""
    return str(request.scope.get(KEY_OWNER, ""))


async def run_started(request: Request) -> str:
    """As `run_of`, of a request that starts something: the run is its key's from now on, if it was nobody's.

    Raises:
        MalformedRequest, RunOfAnother, StateUnavailable.
    """
    run = run_of(request)
    runs = getattr(request.app.state, "runs", None)
    if run and runs is not None and KEY_OWNER in request.scope:
        await runs.started(run, str(request.scope[KEY_OWNER]))
    return run


def refusal(error: ServiceError) -> dict[str, object]:
    """The body of a 503: why, what was lacking, how many are ahead and for how long; null for what is not known."""
    of_line = (error.position, error.estimate_s) if isinstance(error, CapacityError) else (None, None)
    return {
        "code": error.code,
        "detail": error.detail,
        "retryable": error.retryable,
        "reason": error.reason,
        "position": of_line[0],
        "estimate_s": None if of_line[1] is None else round(of_line[1], 1),
    }


def retry_after(error: ServiceError) -> dict[str, str]:
    """The header for a refusal that is worth asking again."""
    if isinstance(error, CapacityError | OverQuota):
        return {"Retry-After": str(error.retry_after_s)}
    return {"Retry-After": str(_RETRY_S)} if error.retryable else {}


async def hung_up(request: Request) -> None:
    """Return once the client has closed the connection; the body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def json_answer(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """`value` as the answer's body."""
    # ASCII: an observation may hold half a surrogate pair, which UTF-8 cannot
    return Response(json.dumps(value), status, headers, media_type="application/json")
