"""Steps of tasks in responses. Not a plugin, hence the underscore."""

from fastapi import Request
from pydantic import BaseModel, ConfigDict

from sandbox_server.catalogue.steps import Step
from sandbox_server.errors import ServiceError
from sandbox_server.lifecycle import SessionState
from sandbox_server.protocols._parts import instances_of
from sandbox_server.records import SessionRecord
from sandbox_server.telemetry import logger

log = logger(__name__)


class _Shown(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)


class NextStep(_Shown):
    """The next step of the task; it cannot start if the rewards of this session are below `min_reward`."""

    instance_id: str
    instance_hash: str
    """The instance for /start_instance; pass this session's sid as `after`."""
    number: int
    of: int
    problem_statement: str
    min_reward: dict[str, float]
    """Key of this session's rewards -> least value."""


class ShownStep(_Shown):
    """One step of a task of several steps."""

    name: str
    number: int
    of: int
    before: str
    """Instance id of the step before; "" for the first one."""
    next: str
    """Instance id of the step after; "" for the last one."""
    strategy: str
    """How the rewards of the steps so far are combined: mean, final."""
    min_reward: dict[str, float]
    """Key of this step's rewards -> least value with which the next step may begin."""


def step_fields(step: Step) -> dict[str, object]:
    """The fields of `ShownStep`."""
    return {name: getattr(step, name) for name in ShownStep.model_fields}


async def next_step(request: Request, session: SessionRecord) -> dict[str, object] | None:
    """The fields of `NextStep` for the step after the session's.

    None: the session has not ended, its step is the last one, or the catalogue cannot tell the next one.
    """
    if session.state != SessionState.ENDED:
        return None
    instances = instances_of(request)
    try:
        step = (await instances.by_id(session.instance_id)).step
        if step is None or not step.next:
            return None
        following = await instances.by_id(step.next)
    except ServiceError as error:  # not raised: the session has ended, and the response must say so
        log.warning("the next step is not told", sid=session.sid, code=error.code, error=error.detail)
        return None
    return {
        "instance_id": following.instance_id,
        "instance_hash": str(following.instance_hash),
        "number": step.number + 1,
        "of": step.of,
        "problem_statement": following.problem_statement,
        "min_reward": step.min_reward,
    }
