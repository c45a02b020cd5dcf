"""Permanent records of sessions, actions, patches, verdicts and receipts; Redis holds only their live state."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from functools import cached_property
from typing import Any

from sqlalchemy import ColumnElement, Connection, Executable, Row, delete, or_, select

from sandbox_server.catalogue import action_words
from sandbox_server.catalogue.database import Database
from sandbox_server.catalogue.tables import ActionRow, Base, PatchRow, ReceiptRow, SessionRow, VerdictRow
from sandbox_server.errors import UnknownReceipt
from sandbox_server.records import ActionRecord, PatchRecord, SessionRecord
from sandbox_server.verdicts import Answer, Confirmation, GradedSession, RewardValue, Score, Verdict, VerdictName


def _columns(table: type[Base], record: type) -> list[Any]:
    """The table's columns for a record, in the record's order; they have the names of its fields."""
    return [getattr(table, field.name) for field in fields(record)]


_SESSION = _columns(SessionRow, SessionRecord)
_ACTION = _columns(ActionRow, ActionRecord)
_ACTION_FIELDS = [field.name for field in fields(ActionRecord)]
_PATCH = _columns(PatchRow, PatchRecord)
_GRADED = [
    VerdictRow.sid,
    VerdictRow.instance_id,
    VerdictRow.body,
    VerdictRow.reward,
    VerdictRow.reward_name,
    VerdictRow.receipt,
    VerdictRow.graded_at,
]

_LONGEST_CODE = 60
_NEWEST = 5  # gradings averaged to predict the next one's duration


class History:
    """The history in SQL. Every method raises CatalogueUnavailable if SQL does not answer; nothing is changed then."""

    def __init__(self, database: Database, *, searched: bool = False) -> None:
        """`searched`: index the words of actions, for `catalogue.insight.search`."""
        self._database = database
        self._searched = searched

    async def save_session(self, record: SessionRecord) -> None:
        """Write the session over its last version; a late write does not revive a session that has ended."""
        await self.save_sessions([record])

    async def save_sessions(self, records: Sequence[SessionRecord]) -> None:
        """As `save_session`, all or none."""
        if not records:
            return
        names = [field.name for field in fields(SessionRecord)]
        values = [{name: getattr(record, name) for name in names} for record in records]  # asdict() copies each value

        def saved(connection: Connection) -> None:
            connection.execute(self._save_sessions, values)

        await self._database.write(saved)

    @cached_property
    def _save_sessions(self) -> Executable:
        # built once: it takes 2 ms, which each start and each end would otherwise spend
        statement = self._database.insert(SessionRow)
        return statement.on_conflict_do_update(
            index_elements=["sid"],
            set_={field.name: statement.excluded[field.name] for field in fields(SessionRecord) if field.name != "sid"},
            where=or_(SessionRow.ended_at == 0, statement.excluded.ended_at != 0),
        )

    async def session(self, sid: str) -> SessionRecord | None:
        """The session, or None if there never was one."""
        row = await self._one(select(*_SESSION).where(SessionRow.sid == sid))
        return None if row is None else SessionRecord(*row)

    async def sessions(
        self,
        *,
        state: str | None = None,
        node: str | None = None,
        run: str | None = None,
        owner: str | None = None,
        limit: int = 100,
    ) -> list[SessionRecord]:
        """The sessions that match, newest first."""
        filters: list[ColumnElement[bool]] = []
        if state is not None:
            filters.append(SessionRow.state == state)
        if node is not None:
            filters.append(SessionRow.node == node)
        if run is not None:
            filters.append(SessionRow.run == run)
        if owner is not None:
            filters.append(SessionRow.owner == owner)
        newest = select(*_SESSION).where(*filters).order_by(SessionRow.created_at.desc(), SessionRow.sid).limit(limit)
        return [SessionRecord(*row) for row in await self._all(newest)]

    async def add_actions(self, records: Sequence[ActionRecord]) -> None:
        """Append to the journal; an entry whose (sid, seq) exists is left unchanged."""
        if not records:
            return
        statement = self._database.insert(ActionRow).on_conflict_do_nothing(index_elements=["sid", "seq"])

        def added(connection: Connection) -> None:
            connection.execute(
                statement, [{name: getattr(record, name) for name in _ACTION_FIELDS} for record in records]
            )
            if self._searched:
                action_words.index(connection, records)

        await self._database.write(added)

    async def actions(self, sid: str, *, after: int = 0, limit: int | None = None) -> list[ActionRecord]:
        """The session's journal after number `after`, oldest first, at most `limit` entries."""
        journal = select(*_ACTION).where(ActionRow.sid == sid, ActionRow.seq > after).order_by(ActionRow.seq)
        journal = journal.limit(limit)
        return [ActionRecord(*row) for row in await self._all(journal)]

    async def save_patch(self, record: PatchRecord) -> PatchRecord:
        """Store the session's patch; the first one stored wins and is returned."""
        statement = self._database.insert(PatchRow).values(asdict(record)).on_conflict_do_nothing()

        def saved(connection: Connection) -> PatchRecord:
            connection.execute(statement)
            return PatchRecord(*connection.execute(select(*_PATCH).where(PatchRow.sid == record.sid)).one())

        return await self._database.write(saved)

    async def remove_patch(self, record: PatchRecord) -> None:
        """Remove this patch, unless another one is stored for its session."""
        ours = (PatchRow.sid == record.sid, PatchRow.captured_at == record.captured_at)

        def removed(connection: Connection) -> None:
            connection.execute(delete(PatchRow).where(*ours, PatchRow.sha256 == record.sha256))

        await self._database.write(removed)

    async def patch(self, sid: str) -> PatchRecord | None:
        """The session's patch, or None if it has not been captured."""
        row = await self._one(select(*_PATCH).where(PatchRow.sid == sid))
        return None if row is None else PatchRecord(*row)

    async def save_graded(self, graded: GradedSession, receipt: Mapping[str, object], grade_key: str) -> GradedSession:
        """Store the verdict and its receipt together; returns the session's final verdict.

        Only an `infra` verdict is ever replaced: of two gradings of a session the first with a result wins, and the
        session keeps that answer. If the receipt has `timings_s`, it gets `store`: seconds from this call until the
        receipt is written.
        """
        began = time.monotonic()
        values = {
            "sid": graded.sid,
            "instance_id": graded.instance_id,
            "name": graded.verdict.name.value,
            "mask": graded.verdict.mask,
            "grade_key": grade_key,
            "reward": graded.reward,
            "reward_name": graded.reward_name,
            "receipt": graded.receipt,
            "graded_at": graded.graded_at,
            "body": _verdict_json(graded.verdict),
            "cause_kind": kind_of(graded.verdict.name, graded.verdict.cause),
            "queue_s": graded.verdict.timings_s.get("queue", 0.0),
            "grade_s": graded.verdict.timings_s.get("total", 0.0),
            "tripwires": graded.verdict.tripwires,
            "run": select(SessionRow.run).where(SessionRow.sid == graded.sid).scalar_subquery(),
            "began_at": select(SessionRow.created_at).where(SessionRow.sid == graded.sid).scalar_subquery(),
        }
        verdict = self._database.insert(VerdictRow).values(values)
        verdict = verdict.on_conflict_do_update(
            index_elements=["sid"],
            set_={name: verdict.excluded[name] for name in values if name != "sid"},
            where=VerdictRow.name == VerdictName.INFRA.value,
        )

        def saved(connection: Connection) -> GradedSession:
            row = connection.execute(verdict.returning(*_GRADED)).one_or_none()
            body = dict(receipt)
            if isinstance(timings_s := receipt.get("timings_s"), Mapping):
                body["timings_s"] = {**timings_s, "store": time.monotonic() - began}
            kept = self._database.insert(ReceiptRow).values(
                id=graded.receipt, sid=graded.sid, created_at=graded.graded_at, body=json.dumps(body, default=_plain)
            )
            connection.execute(kept.on_conflict_do_nothing())
            if row is None:  # an earlier verdict stands
                row = connection.execute(select(*_GRADED).where(VerdictRow.sid == graded.sid)).one()
            return _graded(row)

        return await self._database.write(saved)

    async def graded(self, sid: str) -> GradedSession | None:
        """The session's verdict, or None before the first."""
        row = await self._one(select(*_GRADED).where(VerdictRow.sid == sid))
        return None if row is None else _graded(row)

    async def verdict_by_key(self, grade_key: str) -> Verdict | None:
        """The newest unmasked verdict with this key. Masked ones are left out: a fault does not belong to the patch."""
        found = select(VerdictRow.body).where(VerdictRow.grade_key == grade_key, VerdictRow.mask.is_(False))
        row = await self._one(found.order_by(VerdictRow.graded_at.desc()).limit(1))
        return None if row is None else _verdict(row[0])

    async def grading_seconds(self, instance_id: str) -> float | None:
        """Average duration of the newest gradings of the instance, without their wait for a slot.

        Counts unmasked verdicts whose tests ran; None if there are none.
        """
        found = select(VerdictRow.body).where(VerdictRow.instance_id == instance_id, VerdictRow.mask.is_(False))
        rows = await self._all(found.order_by(VerdictRow.graded_at.desc()).limit(_NEWEST))
        timings = [_verdict(row[0]).timings_s for row in rows]
        seconds = [stages["total"] for stages in timings if "tests" in stages and "total" in stages]
        return sum(seconds) / len(seconds) if seconds else None

    async def receipt(self, receipt_id: str) -> dict[str, object]:
        """The stored receipt: what the grading used and found.

        Raises:
            UnknownReceipt.

        """
        row = await self._one(select(ReceiptRow.body).where(ReceiptRow.id == receipt_id))
        if row is None:
            raise UnknownReceipt(f"no receipt {receipt_id!r}; the `receipt` of a reward is its id")
        receipt: dict[str, object] = json.loads(row[0])
        return receipt

    async def receipt_owner(self, receipt_id: str) -> str | None:
        """The owner of the receipt's session; None if there is no such receipt or session."""
        found = select(SessionRow.owner).join(ReceiptRow, ReceiptRow.sid == SessionRow.sid)
        row = await self._one(found.where(ReceiptRow.id == receipt_id))
        return None if row is None else str(row[0])

    async def ungraded(
        self,
        node: str | None = None,
        *,
        started_after: float = 0.0,
        ended_before: float | None = None,
        limit: int = 10_000,
    ) -> list[str]:
        """Sids of ended sessions with a patch but without a verdict, oldest first.

        Sessions with an `infra` verdict are not included: they are graded again when their reward is requested, not at
        each start. The bounds are Unix seconds.
        """
        undone = (
            select(SessionRow.sid)
            .join(PatchRow, PatchRow.sid == SessionRow.sid)
            .outerjoin(VerdictRow, VerdictRow.sid == SessionRow.sid)
            .where(SessionRow.state == "ended", VerdictRow.sid.is_(None), SessionRow.created_at > started_after)
            .order_by(SessionRow.ended_at)
            .limit(limit)
        )
        if node is not None:
            undone = undone.where(SessionRow.node == node)
        if ended_before is not None:
            undone = undone.where(SessionRow.ended_at < ended_before)
        return [row[0] for row in await self._all(undone)]

    async def _one(self, statement: Executable) -> Row[*tuple[Any, ...]] | None:
        return await self._database.read(lambda connection: connection.execute(statement).one_or_none())

    async def _all(self, statement: Executable) -> Sequence[Row[*tuple[Any, ...]]]:
        return await self._database.read(lambda connection: connection.execute(statement).all())


