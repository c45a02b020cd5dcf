"""Shared parts of the OpenAPI document: the sid in a path, and refusals. Not a plugin, hence the underscore."""

from typing import Annotated, Any

from fastapi import Path
from pydantic import BaseModel, ConfigDict

Sid = Annotated[str, Path(pattern="^[0-9]{1,19}$")]


class Refused(BaseModel):
    """Why a request was refused."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    code: str
    detail: str
    retryable: bool
    reason: str = ""
    """What is lacking (status 503): slots, queue, daemon, disk, data, image, bodies, draining; "" for another fault."""
    position: int | None = None
    estimate_s: float | None = None


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI entries of refusals with these statuses, for a route's `responses`.

    The entries refer to the schema by name instead of giving the model. For each model of each route FastAPI builds a
    validator, which took 40 % of the time to create an application. The schema is in the document because `v1._BUSY`
    gives the model.
    """
    schema = {"$ref": f"#/components/schemas/{Refused.__name__}"}
    return {status: {"content": {"application/json": {"schema": schema}}} for status in statuses}
