"""A server over real HTTP with in-memory sessions, for tests of the wire formats alone."""

import asyncio
import contextlib
import dataclasses
import socket
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import uvicorn

from sandbox_server import plugins, protocols
from sandbox_server.actions.batch import Command, CommandResult
from sandbox_server.app import Parts, create_app
from sandbox_server.app.websocket_upgrades import Upgraded
from sandbox_server.boxes.blobs import Blobs
from sandbox_server.boxes.boxes import Boxes
from sandbox_server.boxes.copies import Copies
from sandbox_server.boxes.creation import BoxCreation
from sandbox_server.boxes.forks import BoxForks
from sandbox_server.boxes.snapshots import BoxSnapshots
from sandbox_server.boxes.snapshotting import Snapshotting
from sandbox_server.catalogue.database import Database
from sandbox_server.catalogue.history import History
from sandbox_server.catalogue.insight.counts import Counts
from sandbox_server.catalogue.insight.listing import Listing, fits
from sandbox_server.catalogue.insight.records import SessionFilter, SessionWithVerdict
from sandbox_server.catalogue.insight.search import ActionSearch
from sandbox_server.catalogue.instance import SandboxSpec, ScriptGrader, TaskInstance
from sandbox_server.catalogue.instances import Instances
from sandbox_server.catalogue.rollouts import Rollouts
from sandbox_server.catalogue.session_tokens import SessionTokens
from sandbox_server.errors import (
    CapacityError,
    EngineUnavailable,
    OverQuota,
    SandboxLost,
    ServiceError,
    SessionOver,
    SessionStillLive,
    Ungradable,
    UnknownInstance,
    UnknownNode,
    UnknownSession,
)
from sandbox_server.fleet.runs import Runs
from sandbox_server.grading.base import GradeRequest
from sandbox_server.grading.localization.composition import load
from sandbox_server.grading.registry import load_rewards
from sandbox_server.insight.overview import Insight
from sandbox_server.pool.bucket import BucketView
from sandbox_server.pool.lookahead import Failure
from sandbox_server.records import ActionRecord, PatchRecord, SessionRecord
from sandbox_server.scoring.batch_grading import BatchGrading
from sandbox_server.scoring.localizing import Localizing
from sandbox_server.scoring.rewards import RewardAnswer
from sandbox_server.sessions.base import ActionAnswer, BatchAnswer, SessionView
from sandbox_server.sessions.forking import Forking
from sandbox_server.sessions.rollback import Rollback
from sandbox_server.settings import Settings
from sandbox_server.starts.fleet_view import AnnouncementResult, FleetView, PoolView
from sandbox_server.state.logouts import Logouts
from sandbox_server.state.nodes import NodeRecord
from sandbox_server.verdicts import GradedSession, Verdict, VerdictName

from .stub_parts import KeptLogouts, NoBoxes, NoCopies, NoCreation, NoRuns, NoSnapshots

# Import the routes before any test runs. Pydantic parses the source of each model; before CPython 3.11.8 (gh-106905)
# this fails if the garbage collector, at that moment, logs the traceback of a task that failed in an earlier test.
plugins.discover(protocols, "ROUTER")

INSTANCE = TaskInstance(
    instance_id="a__b-1",
    repo="a/b",
    version="1",
    problem_statement="It is broken.",
    sandbox=SandboxSpec(images=("image:latest",)),
    grader=ScriptGrader(command="SECRET-COMMAND"),
    test_patch="SECRET-TEST-PATCH",
    gold_patch="SECRET-GOLD",
    files={"/SECRET-FILE": "SECRET-TEXT"},
    fail_to_pass=("SECRET-TEST",),
    pass_to_pass=("SECRET-OTHER",),
)
HASH = INSTANCE.instance_hash
DIFF = b"diff --git a/x b/x\n+na\xc3\xafve \xff\r\n"


