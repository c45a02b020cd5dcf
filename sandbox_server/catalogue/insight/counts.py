"""Counts, groups and rates over many sessions. A window includes `since` and excludes `until`."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from copy import copy
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Executable,
    Integer,
    Select,
    and_,
    bindparam,
    case,
    false,
    func,
    literal_column,
    select,
    true,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from sandbox_server.catalogue.database import Database
from sandbox_server.catalogue.insight.records import Group, RunCount, SessionTimings, UnsoundInstance, VerdictCount
from sandbox_server.catalogue.tables import InstanceRow, PassHourRow, PatchRow, SessionRow, VerdictRow
from sandbox_server.slices import sliced
from sandbox_server.verdicts import VerdictName

T = TypeVar("T")

HOUR_S = 3600.0
_COMPARED = 1 << 16  # bytes of a patch
_FEW_GROUPS = 200
_MEMBERS = 40
"""Number of newest verdicts that are read to find the groups that were graded last."""


class Counts:
    """Every method raises CatalogueUnavailable when SQL does not answer."""

    def __init__(self, database: Database) -> None:
        self._reading: Callable[[], AbstractAsyncContextManager[AsyncConnection]] = database.reading

    @asynccontextmanager
    async def together(self) -> AsyncIterator["Counts"]:
        """These queries on a single connection, for use by one task: taking one costs as much as a short query."""
        async with self._reading() as connection:
            counts = copy(self)
            counts._reading = lambda: nullcontext(connection)
            yield counts

    async def verdicts(self, since: float, until: float, run: str | None = None) -> list[VerdictCount]:
        """Verdicts of the window with their counts, most frequent first."""
        found = _verdicts(*await self._of_run(run, since))
        return await self._all(found, lambda row: VerdictCount(*row), since=since, until=until, run=run)

    async def masked_causes(self, since: float, until: float, run: str | None = None) -> dict[str, int]:
        """Kind of cause (`kind_of`) -> number of masked verdicts of the window."""
        found = _masked_causes(*await self._of_run(run, since))
        return dict(await self._all(found, tuple, since=since, until=until, run=run))

    async def groups(
        self, since: float, *, run: str | None = None, instance: str | None = None, limit: int = 1000
    ) -> list[Group]:
        """Groups of the sessions graded since `since`, last graded first."""
        of = await self._of_session(since)
        among = await self._graded_last(since, limit, of) if run is None and instance is None else None
        given = ((of.is_run, run), (_IS_INSTANCE, instance), (_IS_AMONG, among))
        return await self._all(
            _groups(of, *(condition for condition, value in given if value is not None)),
            lambda row: Group(row[0], row[1], row[2], int(row[3]), *row[4:]),
            since=since,
            run=run,
            instance=instance,
            among=among,
            most=limit,
        )

    async def _graded_last(self, since: float, groups: int, of: "_OfSession") -> list[str] | None:
        """Instances of the groups that were graded last; None: the newest verdicts belong to too few groups."""
        if groups > _FEW_GROUPS:
            return None
        values = {"since": since, "members": _MEMBERS * groups, "most": groups}
        instances = await self._all(_graded_last(of), lambda row: str(row[0]), **values)
        return sorted(set(instances)) if len(instances) == groups else None

    async def runs(self, since: float, *, limit: int = 200) -> list[RunCount]:
        """Runs of the sessions started since `since`, without boxes; the run with the newest session first."""
        return await self._all(
            _runs(),
            lambda row: RunCount(row[0], row[1], int(row[2]), row[3], int(row[4]), int(row[5]), *row[6:]),
            since=since,
            most=limit,
        )

    async def passed(self, since: int, until: int | None = None) -> dict[str, tuple[int, int]]:
        """Instance -> (resolved, all) of its unmasked verdicts, from hour `since` to before hour `until` (of 1970)."""
        found = _passed() if until is None else _passed(_BEFORE_HOUR)
        rates = await self._all(found, lambda row: (row[0], (int(row[1]), int(row[2]))), since=since, until=until)
        return dict(rates)

    async def timed(
        self, since: float, until: float, *, run: str | None = None, limit: int = 300
    ) -> list[SessionTimings]:
        """The sessions of the window that ended last, without boxes."""
        found = _timed() if run is None else _timed(_ENDED_IN_RUN)
        return await self._all(found, lambda row: SessionTimings(*row), since=since, until=until, run=run, most=limit)

    async def ends(self, since: float, until: float, run: str | None = None) -> dict[str, int]:
        """End reason -> number of sessions that ended in the window."""
        found = _ends() if run is None else _ends(_ENDED_IN_RUN)
        return dict(await self._all(found, tuple, since=since, until=until, run=run))

    async def unsound(self, since: float, run: str | None = None) -> list[UnsoundInstance]:
        """Instances with sessions started since `since` although their last check found them unsound."""
        found = _unsound() if run is None else _unsound(_IN_RUN)
        return await self._all(found, lambda row: UnsoundInstance(*row), since=since, run=run)

    async def _of_run(self, run: str | None, since: float) -> tuple[ColumnElement[bool], ...]:
        return () if run is None else ((await self._of_session(since)).is_run,)

    async def _of_session(self, since: float) -> "_OfSession":
        # if an older version graded some, looking up the sessions of these is slower for all
        return _LOOKED_UP if await self._all(_unknown(), tuple, since=since) else _BESIDE

    async def _all(self, statement: Executable, made: Callable[[Any], T], **values: object) -> list[T]:
        async with self._reading() as connection:
            return await sliced(map(made, await connection.execute(statement, values)))


# Building a statement, and naming it for SQLAlchemy's cache, holds the event loop for 1 to 2 ms: each is built once for
# each set of conditions.

_SINCE: BindParameter[Any] = bindparam("since")
_UNTIL: BindParameter[Any] = bindparam("until")
_RUN: BindParameter[Any] = bindparam("run")
_MOST = bindparam("most", type_=Integer)
_GRADED = and_(VerdictRow.graded_at >= _SINCE, VerdictRow.graded_at < _UNTIL)
_ENDED = and_(SessionRow.ended_at >= _SINCE, SessionRow.ended_at < _UNTIL, SessionRow.instance_id != "")
_IN_RUN = SessionRow.run == _RUN
_ENDED_IN_RUN = SessionRow.run.concat("") == _RUN
"""A condition on the run that uses no index: the index of the window selects fewer rows, which SQLite does not know."""
_BEFORE_HOUR = PassHourRow.hour < _UNTIL
_IS_INSTANCE = VerdictRow.instance_id == bindparam("instance")
_IS_AMONG = VerdictRow.instance_id.in_(bindparam("among", expanding=True))
_UNMASKED = VerdictRow.mask == false()
_MASKED = VerdictRow.mask == true()
_RESOLVED = VerdictRow.name == VerdictName.RESOLVED.value


@dataclass(frozen=True, eq=False)
class _OfSession:
    """What is known of a verdict's session; null if the session is missing."""

    run: ColumnElement[Any]
    began_at: ColumnElement[Any]
    is_run: ColumnElement[bool]


