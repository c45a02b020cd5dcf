"""The order of a list's rows, by the query parameter `sort`: a column's name, or with `-` before it the reverse."""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Annotated, Any, TypeVar

from fastapi import Query

from sandbox_server.catalogue.insight.records import SessionWithVerdict

T = TypeVar("T")

Sort = Annotated[str, Query(max_length=40, pattern="^(-?[a-z_]+)?$")]


def ordered(rows: Sequence[T], sort: str, columns: Mapping[str, Callable[[T], Any]]) -> Sequence[T]:
    """The rows in the order of `sort`, those without a value last; unchanged if there is no such column."""
    if (value := columns.get(sort.removeprefix("-"))) is None:
        return rows
    have = [row for row in rows if value(row) is not None]
    have.sort(key=value, reverse=sort.startswith("-"))
    return [*have, *(row for row in rows if value(row) is None)]


def _fields(*names: str) -> Mapping[str, Callable[[Any], Any]]:
    return {name: attrgetter(name) for name in names}


RUNS = _fields("run", "sessions", "graded", "resolved", "masked", "lost", "mean_reward", "first", "last")
GROUPS = _fields("instance_id", "run", "kind", "graded", "masked", "least", "mean", "most", "last")
RATES = _fields("instance_id", "now", "graded", "before", "graded_before")
NODES = _fields("node", "status", "used", "waiting", "gradings")


def _lasted(seen: SessionWithVerdict) -> float | None:
    return seen.record.ended_at - seen.record.created_at if seen.record.ended_at else None


def _reward(seen: SessionWithVerdict) -> float | None:
    return seen.summary.reward if seen.summary and not seen.summary.mask else None


SESSIONS: Mapping[str, Callable[[SessionWithVerdict], Any]] = {
    "state": lambda seen: seen.record.state,
    "verdict": lambda seen: seen.summary and seen.summary.verdict,
    "reward": _reward,
    "instance_id": lambda seen: seen.record.instance_id,
    "run": lambda seen: seen.record.run,
    "actions": lambda seen: seen.record.actions,
    "lasted": _lasted,
    "created_at": lambda seen: seen.record.created_at,
    "node": lambda seen: seen.record.node,
}
