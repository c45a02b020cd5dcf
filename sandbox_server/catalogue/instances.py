"""The catalogue's tasks: adding, finding and listing them, and storing the results of `instances verify`."""

import hashlib
import itertools
import json
import time
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy import ColumnElement, Connection, bindparam, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sandbox_server.catalogue.database import Database
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.catalogue.swepro import tests_checkout_of
from sandbox_server.catalogue.tables import InstanceImageRow, InstanceRow
from sandbox_server.errors import RowRejected, UnknownInstance

T = TypeVar("T")

_CACHED = 256
"""Number of parsed instances in the cache, some 50 KB each with long test lists."""
_TRUSTED_S = 1.0
"""Seconds for which a cached instance is returned without asking SQL whether it changed."""
_CHUNK = 500
"""Values in one IN (...); both databases allow more, but more is not faster."""


@dataclass(frozen=True, slots=True)
class ImportReport:
    """How many instances an import added, changed and left unchanged."""

    new: int
    updated: int
    unchanged: int


@dataclass(frozen=True, slots=True)
class Verification:
    """Verdicts of the gold and the empty patch, by the real grader."""

    gold: str
    empty: str
    at: float
    """Unix seconds."""

    @property
    def sound(self) -> bool:
        """Whether gold resolves the task and the empty patch does not."""
        return self.gold == "resolved" and self.empty not in ("resolved", "")


@dataclass(frozen=True, slots=True)
class InstanceSummary:
    """An instance without its long texts."""

    instance_id: str
    instance_hash: int
    dataset: str
    repo: str
    version: str
    grader: str
    """Kind of the grader; "" if ungradable."""
    ungradable_because: str
    verification: Verification | None


