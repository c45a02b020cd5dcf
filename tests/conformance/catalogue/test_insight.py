"""Counts, groups, rates and lists over many sessions, on each database."""

import json
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text

from sandbox_server import clock
from sandbox_server.catalogue.database import Database
from sandbox_server.catalogue.history import History
from sandbox_server.catalogue.insight.counts import HOUR_S, Counts
from sandbox_server.catalogue.insight.listing import Listing, fits
from sandbox_server.catalogue.insight.records import (
    Group,
    GroupKind,
    PassRate,
    SessionFilter,
    UnsoundInstance,
    VerdictCount,
)
from sandbox_server.catalogue.insight.search import ActionSearch
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.catalogue.instances import Instances
from sandbox_server.catalogue.rollouts import Rollouts
from sandbox_server.insight.overview import Insight
from sandbox_server.insight.rates import DAY_S, PassRates
from sandbox_server.protocols.insight import overview_fields
from sandbox_server.records import PatchRecord, SessionRecord
from sandbox_server.state.nodes import NodeRecord
from sandbox_server.verdicts import GradedSession, Verdict, VerdictName

R, U, E, I = VerdictName.RESOLVED, VerdictName.UNRESOLVED, VerdictName.EMPTY_PATCH, VerdictName.INFRA  # noqa: E741
# (sid, run, instance, node, created, verdict, mask, reward); graded 50 s after its start
ROWS = [
    ("1", "a", "x-1", "n1", 1000.0, R, False, 1.0),
    ("2", "a", "x-1", "n1", 1010.0, U, False, 0.0),
    ("3", "a", "x-2", "n2", 1020.0, R, False, 1.0),
    ("4", "a", "x-2", "n2", 1020.0, R, False, 1.0),
    ("5", "b", "x-1", "n1", 1030.0, E, False, 0.0),
    ("6", "b", "x-1", "n1", 1040.0, I, True, 0.0),
    ("7", "b", "x-3", "n1", 1050.0, I, True, 0.0),
    ("8", "b", "x-3", "n1", 1060.0, None, False, 0.0),
    ("9", "", "", "n1", 1070.0, None, False, 0.0),
]


@pytest.fixture
async def counts(database: Database) -> Counts:
    history = History(database)
    for sid, run, instance, node, at, name, mask, reward in ROWS:
        over = name is not None
        record = SessionRecord(sid, "ended" if over else "live", instance, node, "c", at, at, at + 999, run=run)
        if over:
            spent = {"action_run": 2.0, "end_patch": 1.0}
            record = replace(record, ended_at=at + 40, end_reason="postprocess", timings_s=spent)
            cause = "image_unavailable: \0\ud800 x" if mask else ""
            verdict = Verdict(name, mask, cause, timings_s={"queue": 3.0, "total": 7.0}, tripwires={"runner_files": 1})
            graded = GradedSession(sid, instance, verdict, reward, "f", f"r{sid}", at + 50)
            await history.save_graded(graded, {}, "key")
        await history.save_session(record)
    return Counts(database)


async def test_verdicts_of_a_window(counts: Counts) -> None:
    assert await counts.verdicts(1000, 1090) == [
        VerdictCount("resolved", False, 3, 3.0),
        VerdictCount("empty_patch", False, 1, 0.0),
        VerdictCount("unresolved", False, 1, 0.0),
    ]
    assert await counts.verdicts(1090, 2000, "b") == [VerdictCount("infra", True, 2, 0.0)]
    assert await counts.verdicts(2000, 3000) == []
    assert await counts.masked_causes(0, 2000) == {"image_unavailable": 2}
    assert await counts.masked_causes(0, 2000, "a") == {}
    assert await counts.ends(1, 2000, "a") == {"postprocess": 4}


async def test_groups(counts: Counts) -> None:
    """Masked members would make a flat group look mixed."""
    found = await counts.groups(0)
    assert [(group.run, group.instance_id, group.kind) for group in found] == [
        ("b", "x-3", GroupKind.MASKED),
        ("b", "x-1", GroupKind.SINGLE),
        ("a", "x-2", GroupKind.ALL_1),
        ("a", "x-1", GroupKind.MIXED),
    ]
    assert await counts.groups(0, run="a", instance="x-1") == [
        Group("a", "x-1", 2, 0, 0.0, 1.0, 0.5, 1000.0, 1060.0),
    ]
    assert len(await counts.groups(1090)) == 2


