"""Our own endpoints for copies of sessions: fork one after any action, open a copy, roll back, show the tree."""

from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field, StrictInt

from sandbox_server.lifecycle import SessionState
from sandbox_server.protocols._disconnects import while_connected
from sandbox_server.protocols._forks import copies
from sandbox_server.protocols._parts import copies_of, forking_of, rollback_of
from sandbox_server.protocols._refusals import Sid, refusals
from sandbox_server.protocols._wire import idempotency_key, json_answer, read, takes
from sandbox_server.protocols.groups import GroupAnswer
from sandbox_server.verdicts import VerdictName

_MOST = 1024
"""Copies per request, as in a group."""


class _Message(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True, extra="forbid")


class ForkRequest(_Message):
    """The number of copies, and the action after which they continue."""

    n: Annotated[StrictInt, Field(ge=1, le=_MOST)] = 1
    at: Annotated[StrictInt, Field(ge=0, le=2**31)] | None = None
    """Number of the action after which the copies continue; 0: before the first one; null: after the last one."""


class OpenRequest(_Message):
    """The action whose result the copy shows."""

    at: Annotated[StrictInt, Field(ge=0, le=2**31)] | None = None
    """Number of the action; 0: before the first one; null: the last one."""


class OpenAnswer(_Message):
    """A copy for a person to look around in: a box."""

    sid: str
    """Sid of the box: `/v1/boxes/{sid}` prolongs and ends it."""
    token: str
    """Access token of the box, for a terminal in it by E2B's protocol."""
    at: int
    cwd: str
    """Working directory of the session's shell after that action."""
    lifetime_s: float
    """Seconds until the box ends, unless its lifetime is set anew; also the maximum of a new lifetime."""
    notice: str
    """How the copy differs from the session after that action; "" if it does not."""


class RollbackRequest(_Message):
    """The action to return to."""

    to: Annotated[StrictInt, Field(ge=0, le=2**31)]
    """Number of the action whose result is restored; 0: the state before the first one."""


class RollbackAnswer(_Message):
    """A session after its rollback."""

    sid: str
    to: int
    seq: int
    """Number of the rollback itself in the journal; the next action has the number after it."""
    notice: str
    """How the session differs from its former state, also told in the next observation; "" if it does not."""


class Relative(_Message):
    """One session of a tree."""

    sid: str
    parent: str
    """Sid of the session that it was copied from; "" for the root."""
    forked_at: int
    """Number of actions that it inherited from its parent."""
    state: SessionState
    actions: int
    created_at: float
    """Unix seconds."""
    verdict: VerdictName | None
    """None until it is graded; so are the next two fields."""
    mask: bool | None
    reward: float | None


_REFUSALS = refusals(404, 409, 503, 507)

ROUTER = APIRouter(prefix="/v1", tags=["v1"])


@ROUTER.post("/sessions/{sid}/fork", response_model=GroupAnswer, responses=_REFUSALS, openapi_extra=takes(ForkRequest))
async def fork(request: Request, sid: Sid) -> Response:
    """Start n sessions that continue after action `at` of this one: with the same files, shell and journal.

    The session may be live or ended. The status is an error only if no copy could be started. If the client
    disconnects, all are discarded.
    """
    asked = await read(request, ForkRequest)
    return await copies(request, sid, asked.n, asked.at)


@ROUTER.post("/sessions/{sid}/open", response_model=OpenAnswer, responses=_REFUSALS, openapi_extra=takes(OpenRequest))
async def open_copy(request: Request, sid: Sid) -> Response:
    """Make a copy of a session, live or ended, for a person to look around in.

    The copy is a box that belongs to no run: it is not graded, does not count as a rollout, and ends unless it is
    prolonged. If the client disconnects, the copy is discarded.
    """
    at = (await read(request, OpenRequest)).at
    copy = await while_connected(request, copies_of(request).open(sid, at))
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
    """Return a live session to its state after action `to`; the undone actions stay in its journal, marked."""
    to = (await read(request, RollbackRequest)).to
    done = await rollback_of(request).rollback(sid, to, idempotency_key=idempotency_key(request))
    return json_answer({"sid": sid, "to": done.to, "seq": done.seq, "notice": done.notice})


@ROUTER.get("/sessions/{sid}/tree", response_model=list[Relative], responses=_REFUSALS)
async def show_tree(request: Request, sid: Sid) -> Response:
    """The session, its ancestors, and all copies of these, oldest first."""
    shown = []
    for seen in await forking_of(request).tree(sid):
        record, summary = seen.record, seen.summary
        shown.append(
            {
                "sid": record.sid,
                "parent": record.parent,
                "forked_at": record.forked_at,
                "state": record.state,
                "actions": record.actions,
                "created_at": record.created_at,
                "verdict": summary and summary.verdict,
                "mask": summary and summary.mask,
                "reward": summary and summary.reward,
            }
        )
    return json_answer(shown)