class Instances:
    """Reads and writes the table `instances`.

    Parsed instances are cached in this process. A cached one is returned for at most a second (or as long as the caller
    allows) without checking its digest in SQL, so an import by another process takes effect within a second. Unknown
    instances are not cached, so a new one is found at once.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._cache: OrderedDict[str, tuple[float, str, TaskInstance]] = OrderedDict()
        """instance_id -> (monotonic time of the last check, body_sha256, instance), least recently used first."""
        self._ids: dict[int, str] = {}
        """instance_hash -> instance_id of the cached instances."""

    async def add(self, instances: Sequence[TaskInstance]) -> ImportReport:
        """Add or replace all instances, or none. A changed instance loses its verification.

        Raises:
            RowRejected: two ids, among these or in the catalogue, have the same hash.
            CatalogueUnavailable.

        """
        now = time.time()
        rows = {instance.instance_id: _row(instance, now) for instance in instances}
        async with self._database.writing() as connection:
            await _refuse_shared_hashes(connection, rows.values())
            stored = await _digests(connection, rows)
            new = [row for key, row in rows.items() if key not in stored]
            changed = [row for key, row in rows.items() if key in stored and stored[key] != row["body_sha256"]]
            if new:
                await connection.execute(insert(InstanceRow), new)
            if changed:
                statement = update(InstanceRow.__table__).where(  # type: ignore[arg-type]
                    InstanceRow.instance_id == bindparam("key")
                )
                await connection.execute(statement, [{**row, "key": row["instance_id"]} for row in changed])
            await _keep_images(connection, instances, {str(row["instance_id"]) for row in (*new, *changed)})
        for row in changed:
            self._forget(str(row["instance_id"]))
        return ImportReport(len(new), len(changed), len(rows) - len(new) - len(changed))

    async def named(self, instance: int | str) -> TaskInstance:
        """The instance with this hash (int) or id (str). Raises UnknownInstance, CatalogueUnavailable."""
        return await (self.by_hash(instance) if isinstance(instance, int) else self.by_id(instance))

    async def by_hash(self, instance_hash: int) -> TaskInstance:
        """The instance with this hash, the name that veRL uses.

        Raises:
            UnknownInstance, CatalogueUnavailable.

        """
        known = self._ids.get(instance_hash)
        if known is None and not 0 <= instance_hash < 2**63:  # BIGINT would not take it
            raise UnknownInstance(f"no instance has the hash {instance_hash}: hashes lie in [0, 2^63)")
        instance = self._trusted(known, _TRUSTED_S) or await self._find(
            known, InstanceRow.instance_hash == instance_hash
        )
        if instance is None:
            raise UnknownInstance(f"no instance has the hash {instance_hash}; `instances import` its data set")
        return instance

    async def by_id(self, instance_id: str, *, trusted_s: float = _TRUSTED_S) -> TaskInstance:
        """The instance with this id; a cached one that was checked within `trusted_s` seconds is returned unchecked.

        Raises:
            UnknownInstance, CatalogueUnavailable.

        """
        # imports refuse control characters and lone surrogates, and some of them cannot even be sent to SQL
        findable = instance_id.isprintable()
        instance = self._trusted(instance_id, trusted_s)
        if instance is None and findable:
            instance = await self._find(instance_id, InstanceRow.instance_id == instance_id)
        if instance is None:
            raise UnknownInstance(f"no instance {instance_id!r}; `instances import` its data set")
        return instance

    async def mark_verified(self, instance_id: str, gold: str, empty: str, at: float) -> None:
        """Store the verdicts of the gold and the empty patch, given at `at` (Unix seconds)."""
        async with self._database.writing() as connection:
            await connection.execute(
                update(InstanceRow)
                .where(InstanceRow.instance_id == instance_id)
                .values(verified_gold=gold, verified_empty=empty, verified_at=at)
            )

    async def verified(self, instance_id: str) -> Verification | None:
        """The last verification; None: unknown, or not verified since the instance last changed."""
        async with self._database.reading() as connection:
            row = (
                await connection.execute(
                    select(InstanceRow.verified_gold, InstanceRow.verified_empty, InstanceRow.verified_at).where(
                        InstanceRow.instance_id == instance_id, InstanceRow.verified_at > 0
                    )
                )
            ).one_or_none()
        return None if row is None else Verification(*row)

    async def sound(self) -> "list[str]":
        """Ids of the gradable instances whose last verification found them sound."""
        filters = (InstanceRow.grader != "", InstanceRow.verified_gold == "resolved", InstanceRow.verified_at > 0)
        async with self._database.reading() as connection:
            rows = await connection.execute(
                select(InstanceRow.instance_id).where(*filters, InstanceRow.verified_empty.not_in(("resolved", "")))
            )
            return [row[0] for row in rows]

    async def count(self, *, dataset: str | None = None, repo: str | None = None, gradable: bool | None = None) -> int:
        """Number of instances that match, as in `list`."""
        statement = select(func.count()).select_from(InstanceRow).where(*_filters(dataset, repo, gradable))
        async with self._database.reading() as connection:
            return (await connection.execute(statement)).scalar_one()

    async def of_images(self, names: Collection[str]) -> "list[TaskInstance]":
        """The instances that use one of these images; of those with the same set-up, only one.

        Instances whose repository is put into the image (`source`) are left out.
        """
        first = func.min(InstanceImageRow.instance_id)
        statement = select(first).where(InstanceImageRow.image.in_(names)).group_by(InstanceImageRow.setup_sha256)
        async with self._database.reading() as connection:
            ids = sorted((await connection.execute(statement)).scalars())
        return [await self.by_id(instance_id) for instance_id in ids]

    async def images(self) -> frozenset[str]:
        """Names of all task images. Reads every row: some seconds for a hundred thousand."""
        names = self._database.json(InstanceRow.__table__.c.body)["sandbox"]["images"]
        async with self._database.reading() as connection:
            return frozenset(name for row in await connection.execute(select(names)) for name in row[0] or ())

    async def list(
        self,
        *,
        dataset: str | None = None,
        repo: str | None = None,
        gradable: bool | None = None,
        after: str = "",
        limit: int = 100,
    ) -> "list[InstanceSummary]":
        """Summaries after the id `after`, ordered by id; pass the last one's id to get the next page."""
        statement = (
            select(
                InstanceRow.instance_id,
                InstanceRow.instance_hash,
                InstanceRow.dataset,
                InstanceRow.repo,
                InstanceRow.version,
                InstanceRow.grader,
                InstanceRow.ungradable_because,
                InstanceRow.verified_gold,
                InstanceRow.verified_empty,
                InstanceRow.verified_at,
            )
            .where(*_filters(dataset, repo, gradable), InstanceRow.instance_id > after)
            .order_by(InstanceRow.instance_id)
            .limit(limit)
        )
        async with self._database.reading() as connection:
            rows = (await connection.execute(statement)).all()
        return [
            InstanceSummary(
                *row[:7],
                verification=Verification(row.verified_gold, row.verified_empty, row.verified_at)
                if row.verified_at
                else None,
            )
            for row in rows
        ]

    def _trusted(self, known_id: str | None, trusted_s: float) -> TaskInstance | None:
        """The cached instance, if it was checked within `trusted_s` seconds."""
        cached = self._cache.get(known_id) if known_id is not None else None
        if cached is None or time.monotonic() - cached[0] >= trusted_s:
            return None
        self._cache.move_to_end(cached[2].instance_id)
        return cached[2]

    async def _find(self, known_id: str | None, where: ColumnElement[bool]) -> TaskInstance | None:
        cached = self._cache.get(known_id) if known_id is not None else None
        now = time.monotonic()

        def found(connection: Connection) -> tuple[str, TaskInstance] | None:
            if cached is not None:
                digest = connection.execute(select(InstanceRow.body_sha256).where(where)).scalar_one_or_none()
                if digest == cached[1]:
                    return cached[1:]
            row = connection.execute(select(InstanceRow.body_sha256, InstanceRow.body).where(where)).one_or_none()
            return None if row is None else (row.body_sha256, TaskInstance.model_validate_json(row.body))

        newest = await self._database.read(found)
        if newest is None:
            if known_id is not None:
                self._forget(known_id)
            return None
        self._keep(now, *newest)
        return newest[1]

    def _keep(self, now: float, digest: str, instance: TaskInstance) -> None:
        self._cache[instance.instance_id] = (now, digest, instance)
        self._cache.move_to_end(instance.instance_id)
        self._ids[instance.instance_hash] = instance.instance_id
        if len(self._cache) > _CACHED:
            self._forget(next(iter(self._cache)))

    def _forget(self, instance_id: str) -> None:
        if (entry := self._cache.pop(instance_id, None)) is not None:
            self._ids.pop(entry[2].instance_hash, None)