def _of_session(run: ColumnElement[Any], began_at: ColumnElement[Any]) -> _OfSession:
    return _OfSession(run, began_at, run == _RUN)


_BESIDE = _of_session(VerdictRow.run.expression, VerdictRow.began_at.expression)
_LOOKED_UP = _of_session(
    *(
        func.coalesce(own, select(column).where(SessionRow.sid == VerdictRow.sid).scalar_subquery())
        for own, column in ((VerdictRow.run, SessionRow.run), (VerdictRow.began_at, SessionRow.created_at))
    )
)


@cache
def _unknown() -> Select[*tuple[Any, ...]]:
    return select(VerdictRow.sid).where(VerdictRow.graded_at >= _SINCE, VerdictRow.run.is_(None)).limit(1)


@cache
def _verdicts(*conditions: ColumnElement[bool]) -> Select[*tuple[Any, ...]]:
    count = func.count()
    found = select(VerdictRow.name, VerdictRow.mask, count, func.sum(VerdictRow.reward))
    found = found.where(_GRADED, *conditions)
    return found.group_by(VerdictRow.name, VerdictRow.mask).order_by(count.desc(), VerdictRow.name)


@cache
def _masked_causes(*conditions: ColumnElement[bool]) -> Select[*tuple[Any, ...]]:
    found = select(VerdictRow.cause_kind, func.count()).where(_GRADED, _MASKED, *conditions)
    return found.group_by(VerdictRow.cause_kind)


@cache
def _groups(of: _OfSession, *conditions: ColumnElement[bool]) -> Select[*tuple[Any, ...]]:
    reward = case((_UNMASKED, VerdictRow.reward))
    last = func.max(VerdictRow.graded_at)
    return (
        select(
            of.run,
            VerdictRow.instance_id,
            func.count(),
            _sum(_MASKED),
            func.min(reward),
            func.max(reward),
            func.avg(reward),
            func.min(of.began_at),
            last,
        )
        .where(VerdictRow.graded_at >= _SINCE, of.run.is_not(None), *conditions)
        .group_by(of.run, VerdictRow.instance_id)
        .order_by(last.desc(), VerdictRow.instance_id)
        .limit(_MOST)
    )