def kind_of(verdict: str, cause: str) -> str:
    """Kind of a cause, for `infra`: the error code before its colon, or defect, lost, other.

    For any other verdict: the verdict itself.
    """
    code, colon, _ = cause.partition(":")
    if verdict != VerdictName.INFRA:
        return str(verdict)
    if colon and code.isascii() and code.isidentifier() and len(code) <= _LONGEST_CODE:
        return code
    return "defect" if cause.startswith("a defect") else "lost" if cause.startswith("the sandbox was lost") else "other"


def _graded(row: Any) -> GradedSession:
    sid, instance_id, body, *rest = row
    return GradedSession(sid, instance_id, _verdict(body), *rest)


def _verdict_json(verdict: Verdict) -> str:
    # ASCII: NULs and lone surrogates of a log become escapes, which every database can store
    return json.dumps({field.name: getattr(verdict, field.name) for field in fields(verdict)}, default=_plain)


def _verdict(body: str) -> Verdict:
    values = json.loads(body)
    lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    score = _score(values.get("score"))
    made = {"name": VerdictName(values["name"]), "score": score, "confirm": _confirmation(values.get("confirm"))}
    read = {**values, **lists, **made}
    known = {field.name for field in fields(Verdict)}  # a newer server's verdict has more
    return Verdict(**{name: value for name, value in read.items() if name in known})


def _confirmation(values: dict[str, Any] | None) -> Confirmation | None:
    return None if values is None else Confirmation(**{**values, "evidence": tuple(values["evidence"])})


def _score(values: dict[str, Any] | None) -> Score | None:
    if values is None:
        return None
    items = tuple(RewardValue(**item) for item in values["items"])
    answer = None if values["answer"] is None else _answer(values["answer"])
    return Score(values["total"], items, answer, tuple(values["steps"]), tuple(values["flags"]))


def _answer(values: dict[str, Any]) -> Answer:
    lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    lines = {path: tuple((first, last) for first, last in spans) for path, spans in values["lines"].items()}
    return Answer(**{**values, **lists, "lines": lines})


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Score | Confirmation):
        return asdict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")
