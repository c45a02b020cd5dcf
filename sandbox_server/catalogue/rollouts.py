"""Metrics of graded sessions, a number a row so that the database makes the means; and what trainers report."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import func, select

from sandbox_server.catalogue.database import Database
from sandbox_server.catalogue.localization.truth import RewardItem
from sandbox_server.catalogue.tables import MetricRow, RolloutRow, SessionRow
from sandbox_server.records import TurnTokens


@dataclass(frozen=True, slots=True)
class Reported:
    """What the trainer said of one session."""

    rewards: tuple[RewardItem, ...] = ()
    """(): nothing, so the instance's or the service's."""
    tokens: tuple[TurnTokens, ...] = ()
    """Of each turn, the first one first; () when it did not say."""


@dataclass(frozen=True, slots=True)
class Rollup:
    """One metric over many sessions."""

    name: str
    count: int
    mean: float
    least: float
    most: float


class Rollouts:
    """Every method raises CatalogueUnavailable when SQL does not answer."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def report(
        self, sid: str, *, rewards: Sequence[RewardItem] | None = None, tokens: Sequence[TurnTokens] | None = None
    ) -> None:
        """Keep what is given; None leaves what was there."""
        values = {
            "sid": sid,
            "rewards": "" if rewards is None else json.dumps([item.model_dump(mode="json") for item in rewards]),
            "tokens": "" if tokens is None else json.dumps([(turn.prompt, turn.response) for turn in tokens]),
        }
        statement = self._database.insert(RolloutRow).values(values)
        given = {"rewards": rewards, "tokens": tokens}
        changed = {name: statement.excluded[name] for name, value in given.items() if value is not None}
        if changed:
            statement = statement.on_conflict_do_update(index_elements=["sid"], set_=changed)
            async with self._database.writing() as connection:
                await connection.execute(statement)

    async def reported(self, sid: str) -> Reported:
        """What was said of the session; nothing, where nothing was."""
        async with self._database.reading() as connection:
            found = select(RolloutRow.rewards, RolloutRow.tokens).where(RolloutRow.sid == sid)
            row = (await connection.execute(found)).one_or_none()
        if row is None:
            return Reported()
        rewards, tokens = (json.loads(text) if text else [] for text in row)
        return Reported(
            tuple(RewardItem.model_validate(item) for item in rewards), tuple(TurnTokens(*turn) for turn in tokens)
        )

    async def save_metrics(self, sid: str, metrics: Mapping[str, float], *, run: str, at: float) -> None:
        """Keep the session's numbers; those of the same names are replaced."""
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
        """Each metric of the sessions graded at or after `since` (Unix seconds), of one run, one owner, or all."""
        value = MetricRow.value
        found = select(MetricRow.name, func.count(), func.avg(value), func.min(value), func.max(value))
        found = found.where(MetricRow.at >= since).group_by(MetricRow.name).order_by(MetricRow.name)
        if run is not None:
            found = found.where(MetricRow.run == run)
        if owner is not None:
            found = found.where(MetricRow.sid.in_(select(SessionRow.sid).where(SessionRow.owner == owner)))
        async with self._database.reading() as connection:
            return [Rollup(*row) for row in (await connection.execute(found)).all()]
