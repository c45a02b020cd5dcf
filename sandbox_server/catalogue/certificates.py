"""Certificates: what is known of an instance's tests on one image. Each part is a JSON document."""

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import select

from sandbox_server import clock
from sandbox_server.catalogue.certificate_key import CertificateKey
from sandbox_server.catalogue.database import Database
from sandbox_server.catalogue.tables import CertificateRow


class Certificates:
    """Certificates in SQL. Every method raises CatalogueUnavailable.

    Parts: `variants` (false tests, for the confirming runs), `assay` (results of many runs), `drift` (gold's result at
    the last check).
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def part(self, key: CertificateKey, part: str) -> dict[str, Any] | None:
        """One part, or None if it was never made."""
        statement = select(CertificateRow.body).where(*_is(key), CertificateRow.part == part)
        async with self._database.reading() as connection:
            body = (await connection.execute(statement)).scalar_one_or_none()
        return None if body is None else json.loads(body)

    async def update(self, key: CertificateKey, part: str, document: Mapping[str, Any]) -> None:
        """Insert or replace this part; other parts are unchanged."""
        # ASCII: NULs and lone surrogates of a test become escapes, which every database can store
        values = {
            "instance_id": key.instance_id,
            "row_sha256": key.row_sha256,
            "image_digest": key.image_digest,
            "part": part,
            "made_at": clock.now(),
            "body": json.dumps(dict(document)),
        }
        statement = self._database.insert(CertificateRow).values(values)
        statement = statement.on_conflict_do_update(
            index_elements=["instance_id", "row_sha256", "image_digest", "part"],
            set_={name: statement.excluded[name] for name in ("made_at", "body")},
        )
        async with self._database.writing() as connection:
            await connection.execute(statement)

    async def everywhere(self, part: str) -> list[tuple[CertificateKey, float, dict[str, Any]]]:
        """(key, creation time, document) of this part in all certificates, newest first."""
        statement = select(CertificateRow).where(CertificateRow.part == part).order_by(CertificateRow.made_at.desc())
        async with self._database.reading() as connection:
            rows = (await connection.execute(statement)).all()
        return [
            (CertificateKey(row.instance_id, row.row_sha256, row.image_digest), row.made_at, json.loads(row.body))
            for row in rows
        ]

    async def without_variants(self) -> list[tuple[CertificateKey, bool]]:
        """(key, whether it has no variants) of all parts `variants`, newest first."""
        # Decided in SQL, since a body holds whole test files. Quotation marks in their texts are escaped by a
        # backslash.
        none = CertificateRow.body.contains('"units": []')
        columns = (CertificateRow.instance_id, CertificateRow.row_sha256, CertificateRow.image_digest, none)
        statement = select(*columns).where(CertificateRow.part == "variants").order_by(CertificateRow.made_at.desc())
        async with self._database.reading() as connection:
            rows = (await connection.execute(statement)).all()
        return [(CertificateKey(*row[:3]), bool(row[3])) for row in rows]

    async def of_instance(self, instance_id: str) -> list[tuple[CertificateKey, str, float, dict[str, Any]]]:
        """(key, part, creation time, document) of all certificates of an instance, newest first."""
        columns = (
            CertificateRow.row_sha256,
            CertificateRow.image_digest,
            CertificateRow.part,
            CertificateRow.made_at,
            CertificateRow.body,
        )
        statement = select(*columns).where(CertificateRow.instance_id == instance_id)
        async with self._database.reading() as connection:
            rows = (await connection.execute(statement.order_by(CertificateRow.made_at.desc()))).all()
        return [
            (CertificateKey(instance_id, row.row_sha256, row.image_digest), row.part, row.made_at, json.loads(row.body))
            for row in rows
        ]


def _is(key: CertificateKey) -> tuple[Any, ...]:
    return (
        CertificateRow.instance_id == key.instance_id,
        CertificateRow.row_sha256 == key.row_sha256,
        CertificateRow.image_digest == key.image_digest,
    )
