"""Snapshots of boxes in SQL, so that all nodes know of them; their files are in checkpoints."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Row, Select, delete, func, select

from sandbox_server.catalogue.database import Database
from sandbox_server.catalogue.tables import SnapshotRow
from sandbox_server.records import BoxRecord


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot: the files of a box at one time."""

    snapshot_id: str
    owner: str
    """Name of the API key whose box it was."""
    name: str
    """`name:tag`; "" for none."""
    sid: str
    """The box's sid."""
    node: str
    """The node that took it."""
    created_at: float
    """Unix seconds."""
    size_bytes: int
    """Compressed size of its files."""
    box: BoxRecord
    """The box as it was then, without its secrets."""
    image: str
    """Id of the image that the box was made from."""
    shared: bool
    """Whether its files are in the object store, for all nodes; else only its node has them."""

    @property
    def shown(self) -> str:
        """How clients refer to it: by its name (which a later snapshot may take over), else by its id."""
        return self.name or self.snapshot_id


class Snapshots:
    """Every method raises CatalogueUnavailable if SQL does not answer. An owner of None sees all."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, snapshot: Snapshot) -> list[Snapshot]:
        """Store a snapshot, and remove those that had its name in the same transaction; returns the removed ones."""
        row = SnapshotRow
        values = {
            "snapshot_id": snapshot.snapshot_id,
            "owner": snapshot.owner,
            "name": snapshot.name,
            "sid": snapshot.sid,
            "node": snapshot.node,
            "created_at": snapshot.created_at,
            "size_bytes": snapshot.size_bytes,
            "body": json.dumps({"box": snapshot.box.to_json(), "image": snapshot.image, "shared": snapshot.shared}),
        }
        former: list[Snapshot] = []
        async with self._database.writing() as connection:
            if snapshot.name:
                of_name = (row.owner == snapshot.owner, row.name == snapshot.name)
                former = [_read(found) for found in (await connection.execute(_all().where(*of_name))).all()]
                await connection.execute(delete(row).where(*of_name))
            await connection.execute(self._database.insert(row).values(values))
        return former

    async def find(self, owner: str | None, named: str) -> Snapshot | None:
        """The snapshot with this id, else the owner's snapshot with this name (None: of a key without a name)."""
        row = SnapshotRow
        async with self._database.reading() as connection:
            by_id = [_read(found) for found in (await connection.execute(_all().where(row.snapshot_id == named))).all()]
            if by_id and owner in (None, by_id[0].owner):
                return by_id[0]
            of_name = (row.owner == (owner or ""), row.name == named)
            newest = _all().where(*of_name).order_by(row.created_at.desc()).limit(1)
            by_name = [_read(found) for found in (await connection.execute(newest)).all()]
        return by_name[0] if by_name else None

    async def listed(self, owner: str | None, *, sid: str = "", names: Sequence[str] = ()) -> list[Snapshot]:
        """The owner's snapshots, newest first; only those of box `sid`, or with one of these names or ids, if given."""
        row, found = SnapshotRow, _all()
        if owner is not None:
            found = found.where(row.owner == owner)
        if sid:
            found = found.where(row.sid == sid)
        if names:
            found = found.where(row.name.in_(names) | row.snapshot_id.in_(names))
        found = found.order_by(row.created_at.desc(), row.snapshot_id.desc())
        async with self._database.reading() as connection:
            return [_read(values) for values in (await connection.execute(found)).all()]

    async def remove(self, snapshot_id: str) -> bool:
        """Forget a snapshot; False: it is gone already."""
        async with self._database.writing() as connection:
            gone = await connection.execute(delete(SnapshotRow).where(SnapshotRow.snapshot_id == snapshot_id))
            return gone.rowcount == 1

    async def usage(self, owner: str, *, but: str = "") -> tuple[int, int]:
        """(number, bytes) of the owner's snapshots, without the one named `but`."""
        row = SnapshotRow
        found = select(func.count(), func.coalesce(func.sum(row.size_bytes), 0)).where(row.owner == owner)
        if but:
            found = found.where(row.name != but)
        async with self._database.reading() as connection:
            count, size = (await connection.execute(found)).one()
        return int(count), int(size)

    async def ids(self, node: str) -> set[str]:
        """Ids of the snapshots that this node took."""
        found = select(SnapshotRow.snapshot_id).where(SnapshotRow.node == node)
        async with self._database.reading() as connection:
            return set((await connection.execute(found)).scalars())


def _all() -> Select[str, str, str, str, str, float, int, str]:
    row = SnapshotRow
    return select(row.snapshot_id, row.owner, row.name, row.sid, row.node, row.created_at, row.size_bytes, row.body)


def _read(values: Row[str, str, str, str, str, float, int, str]) -> Snapshot:
    snapshot_id, owner, name, sid, node, created_at, size_bytes, text = values
    body = json.loads(text)
    box = BoxRecord.from_json(body["box"])
    return Snapshot(
        snapshot_id, owner, name, sid, node, created_at, size_bytes, box, str(body["image"]), bool(body["shared"])
    )
