"""The permanent records of boxes, from which Redis is restored after a loss."""

from collections.abc import Sequence

from sqlalchemy import select

from sandbox_server.catalogue.database import Database
from sandbox_server.catalogue.tables import BoxRow
from sandbox_server.records import BoxRecord


class BoxHistory:
    """Box records in SQL. Every method raises CatalogueUnavailable if SQL does not answer."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def save(self, boxes: Sequence[BoxRecord]) -> None:
        """Insert or replace the records, all or none."""
        if not boxes:
            return
        statement = self._database.insert(BoxRow)
        statement = statement.on_conflict_do_update(
            index_elements=["sid"], set_={name: statement.excluded[name] for name in ("kind", "image", "owner", "body")}
        )
        async with self._database.writing() as connection:
            await connection.execute(statement, [_row(box) for box in boxes])

    async def get(self, sid: str) -> BoxRecord | None:
        """The box, or None if there never was one."""
        async with self._database.reading() as connection:
            body = (await connection.execute(select(BoxRow.body).where(BoxRow.sid == sid))).scalar_one_or_none()
        return None if body is None else BoxRecord.from_json(body)


def _row(box: BoxRecord) -> dict[str, str]:
    return {"sid": box.sid, "kind": box.kind, "image": box.image, "owner": box.owner, "body": box.to_json()}
