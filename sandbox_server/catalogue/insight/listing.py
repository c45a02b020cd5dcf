"""Lists of sessions by filters, with cursors, and of one instance's verdicts."""

from collections.abc import Collection
from dataclasses import fields
from typing import Any

from sqlalchemy import ColumnElement, and_, or_, select
from sqlalchemy.orm import aliased

from sandbox_server.catalogue.database import Database
from sandbox_server.catalogue.insight.records import SessionFilter, SessionWithVerdict, VerdictSummary
from sandbox_server.catalogue.tables import MetricRow, SessionRow, VerdictRow
from sandbox_server.records import SessionRecord
from sandbox_server.slices import sliced

_SESSION = [getattr(SessionRow, field.name) for field in fields(SessionRecord)]
_STANDING = [VerdictRow.name, VerdictRow.mask, VerdictRow.reward, VerdictRow.graded_at]


_FAMILY = 10_000  # most sessions of one tree of copies
_AT_ONCE = 500  # sids in one query; SQLite takes some thousand values
_RARE = 500
"""Up to this many sessions with the wanted verdict are looked up by their sids. If there are more, reading all sessions
from the newest on soon finds a page of them."""


class Listing:
    """Queries for lists. Every method raises CatalogueUnavailable when SQL does not answer."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def sessions(self, wanted: SessionFilter, *, limit: int) -> list[SessionWithVerdict]:
        """Sessions that match the filter, the newest first."""
        page = (
            select(*_SESSION, *_STANDING)
            .outerjoin(VerdictRow, VerdictRow.sid == SessionRow.sid)
            .where(*_filters(wanted))
            .order_by(SessionRow.created_at.desc(), SessionRow.sid.desc())
            .limit(limit)
        )
        asked = _of_verdict(VerdictRow, wanted)
        async with self._database.reading() as connection:
            if asked:
                some = select(VerdictRow.sid).where(*asked).limit(_RARE + 1)
                sids = list((await connection.execute(some)).scalars())
                page = page.where(SessionRow.sid.in_(sids)) if len(sids) <= _RARE else page
            rows: Any = await connection.execute(page)
            return await sliced(
                SessionWithVerdict(SessionRecord(*row[: len(_SESSION)]), _summary(row[len(_SESSION) :])) for row in rows
            )

    async def family(self, sid: str) -> list[SessionWithVerdict]:
        """The session, the sessions that it was copied from, and all copies of these; oldest first, [] if unknown.

        At most `_FAMILY` sessions.
        """
        async with self._database.reading() as connection:
            root, known = sid, {sid}
            while len(known) < _FAMILY:
                above = (await connection.execute(select(SessionRow.parent).where(SessionRow.sid == root))).scalar()
                if not above or above in known:
                    break
                known.add(above)
                root = above
            family, level = [root], [root]
            while level and len(family) < _FAMILY:
                below = select(SessionRow.sid).where(SessionRow.parent.in_(level)).limit(_FAMILY - len(family))
                level = list((await connection.execute(below)).scalars())
                family += level
            seen = []
            for start in range(0, len(family), _AT_ONCE):
                page = (
                    select(*_SESSION, *_STANDING)
                    .outerjoin(VerdictRow, VerdictRow.sid == SessionRow.sid)
                    .where(SessionRow.sid.in_(family[start : start + _AT_ONCE]))
                )
                rows: Any = (await connection.execute(page)).all()
                seen += [
                    SessionWithVerdict(SessionRecord(*row[: len(_SESSION)]), _summary(row[len(_SESSION) :]))
                    for row in rows
                ]
        return sorted(seen, key=lambda one: (one.record.created_at, one.record.sid))

    async def tokens_of(self, sids: Collection[str]) -> dict[str, float]:
        """Sid -> number of tokens of the rollout, for the graded sessions whose trainer reported it."""
        found = select(MetricRow.sid, MetricRow.value).where(MetricRow.name == "tokens", MetricRow.sid.in_(sids))
        async with self._database.reading() as connection:
            rows: Any = (await connection.execute(found)).all()
        return {sid: value for sid, value in rows}

    async def verdicts_of(self, instance_id: str, *, limit: int = 2000) -> list[tuple[str, VerdictSummary, float]]:
        """(sid, verdict, seconds of the grading) of the instance's newest gradings, the newest first."""
        newest = (
            select(VerdictRow.sid, *_STANDING, VerdictRow.grade_s)
            .where(VerdictRow.instance_id == instance_id)
            .order_by(VerdictRow.graded_at.desc())
            .limit(limit)
        )
        async with self._database.reading() as connection:
            rows: Any = (await connection.execute(newest)).all()
        return [(row[0], VerdictSummary(*row[1:-1]), row[-1]) for row in rows]


def fits(record: SessionRecord, wanted: SessionFilter) -> bool:
    """Whether the record matches `wanted`, except the verdict. For live sessions: SQL has an older record of them."""
    given = (
        (record.state, wanted.state),
        (record.run, wanted.run),
        (record.instance_id, wanted.instance),
        (record.node, wanted.node),
        (record.owner, wanted.owner),
    )
    if any(value is not None and own != value for own, value in given):
        return False
    if wanted.since is not None and record.created_at < wanted.since:
        return False
    return wanted.before is None or (record.created_at, record.sid) < wanted.before


def _filters(wanted: SessionFilter) -> list[ColumnElement[bool]]:
    given = {
        SessionRow.state: wanted.state,
        SessionRow.run: wanted.run,
        SessionRow.instance_id: wanted.instance,
        SessionRow.node: wanted.node,
        SessionRow.owner: wanted.owner,
    }
    filters: list[ColumnElement[bool]] = [column == value for column, value in given.items() if value is not None]
    if wanted.since is not None:
        filters.append(SessionRow.created_at >= wanted.since)
    if wanted.before is not None:
        at, sid = wanted.before
        # only the first of these conditions can use an index
        filters.append(SessionRow.created_at <= at)
        filters.append(or_(SessionRow.created_at < at, and_(SessionRow.created_at == at, SessionRow.sid < sid)))
    # a subquery for each session instead of a join, so that sessions are read in the order of their index
    verdict = aliased(VerdictRow)
    asked = _of_verdict(verdict, wanted)
    if asked:
        filters.append(select(verdict.sid).where(verdict.sid == SessionRow.sid, *asked).exists())
    return filters


def _of_verdict(verdict: type[VerdictRow], wanted: SessionFilter) -> list[ColumnElement[bool]]:
    asked: list[ColumnElement[bool]] = []
    if wanted.verdict is not None:
        asked.append(verdict.name == wanted.verdict)
    if wanted.masked is not None:
        asked.append(verdict.mask.is_(wanted.masked))
    return asked


def _summary(row: Any) -> VerdictSummary | None:
    return None if row[0] is None else VerdictSummary(*row)
