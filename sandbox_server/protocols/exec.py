"""Commands in a session, one or many at once, for trainers that parse tool calls themselves."""

import asyncio
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field, StrictStr

from sandbox_server.actions.batch import Command
from sandbox_server.actions.content import scalar_text
from sandbox_server.errors import MalformedRequest
from sandbox_server.protocols._background import settle, spawn
from sandbox_server.protocols._parts import sessions_of
from sandbox_server.protocols._refusals import refusals
from sandbox_server.protocols._wire import idempotency_key, json_answer, read, takes

# Each command that has variables of its own copies the batch's. So the product of these two limits bounds the work
# before `Batches.check` applies the limits from the settings.
_MOST_COMMANDS = 1024
"""Upper limit of the setting SANDBOX_EXEC_COMMANDS."""
_MOST_VARIABLES = 1000


class _Message(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True, extra="forbid")


class _HowItRuns(_Message):
    timeout_s: Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)] | None = None
    """Seconds until it and its descendants are killed; default: SANDBOX_EXEC_TIMEOUT_S."""
    cwd: StrictStr = ""
    """Absolute, or relative to the repository; default: the repository."""
    env: dict[StrictStr, StrictStr] = Field({}, max_length=_MOST_VARIABLES)
    """Added to the sandbox's environment."""


class CommandRequest(_HowItRuns):
    """One command."""

    command: StrictStr
    """Shell text, run by a bash of its own."""


class ExecRequest(_HowItRuns):
    """A batch (`commands`) or one command (`command`). `timeout_s`, `cwd` and `env` are defaults for all commands."""

    command: StrictStr | None = None
    commands: list[StrictStr | CommandRequest] | None = Field(None, max_length=_MOST_COMMANDS)
    """Results have the same order. The commands run in parallel and independently."""


class CommandAnswer(_Message):
    """How one command ended."""

    exit_code: int | None
    """Null: it was killed at its timeout, or did not run."""
    stdout: str
    """UTF-8 with other bytes replaced; past SANDBOX_EXEC_OUTPUT_BYTES the middle is cut and marked."""
    stderr: str
    truncated: bool
    """Part of stdout or stderr was cut."""
    timed_out: bool
    """The command was killed at its timeout or, if `wall_ms` is 0, could not start within the batch's time."""
    wall_ms: float
    queued_ms: float
    """Milliseconds until it started."""
    error: str
    """Why it could not run: sandbox_exhausted, no_capacity; or command_broken (its end was forged); usually ""."""


class ExecAnswer(_Message):
    """The results of a batch."""

    results: list[CommandAnswer]
    seq: int
    """The batch's number in the session's journal."""
    notice: str
    """What happened to the session, for example that it was restored on another host; usually ""."""


_REFUSED = refusals(404, 409, 422, 500, 503)

ROUTER = APIRouter(prefix="/v1", tags=["v1"], lifespan=settle)


@ROUTER.post("/sessions/{sid}/exec", response_model=ExecAnswer, responses=_REFUSED, openapi_extra=takes(ExecRequest))
async def execute(request: Request, sid: Annotated[str, Path(pattern="^[0-9]{1,19}$")]) -> Response:
    """Run commands in parallel, each in a new shell at the repository; one batch is one action of the session.

    With an Idempotency-Key header, a repeated request runs once and gets the same response. A command's failure is in
    its result; an error status means that the service could not run the batch and says nothing about the commands.
    """
    asked = await read(request, ExecRequest)
    key = idempotency_key(request)
    running = sessions_of(request).exec(sid, _commands(asked), idempotency_key=key)
    answer = await asyncio.shield(spawn(request, running))
    return json_answer(
        {"results": [asdict(result) for result in answer.results], "seq": answer.seq, "notice": answer.notice}
    )


def _commands(asked: ExecRequest) -> list[Command]:
    """The batch's commands. Raises MalformedRequest unless exactly one of `command` and `commands` is given."""
    if (asked.command is None) == (asked.commands is None):
        raise MalformedRequest("commands: give either a list of commands, or one command as `command`.")
    given = [asked.command] if asked.commands is None else asked.commands
    cwd, env = scalar_text(asked.cwd), _scalar(asked.env)  # once, because they may be long
    every = [one if isinstance(one, CommandRequest) else CommandRequest(command=one or "") for one in given]
    return [
        Command(
            scalar_text(one.command),
            one.timeout_s or asked.timeout_s,
            scalar_text(one.cwd) or cwd,
            {**env, **_scalar(one.env)} if one.env else env,
        )
        for one in every
    ]


def _scalar(env: Mapping[str, str]) -> dict[str, str]:
    return {name: scalar_text(value) for name, value in env.items()}
