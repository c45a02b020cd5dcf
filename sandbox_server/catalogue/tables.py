"""The tables. Columns that mirror a field of `sandbox_server.records` or `sandbox_server.verdicts` have its name.

Times are Unix seconds (UTC). No foreign keys: the journal may reach SQL before the session's own row does.
"""

import json
from collections.abc import Mapping

from sqlalchemy import (
    BigInteger,
    Dialect,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

REVISION = "0023"
"""The migration that creates these tables; a test compares it with alembic's head."""


class PolicyText(TypeDecorator[str]):
    """Text that a policy may have written, stored without any loss.

    PostgreSQL's text takes no NUL, and neither database takes the lone surrogates that JSON can carry, so it
    is stored as bytes: UTF-8 with `surrogatepass`. To read it in psql: convert_from(column, 'UTF8').
    """

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> bytes | None:
        """Text to bytes."""
        return None if value is None else value.encode("utf-8", "surrogatepass")

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> str | None:
        """Bytes to text."""
        return None if value is None else value.decode("utf-8", "surrogatepass")


class Seconds(TypeDecorator[Mapping[str, float]]):
    """Name -> seconds, as a JSON object."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Mapping[str, float] | None, dialect: Dialect) -> str | None:
        """Mapping to text."""
        return None if value is None else json.dumps(dict(value))

    def process_result_value(self, value: str | None, dialect: Dialect) -> Mapping[str, float] | None:
        """Text to mapping."""
        return None if value is None else json.loads(value)


class CountsColumn(TypeDecorator[Mapping[str, int]]):
    """Name -> count, as a JSON object."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Mapping[str, int] | None, dialect: Dialect) -> str | None:
        """Mapping to text."""
        return None if value is None else json.dumps(dict(value))

    def process_result_value(self, value: str | None, dialect: Dialect) -> Mapping[str, int] | None:
        """Text to mapping."""
        return None if value is None else json.loads(value)


class Base(DeclarativeBase):
    """Names every constraint alike on both databases, so that a migration can name it too."""

    metadata = MetaData(
        naming_convention={
            "pk": "pk_%(table_name)s",
            "uq": "uq_%(table_name)s_%(column_0_name)s",
            "ix": "ix_%(table_name)s_%(column_0_name)s",
        }
    )
    type_annotation_map = {int: BigInteger, float: Double, bytes: LargeBinary}  # noqa: RUF012 -- SQLAlchemy reads it off the class


class InstanceRow(Base):
    """One task, and what `instances verify` found of it."""

    __tablename__ = "instances"

    instance_id: Mapped[str] = mapped_column(String(400), primary_key=True)
    instance_hash: Mapped[int] = mapped_column(unique=True)
    dataset: Mapped[str] = mapped_column(Text)
    repo: Mapped[str] = mapped_column(Text)
    version: Mapped[str] = mapped_column(Text)
    grader: Mapped[str] = mapped_column(String(40))
    """Kind of the grader, "" when ungradable."""
    ungradable_because: Mapped[str] = mapped_column(Text)
    body: Mapped[str] = mapped_column(Text)
    """The whole TaskInstance as JSON; NUL is an escape in JSON, so Text holds it."""
    body_sha256: Mapped[str] = mapped_column(String(64))
    imported_at: Mapped[float]
    """When `body` last changed."""
    verified_gold: Mapped[str] = mapped_column(Text)
    """Verdict of the gold patch, "" when it was not tried since `imported_at`."""
    verified_empty: Mapped[str] = mapped_column(Text)
    verified_at: Mapped[float]


class InstanceImageRow(Base):
    """One image of a task whose repository is part of the image: tells which tasks a box of that image would show."""

    __tablename__ = "instance_images"

    image: Mapped[str] = mapped_column(Text, primary_key=True)
    """Name of the image, as the instance has it."""
    instance_id: Mapped[str] = mapped_column(String(400), primary_key=True)
    setup_sha256: Mapped[str] = mapped_column(String(64))
    """Hash of the sandbox's set-up, which many instances of one image share."""


class SessionRow(Base):
    """A `SessionRecord`."""

    __tablename__ = "sessions"
    __table_args__ = (
        Index("ix_sessions_state_node", "state", "node"),
        Index("ix_sessions_run_created_at", "run", "created_at"),
        Index("ix_sessions_instance_id_created_at", "instance_id", "created_at"),
        # counting ends needs nothing but these
        Index("ix_sessions_ended_at", "ended_at", "end_reason", "instance_id", "run"),
    )

    sid: Mapped[str] = mapped_column(String(40), primary_key=True)
    state: Mapped[str] = mapped_column(String(20))
    instance_id: Mapped[str] = mapped_column(String(400))
    node: Mapped[str] = mapped_column(Text)
    container_id: Mapped[str] = mapped_column(Text)
    created_at: Mapped[float] = mapped_column(index=True)
    touched_at: Mapped[float]
    deadline: Mapped[float]
    shell_token: Mapped[str] = mapped_column(Text, default="")
    """Not used; the column is NOT NULL and servers of an older version write it."""
    cwd: Mapped[str] = mapped_column(PolicyText)
    talk_turns: Mapped[int]
    actions: Mapped[int]
    ended_at: Mapped[float]
    end_reason: Mapped[str] = mapped_column(Text)
    cause: Mapped[str] = mapped_column(PolicyText)
    timings_s: Mapped[Mapping[str, float]] = mapped_column(Seconds, server_default="{}")
    restores: Mapped[int] = mapped_column(server_default="0")
    notice: Mapped[str] = mapped_column(Text, server_default="")
    differences: Mapped[int] = mapped_column(server_default="0")
    run: Mapped[str] = mapped_column(Text, server_default="")
    owner: Mapped[str] = mapped_column(Text, server_default="", index=True)
    traceparent: Mapped[str] = mapped_column(Text, server_default="")
    parent: Mapped[str] = mapped_column(String(40), server_default="", index=True)
    forked_at: Mapped[int] = mapped_column(server_default="0")
    undone: Mapped[str] = mapped_column(Text, server_default="")
    egress_refused: Mapped[int] = mapped_column(server_default="-1")
    changes: Mapped[int] = mapped_column(server_default="0")


class BoxRow(Base):
    """A `BoxRecord`; `body` is all of it as ASCII JSON, the box's access token included."""

    __tablename__ = "boxes"

    sid: Mapped[str] = mapped_column(String(40), primary_key=True)
    kind: Mapped[str] = mapped_column(String(20))
    image: Mapped[str] = mapped_column(Text)
    owner: Mapped[str] = mapped_column(Text)
    body: Mapped[str] = mapped_column(Text)


class ActionRow(Base):
    """An `ActionRecord`."""

    __tablename__ = "actions"
    __table_args__ = (Index("ix_actions_sid_idempotency_key", "sid", "idempotency_key"),)

    sid: Mapped[str] = mapped_column(String(40), primary_key=True)
    seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    content: Mapped[str] = mapped_column(PolicyText)
    observation: Mapped[str] = mapped_column(PolicyText)
    tool: Mapped[str] = mapped_column(Text)
    outcome: Mapped[str] = mapped_column(Text)
    exit_code: Mapped[int | None]
    started_at: Mapped[float]
    duration_s: Mapped[float]
    idempotency_key: Mapped[str] = mapped_column(PolicyText)


class ActionIndexRow(Base):
    """Numbers an action whose words are indexed (`catalogue.action_words`).

    SQLite's FTS5 table `action_words` and PostgreSQL's column `words` are not declared: SQLAlchemy has no such types.
    """

    __tablename__ = "action_index"
    __table_args__ = (UniqueConstraint("sid", "seq"),)

    id: Mapped[int] = mapped_column(BigInteger().with_variant(Integer(), "sqlite"), primary_key=True)
    sid: Mapped[str] = mapped_column(String(40))
    seq: Mapped[int]


class PatchRow(Base):
    """A `PatchRecord`."""

    __tablename__ = "patches"

    sid: Mapped[str] = mapped_column(String(40), primary_key=True)
    instance_id: Mapped[str] = mapped_column(String(400))
    diff: Mapped[bytes | None]
    cause: Mapped[str] = mapped_column(PolicyText)
    base_commit: Mapped[str] = mapped_column(Text)
    captured_at: Mapped[float]
    sha256: Mapped[str] = mapped_column(String(64))
    container_id: Mapped[str] = mapped_column(Text, server_default="")


class VerdictRow(Base):
    """A `GradedSession`; `body` is its Verdict as ASCII JSON."""

    __tablename__ = "verdicts"
    __table_args__ = (
        Index("ix_verdicts_instance_id_graded_at", "instance_id", "graded_at"),
        # counting needs nothing but these, so it does not touch the bodies
        Index("ix_verdicts_graded_at", "graded_at", "name", "mask", "reward", "instance_id", "sid", "run", "began_at"),
        Index("ix_verdicts_sid_name_mask", "sid", "name", "mask"),
    )

    sid: Mapped[str] = mapped_column(String(40), primary_key=True)
    instance_id: Mapped[str] = mapped_column(String(400))
    name: Mapped[str] = mapped_column(String(40))
    mask: Mapped[bool]
    grade_key: Mapped[str] = mapped_column(Text, index=True)
    """Names what was graded (instance, patch, policy); the same key gives the same verdict."""
    reward: Mapped[float]
    reward_name: Mapped[str] = mapped_column(Text)
    receipt: Mapped[str] = mapped_column(Text)
    graded_at: Mapped[float]
    body: Mapped[str] = mapped_column(Text)
    cause_kind: Mapped[str] = mapped_column(String(60), server_default="")
    """Kind of the verdict's cause, by `history.kind_of`. `body` has this and the next three values too, but counting
    cannot read them there: PostgreSQL's JSON functions fail on a log that holds a NUL."""
    queue_s: Mapped[float] = mapped_column(server_default="0")
    grade_s: Mapped[float] = mapped_column(server_default="0")
    tripwires: Mapped[Mapping[str, int]] = mapped_column(CountsColumn, server_default="{}")
    run: Mapped[str | None] = mapped_column(Text)
    """The session's run, and below it the session's start, so that counting need not read sessions; None: written by
    an older version."""
    began_at: Mapped[float | None]


class PassHourRow(Base):
    """Unmasked verdicts of one instance within one hour. Triggers of `verdicts` count them (migration 0020)."""

    __tablename__ = "pass_hours"

    hour: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    """`graded_at`, in whole hours since 1970."""
    instance_id: Mapped[str] = mapped_column(String(400), primary_key=True)
    resolved: Mapped[int]
    graded: Mapped[int]
    """Number of verdicts, resolved or not. 0: each of them was replaced by a verdict of another hour."""


class ReceiptRow(Base):
    """The evidence of one grading, as ASCII JSON; also of gradings whose verdict another one replaced."""

    __tablename__ = "receipts"

    id: Mapped[str] = mapped_column(String(100), primary_key=True)
    sid: Mapped[str] = mapped_column(String(40), index=True)
    created_at: Mapped[float]
    body: Mapped[str] = mapped_column(Text)


class RolloutRow(Base):
    """A trainer's report on a session: rewards and each turn's tokens (JSON), the answer's format; "" for none."""

    __tablename__ = "rollouts"

    sid: Mapped[str] = mapped_column(String(40), primary_key=True)
    rewards: Mapped[str] = mapped_column(Text)
    tokens: Mapped[str] = mapped_column(Text)
    format: Mapped[str] = mapped_column(Text, server_default="")


class MetricRow(Base):
    """One number of one graded session."""

    __tablename__ = "rollout_metrics"
    __table_args__ = (Index("ix_rollout_metrics_run_at", "run", "at"),)

    sid: Mapped[str] = mapped_column(String(40), primary_key=True)
    name: Mapped[str] = mapped_column(String(120), primary_key=True)
    value: Mapped[float]
    run: Mapped[str] = mapped_column(Text)
    at: Mapped[float] = mapped_column(index=True)
    """When it was graded."""


class CertificateRow(Base):
    """One part of an instance's certificate, as ASCII JSON; made for one row and one image."""

    __tablename__ = "certificates"

    instance_id: Mapped[str] = mapped_column(String(400), primary_key=True)
    row_sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    image_digest: Mapped[str] = mapped_column(String(200), primary_key=True)
    part: Mapped[str] = mapped_column(String(40), primary_key=True)
    made_at: Mapped[float]
    body: Mapped[str] = mapped_column(Text)


class TemplateRow(Base):
    """A template: a name for the builds of one key."""

    __tablename__ = "templates"
    __table_args__ = (UniqueConstraint("owner", "name"),)

    template_id: Mapped[str] = mapped_column(String(40), primary_key=True)
    owner: Mapped[str] = mapped_column(String(100))
    name: Mapped[str] = mapped_column(String(200))
    created_at: Mapped[float]


class TemplateBuildRow(Base):
    """One build of a template; `body` is its TemplateBuild and `log` its list of log entries, both as ASCII JSON."""

    __tablename__ = "template_builds"

    build_id: Mapped[str] = mapped_column(String(40), primary_key=True)
    template_id: Mapped[str] = mapped_column(String(40), index=True)
    node: Mapped[str] = mapped_column(Text)
    status: Mapped[str] = mapped_column(String(20))
    updated_at: Mapped[float]
    body: Mapped[str] = mapped_column(Text)
    log: Mapped[str] = mapped_column(Text)


class TemplateTagRow(Base):
    """A tag of a template names one of its builds."""

    __tablename__ = "template_tags"

    template_id: Mapped[str] = mapped_column(String(40), primary_key=True)
    tag: Mapped[str] = mapped_column(String(200), primary_key=True)
    build_id: Mapped[str] = mapped_column(String(40))
    created_at: Mapped[float]


class TemplateFileRow(Base):
    """An archive of files that a build copies."""

    __tablename__ = "template_files"

    template_id: Mapped[str] = mapped_column(String(40), primary_key=True)
    files_hash: Mapped[str] = mapped_column(String(100), primary_key=True)
    """Hash of the files, computed by the client."""
    upload_sha256: Mapped[str] = mapped_column(String(64), unique=True)
    """Hash of the secret in the upload's URL."""
    size_bytes: Mapped[int]
    body: Mapped[bytes | None]
    """None: not uploaded yet."""
    body_sha256: Mapped[str] = mapped_column(String(64))
    """In hex; "": not uploaded yet."""


class SnapshotRow(Base):
    """A snapshot of a box; `body` is its `Snapshot` as ASCII JSON."""

    __tablename__ = "snapshots"

    snapshot_id: Mapped[str] = mapped_column(String(40), primary_key=True)
    owner: Mapped[str] = mapped_column(String(100), index=True)
    name: Mapped[str] = mapped_column(String(300))
    """`name:tag`; "" for none."""
    sid: Mapped[str] = mapped_column(String(40))
    node: Mapped[str] = mapped_column(Text)
    created_at: Mapped[float]
    size_bytes: Mapped[int]
    body: Mapped[str] = mapped_column(Text)


class SessionTokenRow(Base):
    """The token by which an agent uses one session."""

    __tablename__ = "session_tokens"

    sid: Mapped[str] = mapped_column(String(40), primary_key=True)
    sha256: Mapped[str] = mapped_column(String(64))
    """Hash of the token, in hexadecimal digits."""
