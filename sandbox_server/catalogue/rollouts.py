"""Metrics of graded sessions, one number per row so that the database can average them, and trainers' reports."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import func, literal, select

from sandbox_server.catalogue.database import Database
from sandbox_server.catalogue.localization.truth import AnswerFormat, RewardItem
from sandbox_server.catalogue.tables import MetricRow, RolloutRow, SessionRow
from sandbox_server.verdicts import TurnTokens


@dataclass(frozen=True, slots=True)
class SessionReport:
    """A trainer's report on one session."""

    rewards: tuple[RewardItem, ...] = ()
    """Rewards to use; (): the instance's or the service's."""
    tokens: tuple[TurnTokens, ...] = ()
    """Tokens of each turn, in order; () if not reported."""
    format: str = ""
    """Format of the answer; "": the instance's."""


@dataclass(frozen=True, slots=True)
class Rollup:
    """One metric over many sessions."""

    name: str
    count: int
    mean: float
    least: float
    most: float


class Rollouts:
    """Metrics and reports in SQL. Every method raises CatalogueUnavailable if SQL does not answer."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def report(
        self,
        sid: str,
        *,
        rewards: Sequence[RewardItem] | None = None,
        tokens: Sequence[TurnTokens] | None = None,
        written: AnswerFormat | None = None,
    ) -> None:
        """Store the given values; None leaves the stored one unchanged."""
        values = {
            "sid": sid,
            "rewards": "" if rewards is None else json.dumps([item.model_dump(mode="json") for item in rewards]),
            "tokens": "" if tokens is None else json.dumps([(turn.prompt, turn.response) for turn in tokens]),
            "format": written or "",
        }
        statement = self._database.insert(RolloutRow).values(values)
        given = {"rewards": rewards, "tokens": tokens, "format": written}
        changed = {name: statement.excluded[name] for name, value in given.items() if value is not None}
        if changed:
            statement = statement.on_conflict_do_update(index_elements=["sid"], set_=changed)
            async with self._database.writing() as connection:
                await connection.execute(statement)

    async def inherit(self, sid: str, parent: str) -> None:
        """Give session `sid`, a copy, its parent's reported rewards and format, but not the tokens."""
        old = select(literal(sid), RolloutRow.rewards, literal(""), RolloutRow.format).where(RolloutRow.sid == parent)
        statement = self._database.insert(RolloutRow).from_select(["sid", "rewards", "tokens", "format"], old)
        async with self._database.writing() as connection:
            await connection.execute(statement)

    async def reported(self, sid: str) -> SessionReport:
        """The report on the session; an empty one if there is none."""
        async with self._database.reading() as connection:
            found = select(RolloutRow.rewards, RolloutRow.tokens, RolloutRow.format).where(RolloutRow.sid == sid)
            row = (await connection.execute(found)).one_or_none()
        if row is None:
            return SessionReport()
        rewards, tokens = (json.loads(text) if text else [] for text in row[:2])
        return SessionReport(
            tuple(RewardItem.model_validate(item) for item in rewards),
            tuple(TurnTokens(*turn) for turn in tokens),
            row.format,
        )

    async def save_metrics(self, sid: str, metrics: Mapping[str, float], *, run: str, at: float) -> None:
        """Store the session's metrics, replacing those with the same names."""
        if not metrics:
            return
        statement = self._database.insert(MetricRow)
        statement = statement.on_conflict_do_update(
            index_elements=["sid", "name"], set_={name: statement.excluded[name] for name in ("value", "run", "at")}
        )
        rows = [{"sid": sid, "name": name, "value": value, "run": run, "at": at} for name, value in metrics.items()]
        async with self._database.writing() as connection:
            await connection.execute(statement, rows)

    async def rollup(self, *, since: float, run: str | None = None, owner: str | None = None) -> list[Rollup]:
        """Each metric over the sessions graded at or after `since` (Unix seconds), by run, by owner, or over all."""
        value = MetricRow.value
        found = select(MetricRow.name, func.count(), func.avg(value), func.min(value), func.max(value))
        found = found.where(MetricRow.at >= since).group_by(MetricRow.name).order_by(MetricRow.name)
        if run is not None:
            found = found.where(MetricRow.run == run)
        if owner is not None:
            found = found.where(MetricRow.sid.in_(select(SessionRow.sid).where(SessionRow.owner == owner)))
        async with self._database.reading() as connection:
            return [Rollup(*row) for row in (await connection.execute(found)).all()]
