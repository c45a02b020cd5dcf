"""Our own endpoints for copies of sessions: go on as n from any action, and see what came of what."""

from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field, StrictInt

from sandbox_server.lifecycle import SessionState
from sandbox_server.protocols._forks import copies, forking, openings, returns
from sandbox_server.protocols._group import while_connected
from sandbox_server.protocols._wire import idempotency_key, json_answer, read, takes
from sandbox_server.protocols.ahead import GroupAnswer
from sandbox_server.protocols.v1 import Sid, refusals
from sandbox_server.records import VerdictName

_MOST = 1024
"""Copies per request, as in a group."""


class _Message(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True, extra="forbid")


class ForkRequest(_Message):
    """How many copies, and from where."""

    n: Annotated[StrictInt, Field(ge=1, le=_MOST)] = 1
    at: Annotated[StrictInt, Field(ge=0, le=2**31)] | None = None
    """Number of the action after which the copies go on; 0: before the first one; null: after the last one."""


class OpenRequest(_Message):
    """From where."""

    at: Annotated[StrictInt, Field(ge=0, le=2**31)] | None = None
    """Number of the action after which the copy is; 0: before the first one; null: after the last one."""


class OpenAnswer(_Message):
    """A copy to look around in: a box."""

    sid: str
    """The box's: `/v1/boxes/{sid}` prolongs and ends it."""
    token: str
    """The box's access token, for a terminal in it by E2B's protocol of processes."""
    at: int
    cwd: str
    """Folder of the session's shell then."""
    lifetime_s: float
    """Seconds until it ends unless its lifetime is set anew, and the most that it should be set to."""
    notice: str
    """What is not as it was then; "" for nothing."""


class RollbackRequest(_Message):
    """Where to go back to."""

    to: Annotated[StrictInt, Field(ge=0, le=2**31)]
    """Number of the action after which the session is again; 0: before the first one."""


class RollbackAnswer(_Message):
    """A session that is where it was."""

    sid: str
    to: int
    seq: int
    """The rollback's own number in the journal; the next action has the one after it."""
    notice: str
    """What is not as it was then, which the next observation tells too; "" for nothing."""


class Relative(_Message):
    """One session of a tree."""

    sid: str
    parent: str
    """"" for the first one."""
    forked_at: int
    """Number of actions that it has from its parent."""
    state: SessionState
    actions: int
    created_at: float
    """Unix seconds."""
    verdict: VerdictName | None
    """None until it is graded; so are the next two fields."""
    mask: bool | None
    reward: float | None


_REFUSALS = refusals(404, 409, 503)

ROUTER = APIRouter(prefix="/v1", tags=["v1"])


@ROUTER.post("/sessions/{sid}/fork", response_model=GroupAnswer, responses=_REFUSALS, openapi_extra=takes(ForkRequest))
async def fork(request: Request, sid: Sid) -> Response:
    """Start n sessions that go on where this one is, or was after action `at`: same files, same shell, same journal.

    The session may be live or ended. An error status only if no copy could be started. If the client disconnects, all
    are discarded.
    """
    asked = await read(request, ForkRequest)
    return await copies(request, sid, asked.n, asked.at)


@ROUTER.post("/sessions/{sid}/open", response_model=OpenAnswer, responses=_REFUSALS, openapi_extra=takes(OpenRequest))
async def open_copy(request: Request, sid: Sid) -> Response:
    """Make a copy of a session, live or ended, for a person to look around in.

    The copy is a box of no run: it is not graded, does not count as a rollout, and ends unless it is prolonged. If the
    client disconnects, it is discarded.
    """
    at = (await read(request, OpenRequest)).at
    copy = await while_connected(request, openings(request).open(sid, at))
    if copy is None:
        return json_answer({})  # the client has disconnected
    return json_answer(
        {
            "sid": copy.view.sid,
            "token": copy.view.box.token,
            "at": copy.at,
            "cwd": copy.view.record.cwd,
            "lifetime_s": copy.life_s,
            "notice": copy.notice,
        }
    )


@ROUTER.post(
    "/sessions/{sid}/rollback",
    response_model=RollbackAnswer,
    responses=_REFUSALS,
    openapi_extra=takes(RollbackRequest),
)
async def roll_back(request: Request, sid: Sid) -> Response:
    """Take a live session back to where it was after action `to`; its journal keeps what is undone, marked."""
    to = (await read(request, RollbackRequest)).to
    done = await returns(request).rollback(sid, to, idempotency_key=idempotency_key(request))
    return json_answer({"sid": sid, "to": done.to, "seq": done.seq, "notice": done.notice})


@ROUTER.get("/sessions/{sid}/tree", response_model=list[Relative], responses=_REFUSALS)
async def show_tree(request: Request, sid: Sid) -> Response:
    """The session, those that it was copied from, and all their copies, the oldest first."""
    shown = []
    for seen in await forking(request).tree(sid):
        record, standing = seen.record, seen.standing
        shown.append(
            {
                "sid": record.sid,
                "parent": record.parent,
                "forked_at": record.forked_at,
                "state": record.state,
                "actions": record.actions,
                "created_at": record.created_at,
                "verdict": standing and standing.verdict,
                "mask": standing and standing.mask,
                "reward": standing and standing.reward,
            }
        )
    return json_answer(shown)
