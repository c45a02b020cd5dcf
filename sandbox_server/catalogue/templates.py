"""Templates in SQL: their builds, tags, logs and the archives that builds copy. All nodes see them."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict
from sqlalchemy import ColumnElement, delete, func, literal, select, update
from sqlalchemy.orm import InstrumentedAttribute

from sandbox_server import clock
from sandbox_server.catalogue.database import Database
from sandbox_server.catalogue.tables import TemplateBuildRow, TemplateFileRow, TemplateRow, TemplateTagRow

WAITING, BUILDING, READY, ERROR = "waiting", "building", "ready", "error"
"""Statuses of a build."""
_MOST_ENTRIES = 2000  # of a build's log


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Step(_Stored):
    """One step of a recipe."""

    kind: str
    """RUN, COPY, ENV, USER or WORKDIR."""
    args: tuple[str, ...] = ()
    files_hash: str = ""
    """COPY: the archive, as the client names it."""


class Recipe(_Stored):
    """How an image is built."""

    image: str = ""
    base_build: str = ""
    """Build id of the template that it starts from, instead of `image`."""
    steps: tuple[Step, ...] = ()
    start: str = ""
    """Command that runs in every box; "" for none."""
    ready: str = ""
    """Command that succeeds once `start` is ready; "": do not wait."""
    nonce: str = ""
    """Distinguishes a forced build from earlier ones with the same steps."""


class Result(_Stored):
    """The result of a build, for the boxes that run its image."""

    image: str = ""
    root: str = ""
    """The image at the bottom, which decides about the network."""
    env: dict[str, str] = {}
    """Added to the image's environment."""
    user: str = ""
    workdir: str = ""
    start: str = ""
    ready: str = ""


class TemplateBuild(_Stored):
    """One build."""

    build_id: str
    template_id: str
    owner: str
    name: str
    tags: tuple[str, ...]
    """Tags that name it once it is ready."""
    cpus: float | None = None
    memory_mb: int | None = None
    recipe: Recipe | None = None
    """None: not triggered yet."""
    result: Result = Result()
    reason: str = ""
    """Why it failed."""
    step: str = ""
    """Number of the failed step from 1, `base` or `finalize`."""
    created_at: float = 0.0


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One line of a build's log."""

    at: float
    """Unix seconds."""
    level: str
    message: str


@dataclass(frozen=True, slots=True)
class BuildState:
    """A build with its status."""

    build: TemplateBuild
    status: str
    updated_at: float
    log: tuple[LogEntry, ...] = ()
    node: str = ""
    """The node that builds or built it; "": the build has no recipe yet."""