@cache
def _graded_last(of: _OfSession) -> Select[*tuple[Any, ...]]:
    newest = (
        select(of.run.label("run"), VerdictRow.instance_id, VerdictRow.graded_at)
        .where(VerdictRow.graded_at >= _SINCE, of.run.is_not(None))
        .order_by(VerdictRow.graded_at.desc())
        .limit(bindparam("members", type_=Integer))
        .subquery()
    )
    last = func.max(newest.c.graded_at)
    return (
        select(newest.c.instance_id)
        .group_by(newest.c.run, newest.c.instance_id)
        .order_by(last.desc(), newest.c.instance_id)
        .limit(_MOST)
    )


@cache
def _runs() -> Select[*tuple[Any, ...]]:
    last = func.max(SessionRow.created_at)
    return (
        select(
            SessionRow.run,
            func.count(),
            _sum(SessionRow.state == "lost"),
            func.count(VerdictRow.sid),
            _sum(_MASKED),
            _sum(_RESOLVED),
            func.avg(case((_UNMASKED, VerdictRow.reward))),
            func.min(SessionRow.created_at),
            last,
        )
        # a verdict is younger than its session; without this condition all verdicts would be read
        .outerjoin(VerdictRow, and_(VerdictRow.sid == SessionRow.sid, VerdictRow.graded_at >= _SINCE))
        .where(SessionRow.created_at >= _SINCE, SessionRow.instance_id != "")
        .group_by(SessionRow.run)
        .order_by(last.desc(), SessionRow.run)
        .limit(_MOST)
    )


@cache
def _passed(*conditions: ColumnElement[bool]) -> Select[*tuple[Any, ...]]:
    resolved, graded = func.sum(PassHourRow.resolved), func.sum(PassHourRow.graded)
    found = select(PassHourRow.instance_id, resolved, graded).where(PassHourRow.hour >= _SINCE, *conditions)
    return found.group_by(PassHourRow.instance_id).having(graded > 0)


@cache
def _timed(*conditions: ColumnElement[bool]) -> Select[*tuple[Any, ...]]:
    return (
        select(
            SessionRow.run,
            SessionRow.created_at,
            SessionRow.ended_at,
            SessionRow.end_reason,
            SessionRow.actions,
            SessionRow.timings_s,
            func.coalesce(VerdictRow.queue_s, 0.0),
            func.coalesce(VerdictRow.grade_s, 0.0),
            func.coalesce(VerdictRow.tripwires, literal_column("'{}'")),
            SessionRow.instance_id,
            # SQLite reads all of a diff before the column behind it, but not to know its length
            func.coalesce(case((func.length(PatchRow.diff).between(1, _COMPARED), PatchRow.sha256)), ""),
            SessionRow.sid,
        )
        .outerjoin(VerdictRow, VerdictRow.sid == SessionRow.sid)
        .outerjoin(PatchRow, PatchRow.sid == SessionRow.sid)
        .where(_ENDED, *conditions)
        .order_by(SessionRow.ended_at.desc())
        .limit(_MOST)
    )


@cache
def _ends(*conditions: ColumnElement[bool]) -> Select[*tuple[Any, ...]]:
    found = select(SessionRow.end_reason, func.count()).where(_ENDED, *conditions)
    return found.group_by(SessionRow.end_reason)


@cache
def _unsound(*conditions: ColumnElement[bool]) -> Select[*tuple[Any, ...]]:
    count = func.count()
    return (
        select(InstanceRow.instance_id, InstanceRow.verified_gold, InstanceRow.verified_empty, count)
        .join(SessionRow, SessionRow.instance_id == InstanceRow.instance_id)
        .where(SessionRow.created_at >= _SINCE, InstanceRow.verified_at > 0)
        .where(
            ~and_(
                InstanceRow.verified_gold == VerdictName.RESOLVED.value,
                InstanceRow.verified_empty.not_in((VerdictName.RESOLVED.value, "")),
            )
        )
        .where(*conditions)
        .group_by(InstanceRow.instance_id, InstanceRow.verified_gold, InstanceRow.verified_empty)
        .order_by(count.desc(), InstanceRow.instance_id)
        .limit(50)
    )


def _sum(condition: ColumnElement[bool]) -> ColumnElement[Any]:
    return func.sum(case((condition, 1), else_=0))
