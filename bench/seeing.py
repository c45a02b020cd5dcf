"""Latency of the pages and their JSON with many sessions: fill a SQLite catalogue, serve it, send requests.

    python -m bench.seeing --sessions 100000 --database /tmp/seeing.sqlite3

The server is the application over a real catalogue; sessions are only in SQL and the single node is fictitious.
"""

import argparse
import asyncio
import contextlib
import json
import random
import statistics
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import httpx
from sqlalchemy import insert

from sandbox_server.app import Parts, create_app
from sandbox_server.catalogue.database import Database
from sandbox_server.catalogue.history import History, kind_of
from sandbox_server.catalogue.insight.counts import Counts
from sandbox_server.catalogue.insight.listing import Listing
from sandbox_server.catalogue.insight.records import Seen, SessionFilter
from sandbox_server.catalogue.insight.search import ActionSearch
from sandbox_server.catalogue.instance import SandboxSpec, TaskInstance
from sandbox_server.catalogue.instances import Instances
from sandbox_server.catalogue.tables import VerdictRow
from sandbox_server.errors import UnknownSession
from sandbox_server.insight.overview import Insight
from sandbox_server.records import (
    ActionRecord,
    PatchRecord,
    SessionRecord,
    VerdictName,
)
from sandbox_server.sessions.base import Sessions, SessionView
from sandbox_server.settings import Settings
from sandbox_server.state.nodes import NodeRecord

_DAYS = 8
_INSTANCES = 500
_ACTIONS = 20
"""In one session of a hundred; the others have none, because the pages show one session at a time."""
_BATCH = 1000
_NAMES = (VerdictName.RESOLVED, VerdictName.UNRESOLVED, VerdictName.EMPTY_PATCH, VerdictName.TIMEOUT, VerdictName.INFRA)
_WEIGHTS = (35, 50, 10, 3, 2)


class Kept:
    """The sessions of a catalogue that nobody runs."""

    def __init__(self, history: History, listing: Listing) -> None:
        self._history = history
        self._listing = listing

    async def view(self, sid: str) -> SessionView:
        record = await self._history.session(sid)
        if record is None:
            raise UnknownSession(f"no session {sid}")
        return SessionView(record, await self._history.graded(sid), await self._history.patch(sid), {}, {})

    async def actions(self, sid: str, *, after: int = 0, limit: int | None = None) -> "list[ActionRecord]":
        return await self._history.actions(sid, after=after, limit=limit)

    async def nodes(self) -> "list[NodeRecord]":
        return [NodeRecord("n1", "http://n1", "b", slots=512, used=100)]

    async def list(self, wanted: SessionFilter, *, limit: int = 100) -> "list[Seen]":
        return await self._listing.sessions(wanted, limit=limit)


async def fill(database: Database, sessions: int) -> None:
    """Sessions of the last eight days, evenly distributed, in groups of eight, of four runs."""
    history, instances, draw = History(database), Instances(database), random.Random(7)
    image = SandboxSpec(images=("image:latest",))
    tasks = [TaskInstance(instance_id=f"bench__task-{n}", repo="a/b", sandbox=image) for n in range(_INSTANCES)]
    await instances.add(tasks)
    now = time.time()
    for begin in range(0, sessions, _BATCH):
        records = [_record(n, now - _DAYS * 86_400 * (1 - n / sessions), draw) for n in range(begin, begin + _BATCH)]
        await history.save_sessions(records)
        async with database.writing() as connection:  # in one transaction: singly they would take an hour of fsync
            await connection.execute(insert(VerdictRow), [_graded(record, draw) for record in records])
        for record in records[::100]:
            await history.add_actions([_action(record, seq) for seq in range(1, _ACTIONS + 1)])
            diff = b"+a line\n" * 200
            await history.save_patch(PatchRecord(record.sid, record.instance_id, diff, "", "b", record.ended_at, "s"))
        if begin % 10_000 == 0:
            print(f"{begin} of {sessions}", flush=True)