def _row(instance: TaskInstance, now: float) -> dict[str, object]:
    body = instance.model_dump_json()
    return {
        "instance_id": instance.instance_id,
        "instance_hash": instance.instance_hash,
        "dataset": instance.dataset,
        "repo": instance.repo,
        "version": instance.version,
        "grader": instance.grader.kind if instance.grader else "",
        "ungradable_because": instance.ungradable_because,
        "body": body,
        "body_sha256": hashlib.sha256(body.encode()).hexdigest(),
        "imported_at": now,
        "verified_gold": "",
        "verified_empty": "",
        "verified_at": 0.0,
    }


async def _keep_images(
    connection: AsyncConnection, instances: Sequence[TaskInstance], changed: Collection[str]
) -> None:
    for chunk in _chunks(changed):
        await connection.execute(delete(InstanceImageRow).where(InstanceImageRow.instance_id.in_(chunk)))
    rows = {
        (name, instance.instance_id): {
            "image": name,
            "instance_id": instance.instance_id,
            "setup_sha256": _setup_sha256(instance),
        }
        for instance in {instance.instance_id: instance for instance in instances}.values()
        if instance.instance_id in changed and instance.sandbox.source is None
        for name in instance.sandbox.images
    }
    if rows:
        await connection.execute(insert(InstanceImageRow), list(rows.values()))


def _setup_sha256(instance: TaskInstance) -> str:
    said = json.dumps([instance.sandbox.model_dump(mode="json"), tests_checkout_of(instance)], sort_keys=True)
    return hashlib.sha256(said.encode()).hexdigest()


async def _digests(connection: AsyncConnection, ids: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for chunk in _chunks(ids):
        statement = select(InstanceRow.instance_id, InstanceRow.body_sha256).where(InstanceRow.instance_id.in_(chunk))
        for instance_id, digest in await connection.execute(statement):
            found[instance_id] = digest
    return found


async def _refuse_shared_hashes(connection: AsyncConnection, rows: Iterable[dict[str, object]]) -> None:
    owners: dict[object, object] = {}
    for row in rows:
        other = owners.setdefault(row["instance_hash"], row["instance_id"])
        if other != row["instance_id"]:
            raise _shared_hash(other, row["instance_id"], row["instance_hash"])
    for chunk in _chunks(owners):
        statement = select(InstanceRow.instance_hash, InstanceRow.instance_id).where(
            InstanceRow.instance_hash.in_(chunk)
        )
        for shared, stored in await connection.execute(statement):
            if stored != owners[shared]:
                raise _shared_hash(stored, owners[shared], shared)


def _chunks(values: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(values)
    while chunk := list(itertools.islice(rest, _CHUNK)):
        yield chunk


def _shared_hash(one: object, other: object, shared: object) -> RowRejected:
    return RowRejected(f"{one!r} and {other!r} have one instance_hash, {shared}; a trainer could not tell them apart")


def _filters(dataset: str | None, repo: str | None, gradable: bool | None) -> "list[ColumnElement[bool]]":
    filters: list[ColumnElement[bool]] = []
    if dataset is not None:
        filters.append(InstanceRow.dataset == dataset)
    if repo is not None:
        filters.append(InstanceRow.repo == repo)
    if gradable is not None:
        filters.append((InstanceRow.grader != "") == gradable)
    return filters