class MemorySessions:
    """Sessions that run nothing; some hashes and contents produce faults."""

    def __init__(self) -> None:
        self.records: dict[str, SessionRecord] = {}
        self.seen: list[tuple[str, str, str]] = []
        self.batches: list[tuple[str, list[Command], str]] = []
        self.closed: list[str] = []
        self.finished: list[str] = []
        self.start_s = 0.0
        self.starting = 0
        """Starts that have begun."""
        self.given_up = 0
        """Starts that were cancelled."""
        self.begun_when_cancelled = False
        self.reported: dict[str, tuple[object, object]] = {}
        self.observation = ""

    async def start(
        self, instance: int | str, *, run: str = "", owner: str = "", idempotency_key: str = "", after: str = ""
    ) -> str:
        match instance:
            case 1:
                raise CapacityError("All slots are taken.", reason="slots", position=3, estimate_s=2.23)
            case 2:
                raise Ungradable("It has no grader.")
            case 3:
                raise SandboxLost("It died at once.")
            case 4:
                raise RuntimeError("a bug of ours: SECRET-BUG")
            case 5:
                raise EngineUnavailable("Docker does not answer.")
            case 6:
                raise OverQuota("It has enough.", retry_after_s=7)
        if instance not in (HASH, "a__b-1"):
            raise UnknownInstance(f"No instance {instance}.")
        self.starting += 1
        try:
            await asyncio.sleep(self.start_s)
        except asyncio.CancelledError:
            self.given_up += 1
            if not self.begun_when_cancelled:
                raise
        sid = str(2**52 + len(self.records))
        now = time.time()
        self.records[sid] = SessionRecord(
            sid, "live", "a__b-1", "n", "c0ffee", now, now, now + 60, run=run, owner=owner
        )
        return sid

    async def give_back(self, sid: str, *, idempotency_key: str = "") -> bool:
        await self.close(sid)
        return True

    async def start_group(
        self, instance: int | str, n: int, *, run: str = "", owner: str = "", idempotency_key: str = ""
    ) -> tuple[list[str], list[ServiceError]]:
        full: list[ServiceError] = [CapacityError("Full.", reason="slots", position=9)] if n > 2 else []
        return [await self.start(instance, run=run, owner=owner) for _ in range(min(n, 2))], full

    async def look_ahead(self, instances: Sequence[int | str]) -> AnnouncementResult:
        unknown = tuple(instance for instance in instances if instance not in (HASH, "a__b-1"))
        return AnnouncementResult(len(instances) - len(unknown), unknown, 0)

    def pool(self) -> PoolView:
        bucket = BucketView("image", parked=1, making=1, waiting=0, wanted=2, instances=("a__b-1",), sids=("5", "6"))
        return PoolView(16, [bucket], ["c__d-2"], [Failure("e__f-3", "image_unavailable", "It is not there.")])

    async def nodes(self) -> list[NodeRecord]:
        return [NodeRecord("n", "http://n:5000", "n/1", parked={"a__b-1": 2}, faults={"disk": "full"})]

    async def drain(self, node: str, *, begin: bool) -> None:
        if node != "n":
            raise UnknownNode(f"no node {node}")

    async def act(self, sid: str, content: str, *, idempotency_key: str = "") -> ActionAnswer:
        self.seen.append((sid, content, idempotency_key))
        if sid not in self.records:
            return ActionAnswer(f"No session {sid}.", "unknown_session")
        if content == "half":
            return ActionAnswer("half a pair: \ud800", seq=1)
        if content == "raise":
            raise SandboxLost("The sandbox is gone.")
        if content in ("slow", "for a minute"):
            await asyncio.sleep(0.5 if content == "slow" else 60)
        self.finished.append(content)
        if self.observation:
            return ActionAnswer(self.observation, seq=1)
        return ActionAnswer(f"saw {len(content)}", seq=1)

    async def exec(self, sid: str, commands: Sequence[Command], *, idempotency_key: str = "") -> BatchAnswer:
        self.batches.append((sid, list(commands), idempotency_key))
        if sid not in self.records:
            raise UnknownSession.of(sid)
        match commands[0].command:
            case "lost":
                raise SandboxLost("The sandbox is gone.")
            case "docker":
                raise EngineUnavailable("Docker does not answer.")
            case "slow":
                await asyncio.sleep(0.5)
        self.finished.append(commands[0].command)
        ran = [CommandResult(0, one.command, "", False, False, 1.5, 0.5) for one in commands]
        return BatchAnswer(ran, 7, "restored" if commands[0].command == "told" else "")

    async def postprocess(self, sid: str) -> SessionRecord | None:
        if sid not in self.records:
            return None
        self.records[sid] = dataclasses.replace(self.records[sid], state="ended", end_reason="postprocess")
        return self.records[sid]

    async def reward(self, sid: str) -> RewardAnswer:
        if sid not in self.records:
            return RewardAnswer(Verdict(VerdictName.UNKNOWN_SESSION, mask=True, cause="No such session."), 0.0)
        verdict = Verdict(VerdictName.RESOLVED, mask=False, cause="All pass.", f2p_count=1, f2p_total=1)
        return RewardAnswer(dataclasses.replace(verdict, patch_exists=True, patch_applied=True), 1, "r-1")

    async def report(self, sid: str, *, rewards: object = None, tokens: object = None, written: object = None) -> None:
        if (await self.view(sid)).record.state != "live":
            raise SessionOver(f"Session {sid} has ended.")
        self.reported[sid] = (rewards, tokens)

    async def close(self, sid: str) -> SessionRecord | None:
        self.closed.append(sid)
        return await self.postprocess(sid)

    async def view(self, sid: str) -> SessionView:
        if sid not in self.records:
            raise UnknownSession.of(sid)
        record = self.records[sid]
        if record.state == "live":
            return SessionView(record, None, None)
        verdict = (await self.reward(sid)).verdict
        graded = GradedSession(sid, "a__b-1", verdict, 1.0, "f2p_fraction", "r-1", 5.0)
        return SessionView(record, graded, PatchRecord(sid, "a__b-1", DIFF, "", "beef", 4.0, "5a"), {"total": 1.5})

    async def state(self, sid: str) -> str:
        return (await self.view(sid)).record.state

    async def patch(self, sid: str) -> PatchRecord:
        patch = (await self.view(sid)).patch
        if patch is None:
            raise SessionStillLive("It is still live.")
        return patch

    async def actions(self, sid: str, *, after: int = 0, limit: int | None = None) -> list[ActionRecord]:
        await self.view(sid)
        only = ActionRecord(sid, 1, "c", "half a pair: \ud800", "execute_bash", "finished", None, 1.0, 0.5)
        return [only] if after == 0 else []

    async def owner(self, sid: str) -> str | None:
        return self.records[sid].owner if sid in self.records else None

    async def list(self, wanted: SessionFilter, *, limit: int = 100) -> list[SessionWithVerdict]:
        found = [SessionWithVerdict(r, None) for r in self.records.values() if fits(r, wanted)]
        return found[::-1][:limit]