@dataclass(frozen=True, slots=True)
class Template:
    """A template."""

    template_id: str
    owner: str
    name: str
    created_at: float


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag of a template."""

    tag: str
    build_id: str
    created_at: float


class Templates:
    """Templates in SQL. Every method raises CatalogueUnavailable if SQL does not answer."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def ensure(self, template_id: str, owner: str, name: str) -> Template:
        """The owner's template of this name, created under `template_id` if there is none."""
        insert = self._database.insert(TemplateRow).values(
            template_id=template_id, owner=owner, name=name, created_at=clock.now()
        )
        async with self._database.writing() as connection:
            await connection.execute(insert.on_conflict_do_nothing(index_elements=["owner", "name"]))
        found = await self.named(owner, name)
        return found or Template(template_id, owner, name, clock.now())  # deleted just now: answer as if before

    async def named(self, owner: str, name: str) -> Template | None:
        """The owner's template of this name."""
        found = await self._templates(owner, name=name)
        return found[0] if found else None

    async def by_id(self, template_id: str) -> Template | None:
        """The template of any owner."""
        found = await self._templates(None, template_id=template_id)
        return found[0] if found else None

    async def listed(self, owner: str | None) -> list[Template]:
        """The owner's templates, by name; None: everybody's."""
        return await self._templates(owner)

    async def _templates(self, owner: str | None, *, name: str = "", template_id: str = "") -> list[Template]:
        row = TemplateRow
        found = select(row.template_id, row.owner, row.name, row.created_at).order_by(row.name)
        if owner is not None:
            found = found.where(row.owner == owner)
        if name:
            found = found.where(row.name == name)
        if template_id:
            found = found.where(row.template_id == template_id)
        async with self._database.reading() as connection:
            return [Template(*values) for values in (await connection.execute(found)).all()]

    async def delete(self, template_id: str) -> None:
        """Forget the template with its builds, tags and archives."""
        async with self._database.writing() as connection:
            for table in (TemplateFileRow, TemplateTagRow, TemplateBuildRow, TemplateRow):
                await connection.execute(delete(table).where(table.template_id == template_id))

    async def save(self, build: TemplateBuild, status: str, *, node: str = "", log: Sequence[LogEntry] = ()) -> None:
        """Store a build's present state, and the first entries of its log. A build that was deleted stays deleted."""
        entries = [(entry.at, entry.level, entry.message) for entry in log[:_MOST_ENTRIES]]
        values = {
            "status": status,
            "node": node,
            "updated_at": clock.now(),
            "body": json.dumps(build.model_dump(mode="json")),
            "log": json.dumps(entries),
        }
        async with self._database.writing() as connection:
            where = TemplateBuildRow.build_id == build.build_id
            await connection.execute(update(TemplateBuildRow).where(where).values(values))

    async def add(self, build: TemplateBuild) -> None:
        """Store a new build, whose recipe is not known yet."""
        insert = self._database.insert(TemplateBuildRow).values(
            build_id=build.build_id,
            template_id=build.template_id,
            node="",
            status=WAITING,
            updated_at=clock.now(),
            body=json.dumps(build.model_dump(mode="json")),
            log="[]",
        )
        async with self._database.writing() as connection:
            await connection.execute(insert)

    async def trigger(self, build: TemplateBuild, node: str) -> bool:
        """Give a build its recipe; False: it has one already."""
        row = TemplateBuildRow
        changed = update(row).where(row.build_id == build.build_id, row.status == WAITING, row.node == "")
        values = {"node": node, "updated_at": clock.now(), "body": json.dumps(build.model_dump(mode="json"))}
        async with self._database.writing() as connection:
            return (await connection.execute(changed.values(values))).rowcount == 1

    async def build(self, build_id: str) -> BuildState | None:
        """The build with its log."""
        found = await self._builds(TemplateBuildRow.build_id == build_id)
        return found[0] if found else None

    async def builds(self, template_id: str) -> list[BuildState]:
        """The template's builds, newest first, without their logs."""
        found = await self._builds(TemplateBuildRow.template_id == template_id, log=literal("[]"))
        return sorted(found, key=lambda state: state.build.created_at, reverse=True)

    async def left_by(self, node: str) -> list[BuildState]:
        """The builds that this node has not finished."""
        return await self._builds(TemplateBuildRow.node == node, TemplateBuildRow.status.in_((WAITING, BUILDING)))

    async def _builds(
        self, *where: ColumnElement[bool], log: ColumnElement[str] | InstrumentedAttribute[str] = TemplateBuildRow.log
    ) -> list[BuildState]:
        row = TemplateBuildRow
        found = select(row.body, row.status, row.updated_at, log, row.node).where(*where)
        async with self._database.reading() as connection:
            rows = (await connection.execute(found)).all()
        return [
            BuildState(
                TemplateBuild.model_validate(json.loads(body)),
                status,
                updated_at,
                tuple(LogEntry(*entry) for entry in json.loads(entries)),
                node,
            )
            for body, status, updated_at, entries, node in rows
        ]

    async def tag(self, template_id: str, tags: Sequence[str], build_id: str) -> None:
        """Have the tags name this build."""
        if not tags:
            return
        insert = self._database.insert(TemplateTagRow)
        insert = insert.on_conflict_do_update(
            index_elements=["template_id", "tag"],
            set_={name: insert.excluded[name] for name in ("build_id", "created_at")},
        )
        now = clock.now()
        rows = [{"template_id": template_id, "tag": tag, "build_id": build_id, "created_at": now} for tag in tags]
        async with self._database.writing() as connection:
            await connection.execute(insert, rows)

    async def untag(self, template_id: str, tags: Sequence[str]) -> None:
        """Remove the tags."""
        row = TemplateTagRow
        async with self._database.writing() as connection:
            await connection.execute(delete(row).where(row.template_id == template_id, row.tag.in_(tags)))

    async def tags(self, template_id: str) -> list[Tag]:
        """The template's tags, by name."""
        row = TemplateTagRow
        found = select(row.tag, row.build_id, row.created_at).where(row.template_id == template_id).order_by(row.tag)
        async with self._database.reading() as connection:
            return [Tag(*values) for values in (await connection.execute(found)).all()]

    async def expect_file(self, template_id: str, files_hash: str, token: str) -> bool:
        """Whether the archive is there; `token` opens its (next) upload."""
        insert = self._database.insert(TemplateFileRow).values(
            template_id=template_id,
            files_hash=files_hash,
            upload_sha256=_digest(token),
            size_bytes=0,
            body=None,
            body_sha256="",
        )
        insert = insert.on_conflict_do_update(
            index_elements=["template_id", "files_hash"], set_={"upload_sha256": insert.excluded["upload_sha256"]}
        )
        row = TemplateFileRow
        found = select(row.size_bytes).where(row.template_id == template_id, row.files_hash == files_hash)
        async with self._database.writing() as connection:
            await connection.execute(insert)
            return bool((await connection.execute(found)).scalar_one())

    async def upload_of(self, token: str) -> str | None:
        """Template of the upload that `token` opens."""
        found = select(TemplateFileRow.template_id).where(TemplateFileRow.upload_sha256 == _digest(token))
        async with self._database.reading() as connection:
            return (await connection.execute(found)).scalar_one_or_none()

    async def put_file(self, token: str, body: bytes) -> None:
        """Store an archive."""
        changed = update(TemplateFileRow).where(TemplateFileRow.upload_sha256 == _digest(token))
        digest = hashlib.sha256(body).hexdigest()
        async with self._database.writing() as connection:
            await connection.execute(changed.values(body=body, size_bytes=len(body), body_sha256=digest))

    async def files_bytes(self, owner: str) -> int:
        """Total size of the archives of the owner's templates."""
        own = select(TemplateRow.template_id).where(TemplateRow.owner == owner)
        found = select(func.coalesce(func.sum(TemplateFileRow.size_bytes), 0))
        async with self._database.reading() as connection:
            return int((await connection.execute(found.where(TemplateFileRow.template_id.in_(own)))).scalar_one())

    async def file_sums(self, template_id: str) -> dict[str, str]:
        """SHA-256 in hex of each uploaded archive of the template, by the client's hash."""
        row = TemplateFileRow
        found = select(row.files_hash, row.body_sha256).where(row.template_id == template_id, row.body_sha256 != "")
        async with self._database.reading() as connection:
            return {files_hash: digest for files_hash, digest in (await connection.execute(found)).all()}

    async def file(self, template_id: str, files_hash: str) -> bytes | None:
        """The archive; None if it was never uploaded."""
        row = TemplateFileRow
        found = select(row.body).where(row.template_id == template_id, row.files_hash == files_hash)
        async with self._database.reading() as connection:
            return (await connection.execute(found)).scalar_one_or_none()


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
