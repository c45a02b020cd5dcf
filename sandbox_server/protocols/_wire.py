"""Reads requests and writes responses for all protocols. Not a plugin, hence the underscore."""

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
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
from sandbox_server.protocols._values import TOO_MANY, faults_of, holds_too_many, may_hold_too_many
from sandbox_server.slices import sliced

Model = TypeVar("Model", bound=BaseModel)
Value = TypeVar("Value")

KEY_NAME = "sandbox_server.key_name"
"""Key in the ASGI scope of the name of the request's API key."""
KEY_OWNER = "sandbox_server.key_owner"
"""Key in the ASGI scope of the owner of the request's runs; "" for a key without a name, which may use all runs."""
KEY_VIEWS = "sandbox_server.key_views"
"""Key in the ASGI scope of whether the request's API key is read-only."""
KEY_SESSION = "sandbox_server.key_session"
"""Key in the ASGI scope of the sid whose token the request carries; the request may use that session only."""
_MAX_KEY = 200
RUN = r"[A-Za-z0-9._:/@+-]{1,100}"
_LARGE = 1 << 20  # bytes
_MOST_TEXTS = 4_000_000  # strings in a body that is checked on a thread
_CHECKS = ThreadPoolExecutor(1, thread_name_prefix="bodies")
"""Checks one body at a time: each computing thread can delay the event loop by 5 ms every time the loop wakes up."""
_RETRY_S = 5  # by then a part that was down is usually back


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)


def takes(model: type[BaseModel]) -> dict[str, Any]:
    """The request body for the OpenAPI document; `read` parses it, because FastAPI's own errors have another format."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": model.model_json_schema()}}}}


async def read(request: Request, model: type[Model]) -> Model:
    """Parse the body as `model`, whatever its Content-Type.

    Raises:
        MalformedRequest, RequestTooLarge.

    """
    value = await read_json(request)
    if not isinstance(value, dict):
        raise MalformedRequest(f"The body must be a JSON object, not {type(value).__name__}; see /docs.")
    return modelled(value, model)


async def read_json(request: Request) -> object:
    """Parse the body as JSON, whatever its Content-Type. Raises MalformedRequest, RequestTooLarge."""
    return await json_in(await request.body())


async def json_in(body: bytes) -> object:
    """Parse JSON in UTF-8. Raises MalformedRequest, RequestTooLarge."""
    if await _by_turns(may_hold_too_many, body):
        check = partial(holds_too_many, body, most_texts=_MOST_TEXTS)
        if await asyncio.get_running_loop().run_in_executor(_CHECKS, check):
            raise RequestTooLarge(TOO_MANY)
    try:
        return await _by_turns(_decoded, body)
    except RecursionError:
        raise MalformedRequest("The body nests too deeply.") from None
    except ValueError as error:  # empty, not UTF-8, not JSON, or a number with thousands of digits
        why = f"The body is not JSON in UTF-8: {error}." if body.strip() else "The body is empty; send a JSON object."
        raise MalformedRequest(why) from None


async def _by_turns(work: Callable[[bytes], Value], body: bytes) -> Value:
    """`work(body)`. Large bodies, which take some 50 ms each, take turns, with a round of the event loop after each."""
    if len(body) < _LARGE:
        return work(body)
    (result,) = await sliced(map(work, (body,)))
    return result


def _decoded(body: bytes) -> object:
    return _DECODER.decode(body.decode("utf-8"))


def modelled(value: Mapping[str, object], model: type[Model]) -> Model:
    """`value` as `model`. Raises MalformedRequest."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        faults = faults_of(error)
        raise malformed((str((*fault["loc"], "body")[0]), fault["msg"]) for fault in faults) from None


def malformed(faults: Iterable[tuple[str, str]]) -> MalformedRequest:
    """The error for these (field, pydantic's message) pairs; a field that takes several types has several messages."""
    texts: dict[str, list[str]] = {}
    for name, text in faults:
        said = texts.setdefault(name, [])
        if (plain := text.removeprefix("Value error, ")) not in said:
            said.append(plain)
    return MalformedRequest("; ".join(f"{name}: {', or '.join(said)}" for name, said in texts.items()) + "; see /docs.")


def named_instance(named: int | str) -> int | str:
    """`named` in a form that the catalogue can look up. Raises UnknownInstance: it can be neither a hash nor an id."""
    if isinstance(named, str) and re.fullmatch("[0-9]{1,19}", named):
        named = int(named)
    known = 0 <= named < 2**63 if isinstance(named, int) else 0 < len(named) <= 400 and "\0" not in named
    if not known:
        shown = str(named)[:60] if isinstance(named, str) or abs(named) < 2**200 else "a number of 200 bits or more"
        raise UnknownInstance(f"No instance has the hash or id {shown!r}; a hash is below 2^63.")
    return named


def idempotency_key(request: Request) -> str:
    """The Idempotency-Key header, "" without one. Raises MalformedRequest: it is too long."""
    key = request.headers.get("idempotency-key", "")
    if len(key) > _MAX_KEY:
        raise MalformedRequest(f"Idempotency-Key is longer than {_MAX_KEY} characters.")
    return key


def run_of(request: Request) -> str:
    """The run of a start: the header Sandbox-Run, else the name of the API key, else "".

    Raises:
        MalformedRequest: the header is not a run name (1 to 100 of the allowed characters).
    """
    run = request.headers.get("sandbox-run", "")
    if not run:
        return str(request.scope.get(KEY_NAME, ""))
    if not re.fullmatch(RUN, run):
        raise MalformedRequest("Sandbox-Run must be 1 to 100 letters, digits and . _ : / @ + -")
    return run


def key_owner(request: Request) -> str:
    """Name of the API key, which owns what the request starts; "" for a key without a name, or no key."""
    return str(request.scope.get(KEY_OWNER, ""))


async def run_started(request: Request) -> str:
    """The run of a request that starts something, by `run_of`. A run without an owner becomes the API key's.

    Raises:
        MalformedRequest, RunOfAnother, StateUnavailable.
    """
    run = run_of(request)
    runs = getattr(request.app.state, "runs", None)
    if run and runs is not None and KEY_OWNER in request.scope:
        await runs.started(run, str(request.scope[KEY_OWNER]))
    return run


def refusal(error: ServiceError) -> dict[str, object]:
    """The body of a 503: reason, missing resource, queue position and estimate; null for unknown values."""
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
    """The Retry-After header, if the error is worth a retry."""
    if isinstance(error, CapacityError | OverQuota):
        return {"Retry-After": str(error.retry_after_s)}
    return {"Retry-After": str(_RETRY_S)} if error.retryable else {}


async def hung_up(request: Request) -> None:
    """Return once the client has closed the connection; call it after the body has been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def json_answer(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON response with `value` as its body."""
    # ASCII only: an observation may contain a lone surrogate, which UTF-8 cannot encode
    return Response(json.dumps(value), status, headers, media_type="application/json")