@pytest.mark.parametrize("members", [1, 40])
async def test_the_groups_graded_last(counts: Counts, members: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the newest verdicts would be members, or a large group would hide the ones before it."""
    monkeypatch.setattr("sandbox_server.catalogue.insight.counts._MEMBERS", members)
    found = await counts.groups(0)
    for limit in (1, 2, 3, 4, 5):
        assert await counts.groups(0, limit=limit) == found[:limit]


async def test_runs_rates_and_times(counts: Counts) -> None:
    runs = await counts.runs(0)
    assert [(r.run, r.sessions, r.graded, r.masked, r.resolved, r.mean_reward) for r in runs] == [
        ("b", 4, 3, 2, 0, 0.0),
        ("a", 4, 4, 0, 3, 0.75),
    ]
    (newest, *_) = found = await counts.timed(1, 2000, run="b")
    assert len(found) == 3 and newest.ended_at == 1090.0 and newest.timings_s["action_run"] == 2.0
    assert (newest.queue_s, newest.grade_s) == (3.0, 7.0) and newest.tripwires == {"runner_files": 1}
    assert await counts.timed(1, 1000) == []


async def test_pass_rates_of_a_day(counts: Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    """A verdict that a day leaves must be in the days before it, in the same moment."""
    at = DAY_S + HOUR_S - 1
    monkeypatch.setattr(clock, "now", lambda: at)
    rates = PassRates(counts)
    assert {rate.instance_id: rate for rate in await rates.now()} == {
        "x-1": PassRate("x-1", 1, 3, 0, 0),
        "x-2": PassRate("x-2", 2, 2, 0, 0),
    }
    at += 1
    assert {rate.instance_id: rate for rate in await rates.now()} == {
        "x-1": PassRate("x-1", 0, 0, 1, 3),
        "x-2": PassRate("x-2", 0, 0, 2, 2),
    }
    at += 7 * DAY_S
    assert await rates.now() == []


async def test_hours_count_what_verdicts_are(counts: Counts, database: Database) -> None:
    """Pass rates would drift: a verdict replaces another, an older server writes one, the table comes later."""
    history = History(database)
    again = GradedSession("6", "x-1", Verdict(R, False, ""), 1.0, "f", "r6b", HOUR_S + 1)
    await history.save_graded(again, {}, "key")
    assert await counts.passed(0) == {"x-1": (2, 4), "x-2": (2, 2)}
    assert await counts.passed(1) == {"x-1": (1, 1)}
    async with database.writing() as connection:
        await connection.execute(text("UPDATE verdicts SET name = 'unresolved', graded_at = 50 WHERE sid = '6'"))
        await connection.execute(text("DELETE FROM verdicts WHERE sid = '1'"))
    assert await counts.passed(0, 1) == {"x-1": (0, 3), "x-2": (2, 2)}
    assert await counts.passed(1) == {}

    config = Config()
    config.set_main_option("script_location", "sandbox_server.catalogue:migrations")

    def back(connection: Connection) -> None:
        config.attributes["connection"] = connection
        command.downgrade(config, "0019")

    async with database.writing() as connection:
        await connection.run_sync(back)
    at = clock.now()
    await history.save_graded(GradedSession("8", "x-3", Verdict(R, False, ""), 1.0, "f", "r8", at), {}, "key")
    await database.migrate()
    assert await counts.passed(int(at // HOUR_S)) == {"x-3": (1, 1)}


async def test_verdicts_of_an_older_version(counts: Counts, database: Database) -> None:
    """It writes neither run nor begin beside the verdict."""
    of_a = await counts.groups(0, run="a")
    everything = (await counts.groups(0), of_a, await counts.groups(0, limit=2), await counts.verdicts(0, 2000, "b"))
    assert of_a and all(group.run == "a" and group.first for group in of_a)
    async with database.writing() as connection:
        await connection.execute(text("UPDATE verdicts SET run = NULL, began_at = NULL WHERE instance_id = 'x-1'"))
    again = (await counts.groups(0), await counts.groups(0, run="a"), await counts.groups(0, limit=2))
    assert (*again, await counts.verdicts(0, 2000, "b")) == everything
    async with database.writing() as connection:
        await connection.execute(text("DELETE FROM sessions WHERE instance_id = 'x-1'"))
    known = [group for group in everything[0] if group.instance_id != "x-1"]
    assert known and await counts.groups(0) == known  # a verdict without a session is in no group


async def test_instances_in_use_that_are_not_sound(counts: Counts, database: Database) -> None:
    instances = Instances(database)
    sandbox = {"images": ["i:latest"]}
    rows = [{"instance_id": name, "repo": "a/b", "sandbox": sandbox} for name in ("x-1", "x-2", "x-3")]
    await instances.add([TaskInstance.model_validate_json(json.dumps(row)) for row in rows])
    await instances.mark_verified("x-1", "unresolved", "unresolved", 5.0)
    await instances.mark_verified("x-2", "resolved", "unresolved", 5.0)
    assert await counts.unsound(0) == [UnsoundInstance("x-1", "unresolved", "unresolved", 4)]
    assert await counts.unsound(0, "a") == [UnsoundInstance("x-1", "unresolved", "unresolved", 2)]
    assert await counts.unsound(1035) == [UnsoundInstance("x-1", "unresolved", "unresolved", 1)]


async def test_an_overview(counts: Counts, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that it rests on, as JSON has it."""

    async def nodes() -> list[NodeRecord]:
        return [NodeRecord("n1", "http://n1", "b", slots=8)]

    monkeypatch.setattr(clock, "now", lambda: 1200.0)
    insight = Insight(counts, Listing(database), ActionSearch(database), nodes)
    seen = json.loads(json.dumps(overview_fields(await insight.overview(window_s=600.0))))
    assert (seen["word"], [found["rule"] for found in seen["findings"]]) == ("infrastructure", ["masked_infra"])
    assert seen["groups"] == {"masked": 1, "single": 1, "all_1": 1, "mixed": 1} and seen["masked_members"] == 1
    assert seen["tripwires"] == {"runner_files": 7} and seen["causes"] == {"image_unavailable": 2}
    assert seen["wall"]["sessions"] == 7 and list(seen["wall_by_run"]) == ["a", "b"] and "nodes" not in seen
    assert (await insight.overview(run="a", window_s=600.0)).word == "fine"


WANTED = (
    (SessionFilter(), "987654321"),
    (SessionFilter(state="live"), "98"),
    (SessionFilter(run="a", instance="x-2"), "43"),
    (SessionFilter(verdict="resolved"), "431"),
    (SessionFilter(masked=True, run="b"), "76"),
    (SessionFilter(masked=False, node="n2"), "43"),
    (SessionFilter(since=1050.0), "987"),
)


@pytest.mark.parametrize("rare", [2, 500])
async def test_lists(counts: Counts, database: Database, rare: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sessions that began at once would be shown twice, or one never; by a rare verdict and a frequent one."""
    monkeypatch.setattr("sandbox_server.catalogue.insight.listing._RARE", rare)
    listing = Listing(database)
    for wanted, sids in WANTED:
        assert await _pages(listing, wanted, 1) == await _pages(listing, wanted, 2) == list(sids), wanted
        for seen in await listing.sessions(wanted, limit=100):
            row = ROWS[int(seen.record.sid) - 1]
            graded = None if row[5] is None else (row[5].value, row[6])
            assert (seen.summary and (seen.summary.verdict, seen.summary.mask)) == graded
            assert fits(seen.record, wanted)
    found = await listing.verdicts_of("x-1", limit=2)
    assert [(sid, one.verdict, grade_s) for sid, one, grade_s in found] == [
        ("6", "infra", 7.0),
        ("5", "empty_patch", 7.0),
    ]


async def test_tokens_of_a_group(counts: Counts, database: Database) -> None:
    rollouts = Rollouts(database)
    await rollouts.save_metrics("1", {"tokens": 4000.0, "steps": 3.0}, run="a", at=1050.0)
    await rollouts.save_metrics("3", {"tokens": 5.0}, run="a", at=1050.0)
    assert await Listing(database).tokens_of(["1", "2"]) == {"1": 4000.0}
    assert await Listing(database).tokens_of([]) == {}


async def test_patches_that_several_instances_share(counts: Counts, database: Database) -> None:
    """A change of how tests run fits many instances, and is in no other list."""
    history, large = History(database), b"+" * (1 << 16) + b"!"
    patches = {"1": b"+same", "2": b"+own", "3": b"+same", "4": b"+of one", "5": large, "6": b"", "7": large}
    for sid, diff in patches.items():
        digest = sha256(diff).hexdigest()
        await history.save_patch(PatchRecord(sid, ROWS[int(sid) - 1][2], diff, "", "c", 1040.0, digest))
    await history.save_patch(PatchRecord("8", "x-3", None, "gone", "c", 1040.0))

    async def nodes() -> list[NodeRecord]:
        return []

    insight = Insight(counts, Listing(database), ActionSearch(database), nodes)
    seen = await insight.overview(window_s=clock.now())
    same = "patch:identical to one of another instance"
    assert seen.tripwires == {"runner_files": 7, same: 2}
    assert set(seen.tripped[same]) == {"1", "3"} and len(seen.tripped["runner_files"]) == 3
    assert (await insight.overview(run="b", window_s=clock.now())).tripwires == {"runner_files": 3}


async def _pages(listing: Listing, wanted: SessionFilter, limit: int) -> Sequence[str]:
    sids: list[str] = []
    while page := await listing.sessions(wanted, limit=limit):
        sids += [seen.record.sid for seen in page]
        wanted = replace(wanted, before=(page[-1].record.created_at, page[-1].record.sid))
    return sids
