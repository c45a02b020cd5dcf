"""/docs: the OpenAPI document as a page of our own, because Swagger UI loads its script from another host."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request, Response

from sandbox_server.ui.render import page
from sandbox_server.ui.route import PageRoute

ROUTER = APIRouter(include_in_schema=False, route_class=PageRoute)

_METHODS = ("get", "put", "post", "delete", "patch", "head")


@dataclass(frozen=True, slots=True)
class Field:
    """A parameter of a request, or a field of a JSON object."""

    name: str
    kind: str
    required: bool
    about: str


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path."""

    method: str
    path: str
    about: str
    parameters: tuple[Field, ...]
    body: str
    """Type of the request's body; "" for none."""
    answers: tuple[tuple[str, str], ...]
    """(status, type of the body)"""


@dataclass(frozen=True, slots=True)
class Model:
    """A JSON object that operations name."""

    name: str
    about: str
    fields: tuple[Field, ...]


@ROUTER.get("/docs")
async def docs(request: Request) -> Response:
    """All operations and their types."""
    document = await asyncio.to_thread(request.app.openapi)  # takes 400 ms at the first request
    groups: dict[str, list[Operation]] = {}
    for tag, operation in operations(document):
        groups.setdefault(tag, []).append(operation)
    return await page(request, "docs.html", groups=groups, models=models(document), about=document["info"])


def operations(document: Mapping[str, Any]) -> Iterator[tuple[str, Operation]]:
    """(tag, operation), in the document's order."""
    for path, methods in document["paths"].items():
        for method in _METHODS:
            if (found := methods.get(method)) is None:
                continue
            given = found.get("parameters", ())
            yield (
                (found.get("tags") or ["other"])[0],
                Operation(
                    method=method.upper(),
                    path=path,
                    about=found.get("description", found.get("summary", "")),
                    parameters=tuple(_field(one["name"], one, required=one.get("required", False)) for one in given),
                    body=_content(found.get("requestBody", {})),
                    answers=tuple((status, _content(answer)) for status, answer in found["responses"].items()),
                ),
            )


def models(document: Mapping[str, Any]) -> list[Model]:
    """The named types, by name."""
    found = []
    for name, schema in sorted(document.get("components", {}).get("schemas", {}).items()):
        required = schema.get("required", ())
        fields = tuple(
            _field(key, {"schema": value, **value}, required=key in required)
            for key, value in schema.get("properties", {}).items()
        )
        found.append(Model(name, schema.get("description", ""), fields))
    return found


def _field(name: str, given: Mapping[str, Any], *, required: bool) -> Field:
    return Field(name, kind_of(given.get("schema", {})), required, given.get("description", ""))


def _content(given: Mapping[str, Any]) -> str:
    return ", ".join(kind_of(one.get("schema", {})) for one in given.get("content", {}).values())


def kind_of(schema: Mapping[str, Any]) -> str:
    """A short description of a schema, such as `list of X` or `string or null`."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(kind_of(one) for one in schema[key]))
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if "const" in schema:
        return str(schema["const"])
    if schema.get("type") == "array":
        return f"list of {kind_of(schema.get('items', {}))}"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {kind_of(schema['additionalProperties'])}"
    return str(schema.get("type", "any"))
