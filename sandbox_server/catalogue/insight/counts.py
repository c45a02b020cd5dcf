"""Counts, groups and rates over many sessions. A window includes `since` and excludes `until`."""

from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Executable, Select, and_, case, false, func, literal_column, select, true

from sandbox_server.catalogue.database import Database
from sandbox_server.catalogue.insight.records import Group, RunCount, Timed, Unsound, VerdictCount
from sandbox_server.catalogue.tables import InstanceRow, PassHourRow, SessionRow, VerdictRow
from sandbox_server.records import VerdictName
from sandbox_server.slices import sliced

T = TypeVar("T")

_UNMASKED = VerdictRow.mask == false()
_MASKED = VerdictRow.mask == true()
_OF_SESSION = [
    select(column).where(SessionRow.sid == VerdictRow.sid).scalar_subquery()
    for column in (SessionRow.run, SessionRow.created_at)
]
HOUR_S = 3600.0
_FEW_GROUPS = 200
_MEMBERS = 40
"""Number of newest verdicts that are read to find the groups that were graded last."""
_RESOLVED = VerdictRow.name == VerdictName.RESOLVED.value


class Counts:
    """Every method raises CatalogueUnavailable when SQL does not answer."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def verdicts(self, since: float, until: float, run: str | None = None) -> list[VerdictCount]:
        """Verdicts of the window with their counts, most frequent first."""
        count = func.count()
        found = select(VerdictRow.name, VerdictRow.mask, count, func.sum(VerdictRow.reward))
        found = found.where(VerdictRow.graded_at >= since, VerdictRow.graded_at < until)
        found = await self._of_run(found, run, since)
        found = found.group_by(VerdictRow.name, VerdictRow.mask).order_by(count.desc(), VerdictRow.name)
        return await self._all(found, lambda row: VerdictCount(*row))

    async def masked_causes(self, since: float, until: float, run: str | None = None) -> dict[str, int]:
        """Kind of cause (`kind_of`) -> number of masked verdicts of the window."""
        found = select(VerdictRow.cause_kind, func.count())
        found = found.where(VerdictRow.graded_at >= since, VerdictRow.graded_at < until, _MASKED)
        found = (await self._of_run(found, run, since)).group_by(VerdictRow.cause_kind)
        return dict(await self._all(found, tuple))

    async def groups(
        self, since: float, *, run: str | None = None, instance: str | None = None, limit: int = 1000
    ) -> list[Group]:
        """Groups of the sessions graded since `since`, last graded first."""
        of_run, began_at = await self._of_session(since)
        among = await self._graded_last(since, limit, of_run) if run is None and instance is None else None
        reward = case((_UNMASKED, VerdictRow.reward))
        last = func.max(VerdictRow.graded_at)
        found = (
            select(
                of_run,
                VerdictRow.instance_id,
                func.count(),
                _sum(_MASKED),
                func.min(reward),
                func.max(reward),
                func.avg(reward),
                func.min(began_at),
                last,
            )
            .where(VerdictRow.graded_at >= since, of_run.is_not(None))
            .group_by(of_run, VerdictRow.instance_id)
            .order_by(last.desc(), VerdictRow.instance_id)
            .limit(limit)
        )
        if run is not None:
            found = found.where(of_run == run)
        if instance is not None:
            found = found.where(VerdictRow.instance_id == instance)
        if among is not None:
            found = found.where(VerdictRow.instance_id.in_(among))
        return await self._all(found, lambda row: Group(row[0], row[1], row[2], int(row[3]), *row[4:]))

    async def _graded_last(self, since: float, groups: int, of_run: ColumnElement[Any]) -> set[str] | None:
        """Instances of the groups that were graded last; None: the newest verdicts belong to too few groups."""
        if groups > _FEW_GROUPS:
            return None
        newest = (
            select(of_run.label("run"), VerdictRow.instance_id, VerdictRow.graded_at)
            .where(VerdictRow.graded_at >= since, of_run.is_not(None))
            .order_by(VerdictRow.graded_at.desc())
            .limit(_MEMBERS * groups)
            .subquery()
        )
        last = func.max(newest.c.graded_at)
        found = (
            select(newest.c.instance_id)
            .group_by(newest.c.run, newest.c.instance_id)
            .order_by(last.desc(), newest.c.instance_id)
            .limit(groups)
        )
        instances = await self._all(found, lambda row: str(row[0]))
        return set(instances) if len(instances) == groups else None

    async def runs(self, since: float, *, limit: int = 200) -> list[RunCount]:
        """Runs of the sessions started since `since`, without boxes; the run with the newest session first."""
        last = func.max(SessionRow.created_at)
        reward = case((_UNMASKED, VerdictRow.reward))
        found = (
            select(
                SessionRow.run,
                func.count(),
                _sum(SessionRow.state == "lost"),
                func.count(VerdictRow.sid),
                _sum(_MASKED),
                _sum(_RESOLVED),
                func.avg(reward),
                func.min(SessionRow.created_at),
                last,
            )
            # a verdict is younger than its session; without this condition all verdicts would be read
            .outerjoin(VerdictRow, and_(VerdictRow.sid == SessionRow.sid, VerdictRow.graded_at >= since))
            .where(SessionRow.created_at >= since, SessionRow.instance_id != "")
            .group_by(SessionRow.run)
            .order_by(last.desc(), SessionRow.run)
            .limit(limit)
        )
        return await self._all(
            found, lambda row: RunCount(row[0], row[1], int(row[2]), row[3], int(row[4]), int(row[5]), *row[6:])
        )

    async def passed(self, since: int, until: int | None = None) -> dict[str, tuple[int, int]]:
        """Instance -> (resolved, all) of its unmasked verdicts, from hour `since` to before hour `until` (of 1970)."""
        resolved, graded = func.sum(PassHourRow.resolved), func.sum(PassHourRow.graded)
        found = select(PassHourRow.instance_id, resolved, graded).where(PassHourRow.hour >= since)
        if until is not None:
            found = found.where(PassHourRow.hour < until)
        found = found.group_by(PassHourRow.instance_id).having(graded > 0)
        return dict(await self._all(found, lambda row: (row[0], (int(row[1]), int(row[2])))))

    async def timed(self, since: float, until: float, *, run: str | None = None, limit: int = 300) -> list[Timed]:
        """The sessions of the window that ended last, without boxes."""
        found = (
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
            )
            .outerjoin(VerdictRow, VerdictRow.sid == SessionRow.sid)
            .where(SessionRow.ended_at >= since, SessionRow.ended_at < until, SessionRow.instance_id != "")
            .order_by(SessionRow.ended_at.desc())
            .limit(limit)
        )
        if run is not None:
            found = found.where(_is_run(run))
        return await self._all(found, lambda row: Timed(*row))

    async def ends(self, since: float, until: float, run: str | None = None) -> dict[str, int]:
        """End reason -> number of sessions that ended in the window."""
        found = select(SessionRow.end_reason, func.count()).where(
            SessionRow.ended_at >= since, SessionRow.ended_at < until, SessionRow.instance_id != ""
        )
        if run is not None:
            found = found.where(_is_run(run))
        return dict(await self._all(found.group_by(SessionRow.end_reason), tuple))

    async def unsound(self, since: float, run: str | None = None) -> list[Unsound]:
        """Instances with sessions started since `since` although their last check found them unsound."""
        count = func.count()
        found = (
            select(InstanceRow.instance_id, InstanceRow.verified_gold, InstanceRow.verified_empty, count)
            .join(SessionRow, SessionRow.instance_id == InstanceRow.instance_id)
            .where(SessionRow.created_at >= since, InstanceRow.verified_at > 0)
            .where(
                ~and_(
                    InstanceRow.verified_gold == VerdictName.RESOLVED.value,
                    InstanceRow.verified_empty.not_in((VerdictName.RESOLVED.value, "")),
                )
            )
            .group_by(InstanceRow.instance_id, InstanceRow.verified_gold, InstanceRow.verified_empty)
            .order_by(count.desc(), InstanceRow.instance_id)
            .limit(50)
        )
        if run is not None:
            found = found.where(SessionRow.run == run)
        return await self._all(found, lambda row: Unsound(*row))

    async def _of_run(self, found: Select[*tuple[Any, ...]], run: str | None, since: float) -> Select[*tuple[Any, ...]]:
        if run is None:
            return found
        of_run, _ = await self._of_session(since)
        return found.where(of_run == run)

    async def _of_session(self, since: float) -> tuple[ColumnElement[Any], ColumnElement[Any]]:
        """(run, start of the session) of the verdicts since `since`; null if the session is missing."""
        beside = (VerdictRow.run, VerdictRow.began_at)
        unknown = select(VerdictRow.sid).where(VerdictRow.graded_at >= since, VerdictRow.run.is_(None)).limit(1)
        if not await self._all(unknown, tuple):
            return beside[0].expression, beside[1].expression
        # an older version, which does not write them, graded some: looking up these is slower for all
        run, began_at = (func.coalesce(*pair) for pair in zip(beside, _OF_SESSION, strict=True))
        return run, began_at

    async def _all(self, statement: Executable, made: Callable[[Any], T]) -> list[T]:
        async with self._database.reading() as connection:
            return await sliced(map(made, await connection.execute(statement)))


def _is_run(run: str) -> ColumnElement[bool]:
    """The run, so that no index leads to it: a window holds less than a run, which SQLite does not know."""
    return SessionRow.run.concat("") == run


def _sum(condition: ColumnElement[bool]) -> ColumnElement[Any]:
    return func.sum(case((condition, 1), else_=0))