class NoJournals:
    """No batches."""


class NoGradings:
    """Replaces the queue of gradings, which needs an engine."""

    async def key(self, request: GradeRequest) -> str:
        return request.sid

    async def verdict(self, request: GradeRequest, key: str) -> Verdict:
        return Verdict(VerdictName.INFRA, mask=True, cause="There is no engine.")

    async def written(self, key: str) -> None:
        pass


@contextlib.asynccontextmanager
async def small_catalogue() -> AsyncIterator[tuple[Database, History, Instances, Rollouts]]:
    """A real database with one instance, one receipt and one rollout."""
    with tempfile.TemporaryDirectory() as folder:
        database = Database(f"sqlite:///{folder}/catalogue.sqlite3")
        await database.migrate()
        history, instances = History(database), Instances(database)
        await instances.add([INSTANCE])
        graded = GradedSession(
            "77", "a__b-1", Verdict(VerdictName.RESOLVED, mask=False, cause="."), 1.0, "f", "r-1", 1.0
        )
        await history.save_graded(graded, {"id": "r-1", "patch_sha256": "5a"}, "key")
        rollouts = Rollouts(database)
        await rollouts.save_metrics("77", {"num_turns": 3}, run="a", at=time.time())
        try:
            yield database, history, instances, rollouts
        finally:
            await database.dispose()