def _record(n: int, at: float, draw: random.Random) -> SessionRecord:
    spent = {"start_queue": draw.random(), "start_container": 0.3, "action_run": 30 * draw.random(), "end_patch": 0.4}
    lasted = draw.uniform(60, 600)
    return SessionRecord(
        sid=str(10**9 + n),
        state="ended",
        instance_id=f"bench__task-{n // 8 % _INSTANCES}",
        node="n1",
        container_id="c" * 64,
        created_at=at - lasted,
        touched_at=at,
        deadline=at,
        actions=_ACTIONS,
        ended_at=at,
        end_reason="postprocess",
        timings_s=spent,
        run=f"run-{n // 8 % 4}",
    )


def _graded(record: SessionRecord, draw: random.Random) -> dict[str, object]:
    name = draw.choices(_NAMES, _WEIGHTS)[0]
    log = "a line of a test log\n" * 120
    body = {"name": name, "mask": name is VerdictName.INFRA, "cause": "engine_unavailable: no answer", "log_tail": log}
    return {
        "sid": record.sid,
        "instance_id": record.instance_id,
        "name": name.value,
        "mask": body["mask"],
        "grade_key": record.sid,
        "reward": float(name is VerdictName.RESOLVED),
        "reward_name": "f",
        "receipt": f"r{record.sid}",
        "graded_at": record.ended_at + 20,
        "body": json.dumps(body),
        "cause_kind": kind_of(name, str(body["cause"])),
        "queue_s": 1.0,
        "grade_s": 19.0,
        "tripwires": {},
    }


def _action(record: SessionRecord, seq: int) -> ActionRecord:
    text = "an observation with \x1b[31mcolours\x1b[0m and <tags>\n" * 60
    return ActionRecord(record.sid, seq, "ls -la\n" * 10, text, "execute_bash", "ok", 0, record.created_at + seq, 0.5)


@contextlib.asynccontextmanager
async def _parts(database: Database) -> AsyncIterator[Parts]:
    history, listing = History(database), Listing(database)
    kept = Kept(history, listing)
    insight = Insight(Counts(database), listing, ActionSearch(database), kept.nodes)
    yield Parts(cast(Sessions, kept), history, Instances(database), {}, insight=insight)


async def measure(database: Database, repeat: int) -> dict[str, dict[str, float]]:
    """Path -> median and maximum of whole requests, and their CPU, in ms; the database works in this process."""
    app = create_app(Settings(), lambda _: _parts(database))
    found: dict[str, dict[str, float]] = {}
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://bench", timeout=600) as client:
            newest = (await client.get("/v1/sessions?limit=200")).json()
            sid = next(one["sid"] for one in newest if int(one["sid"]) % 100 == 0)
            insight = cast(Insight, app.state.insight)
            for path in (
                "/ui",
                "/ui?window_s=86400",
                "/ui?run=run-1",
                f"/ui/sessions/{sid}",
                "/ui/sessions",
                "/ui/sessions?verdict=infra",
                "/ui/sessions?run=run-1&instance=bench__task-5",
                "/ui/runs",
                "/ui/groups",
                "/ui/groups?kind=all_0",
                "/ui/pass-rates",
                "/ui/instances/bench__task-5",
            ):
                spent, worked = [], []
                for _ in range(repeat):
                    insight.forget()
                    began, cpu = time.perf_counter(), time.process_time()
                    answer = await client.get(path)
                    spent.append(1000 * (time.perf_counter() - began))
                    worked.append(1000 * (time.process_time() - cpu))
                    assert answer.status_code == 200, (path, answer.text)
                times = {
                    "p50_ms": statistics.median(spent),
                    "max_ms": max(spent),
                    "cpu_p50_ms": statistics.median(worked),
                }
                found[path] = {name: round(value, 1) for name, value in times.items()}
    return found


async def _run(options: Any) -> None:
    fresh = not options.database.exists()
    database = Database(f"sqlite:///{options.database}")
    await database.migrate()
    if fresh:
        await fill(database, options.sessions)
    for path, spent in (await measure(database, options.repeat)).items():
        print(f"{path:<50} {json.dumps(spent)}")
    await database.dispose()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--database", type=Path, required=True, help="Created and filled if missing.")
    parser.add_argument("--repeat", type=int, default=15)
    asyncio.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