class Wire:
    """The running server, and the state behind it that tests may inspect."""

    def __init__(self, settings: Settings) -> None:
        self.sessions = MemorySessions()
        self.broken: dict[str, Exception | float] = {}
        self.app = create_app(settings, self._build)
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextlib.asynccontextmanager
    async def _build(self, settings: Settings) -> AsyncIterator[Parts]:
        probes = {name: (lambda name=name: self._probe(name)) for name in ("docker", "redis", "sql")}
        async with small_catalogue() as (database, history, instances, rollouts):
            insight = Insight(Counts(database), Listing(database), ActionSearch(database), self.sessions.nodes)
            scoring = Localizing(NoJournals(), rollouts, {}, dialect="", default=load("file_loc"))
            grading = BatchGrading(
                instances,
                NoGradings(),
                scoring,
                load_rewards()["resolved"],
                wait_s=1.0,
                most=8,
                permit=self._permit,
            )
            with tempfile.TemporaryDirectory() as folder:
                yield Parts(
                    self.sessions,
                    history,
                    instances,
                    probes,
                    fleet=cast(FleetView, self.sessions),
                    boxes=cast(Boxes, NoBoxes()),
                    box_creation=cast(BoxCreation, NoCreation()),
                    blobs=Blobs(Path(folder), most_bytes=2**20),
                    grading=grading,
                    rollouts=rollouts,
                    session_tokens=SessionTokens(database),
                    runs=cast(Runs, NoRuns()),
                    logouts=cast(Logouts, KeptLogouts()),
                    copies=cast(Copies, NoCopies()),
                    snapshots=cast(BoxSnapshots, NoSnapshots()),
                    snapshotting=cast(Snapshotting, NoSnapshots()),
                    box_forks=cast(BoxForks, NoSnapshots()),
                    forking=cast(Forking, NoCopies()),
                    rollback=cast(Rollback, NoCopies()),
                    insight=insight,
                )

    async def _permit(self, account: str) -> None:
        if account == "spent":
            raise OverQuota("Its gradings took all they may.", retry_after_s=9)

    async def _probe(self, name: str) -> None:
        match self.broken.get(name):
            case float(seconds):
                await asyncio.sleep(seconds)
            case Exception() as error:
                raise error


def read_answer(connection: socket.socket) -> bytes:
    """Read one response, head and body, which may arrive in several pieces."""
    with connection.makefile("rb") as stream:
        head = b"".join(iter(stream.readline, b"\r\n"))
        length = next(line for line in head.splitlines() if line.lower().startswith(b"content-length:"))
        return head + stream.read(int(length.split(b":")[1]))


@contextlib.contextmanager
def serving(data_dir: Path, **values: object) -> Iterator[Wire]:
    """Run a server on a free port, on a thread, during the block."""
    wire = Wire(Settings(data_dir=data_dir, **values))
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    wire.port = listener.getsockname()[1]
    sockets: dict[str, Any] = {"ws": Upgraded, "ws_max_size": 2**16, "ws_per_message_deflate": False}
    config = uvicorn.Config(wire.app, http="httptools", loop="uvloop", log_config=None, backlog=2048, **sockets)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.005)
        yield wire
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()
    assert not thread.is_alive()
