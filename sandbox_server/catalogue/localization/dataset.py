"""Builds a data set for code search: reads rows, writes train.parquet and validation.parquet.

The rows are processed in parts of fixed size. A finished part is kept in DIR/.building, in a folder named after a hash
of the input and the options, and a repeated build uses it again. Both files are assembled from the parts at the end.
They have the same bytes after any number of interruptions and with any number of processes.
"""

import fcntl
import hashlib
import json
import multiprocessing
import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Self, cast

import pyarrow
import pyarrow.parquet

from sandbox_server import __version__
from sandbox_server.catalogue.localization.dataset_row import SCHEMA, Row, dataset_row
from sandbox_server.catalogue.localization.extract import LEVELS
from sandbox_server.catalogue.localization.fetched import FetchedTrees
from sandbox_server.catalogue.localization.trees import CloneFolder, Trees
from sandbox_server.catalogue.read import stream_rows
from sandbox_server.catalogue.rows import SourceRow
from sandbox_server.errors import InfrastructureError, MalformedRequest, RowRejected

_PART_ROWS = 64
"""Rows of a part: the most that each process loses when a build is interrupted."""
_GROUP_ROWS = 1000
"""Rows of a parquet row group; no more are in memory at a time."""

Progress = Callable[[int, int], None]
"""Called with the number of finished rows and the number of all rows."""


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that was left out."""

    line: int | None
    why: str


_Job = tuple[SourceRow | BadRow, Trees | None]


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """The settings of a build."""

    output: Path
    repos: Path | None = None
    """Folder of clones. Without it and `fetched` there are no base trees, hence no modules and entities."""
    split: float = 0.2
    """Fraction of the instances for validation, rounded to whole instances."""
    seed: int = 42
    workers: int = 1
    """Number of processes; does not affect the result."""
    fetched: FetchedTrees | None = None
    """Base trees that the input's rows name; used instead of clones."""
    only: tuple[str, ...] = ()
    """Endings of the files that have to be found; (): all files."""


@dataclass(slots=True)
class BuildReport:
    """Counts of one build."""

    train: int = 0
    validation: int = 0
    resumed: int = 0
    """Rows taken from an earlier, interrupted build."""
    unanswerable: int = 0
    missing: int = 0
    """Rows whose modules and entities are unknown."""
    empty: int = 0
    """Rows with files to find, but no module or no entity."""
    why_missing: Counter[str] = field(default_factory=Counter)
    """Reason -> number of rows."""
    bad: list[BadRow] = field(default_factory=list)


def build(source: Path, options: BuildOptions, progress: Progress = lambda done, total: None) -> BuildReport:
    """Write train.parquet and validation.parquet, and bad_rows.jsonl where rows were left out.

    Raises:
        MalformedRequest: the input cannot be read, an option is invalid, or another build writes to the same folder.
        InfrastructureError: a process of the build was killed; finished parts are kept.

    """
    if not 0 <= options.split < 1:
        raise MalformedRequest(f"--split {options.split} is not within [0, 1)")
    if options.repos is not None and not options.repos.is_dir():
        raise MalformedRequest(f"--repos {options.repos} is not a folder")
    with _alone_in(options.output):
        lines = _first_lines(source)
        work = _work_folder(source, options)
        report = BuildReport()
        parts = _make_parts(source, lines, work, options, report, progress)
        _assemble(parts, work, options, report)
        shutil.rmtree(work.parent)
    return report


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        opened = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise MalformedRequest(f"cannot write to {folder}: {error.strerror}") from None
    try:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise MalformedRequest(f"another build writes to {folder}; wait for it or give another --output") from None
        yield
    finally:
        os.close(opened)


@dataclass(slots=True)
class _FirstLines:
    rows: int = 0
    by_id: dict[str, int] = field(default_factory=dict)


def _first_lines(source: Path) -> _FirstLines:
    """The number of rows, and the first line of each id."""
    found = _FirstLines()
    for row in stream_rows(source):
        found.rows += 1
        if isinstance(row, SourceRow):
            found.by_id.setdefault(str(row.fields.get("instance_id")), row.line)
    return found


def _work_folder(source: Path, options: BuildOptions) -> Path:
    """Folder for the parts of this build; removes the parts of other builds."""
    digest = hashlib.sha256()
    with source.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    trees = options.fetched.digest if options.fetched else options.repos and options.repos.resolve()
    digest.update(f"{__version__} {_PART_ROWS} {SCHEMA} {trees} {options.only}".encode())
    folder = options.output / ".building" / digest.hexdigest()[:32]
    folder.mkdir(parents=True, exist_ok=True)
    for other in folder.parent.iterdir():
        if other != folder:
            shutil.rmtree(other, ignore_errors=True)
    return folder


def _make_parts(
    source: Path, first: _FirstLines, work: Path, options: BuildOptions, report: BuildReport, progress: Progress
) -> list[Path]:
    parts: list[Path] = []
    under_way: list[tuple[Future[None], int]] = []
    done = 0
    rows = stream_rows(source)
    with ExitStack() as stack:
        executor = _executor(options.workers, stack) if first.rows > _PART_ROWS else None
        while batch := list(islice(rows, _PART_ROWS)):
            path = work / f"{len(parts):06}.jsonl"
            parts.append(path)
            if path.exists():
                report.resumed += len(batch)
                done += len(batch)
            elif executor is None:
                _make_part(path, _with_trees(_without_repeated(batch, first), options), options.only)
                done += len(batch)
            else:
                checked = _with_trees(_without_repeated(batch, first), options)
                under_way.append((executor.submit(_make_part, path, checked, options.only), len(batch)))
                if len(under_way) > 2 * options.workers:  # bounds the rows in memory
                    done += _ended(under_way)
            progress(done, first.rows)
        while under_way:
            done += _ended(under_way)
            progress(done, first.rows)
    return parts


def _with_trees(rows: Iterable[SourceRow | BadRow], options: BuildOptions) -> list[_Job]:
    clones = CloneFolder(options.repos) if options.repos else None
    fetched = options.fetched
    return [(row, fetched.row_tree(row) if fetched and isinstance(row, SourceRow) else clones) for row in rows]


def _without_repeated(rows: Iterable[SourceRow | RowRejected], first: _FirstLines) -> list[SourceRow | BadRow]:
    checked: list[SourceRow | BadRow] = []
    for row in rows:
        if isinstance(row, RowRejected):
            checked.append(BadRow(row.line, row.detail))
        elif (line := first.by_id[str(row.fields.get("instance_id"))]) != row.line:
            again = row.rejected(f"instance_id {row.fields.get('instance_id')!r} is on line {line} already")
            checked.append(BadRow(again.line, again.detail))
        else:
            checked.append(row)
    return checked


def _ended(under_way: list[tuple[Future[None], int]]) -> int:
    future, rows = under_way.pop(0)
    try:
        future.result()
    except BrokenProcessPool:
        raise InfrastructureError(
            "a process of the build was killed, most likely for want of memory; run the same command again with "
            "fewer --workers: what is done is kept"
        ) from None
    return rows


def _executor(workers: int, stack: ExitStack) -> Executor | None:
    if workers <= 1:
        return None
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_die_with_parent)
    stack.callback(pool.shutdown, cancel_futures=True)
    return pool


def _die_with_parent() -> None:
    """End this process when its parent is killed; otherwise a process of a pool waits for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        sentinel = parent.sentinel
        threading.Thread(target=lambda: (wait([sentinel]), os._exit(1)), daemon=True).start()


def _make_part(path: Path, jobs: Sequence[_Job], only: Sequence[str]) -> None:
    """Write one JSON line for each row: its columns, or why it has none. The file appears complete or not at all."""
    unfinished = path.with_suffix(".unfinished")
    with unfinished.open("w", encoding="utf-8") as file:
        for row, trees in jobs:
            made: dict[str, object]
            if isinstance(row, BadRow):
                made = {"bad": row.why, "line": row.line}
            else:
                try:
                    made = {"row": dataset_row(row, trees, only)}
                except RowRejected as error:
                    made = {"bad": error.detail, "line": error.line}
            file.write(json.dumps(made, ensure_ascii=True) + "\n")
    unfinished.replace(path)


def _assemble(parts: Sequence[Path], work: Path, options: BuildOptions, report: BuildReport) -> None:
    ids: list[str] = []
    for made in _made(parts):
        if "bad" in made:
            report.bad.append(BadRow(made["line"], made["bad"]))
        else:
            ids.append(made["row"]["instance_id"])
            _count(made["row"], report)
    validation = _chosen(ids, options)
    with ExitStack() as stack:
        train_file = stack.enter_context(_Writer(work / "train.parquet"))
        validation_file = stack.enter_context(_Writer(work / "validation.parquet"))
        for made in _made(parts):
            if "row" in made:
                row = made["row"]
                (validation_file if row["instance_id"] in validation else train_file).add(row)
    report.train, report.validation = len(ids) - len(validation), len(validation)
    for name in ("train.parquet", "validation.parquet"):
        (work / name).replace(options.output / name)
    bad_rows = options.output / "bad_rows.jsonl"
    bad_rows.unlink(missing_ok=True)
    if report.bad:
        bad_rows.write_text("".join(json.dumps({"line": bad.line, "why": bad.why}) + "\n" for bad in report.bad))


def _chosen(ids: Sequence[str], options: BuildOptions) -> frozenset[str]:
    """The instances for validation, by a hash of seed and id: the rows' order and other columns have no influence."""
    ranked = sorted(ids, key=lambda name: hashlib.sha256(f"{options.seed} {name}".encode()).digest())
    return frozenset(ranked[: int(len(ids) * options.split + 0.5)])


def _made(parts: Iterable[Path]) -> Iterator[dict[str, Any]]:
    for part in parts:
        with part.open(encoding="utf-8") as file:
            yield from map(json.loads, file)


def _count(row: Row, report: BuildReport) -> None:
    report.unanswerable += bool(row["unanswerable"])
    if row["missing_levels"]:
        report.missing += 1
        told = cast(list[dict[str, str]], row["missing"])
        whys = {item["why"].partition(" at line ")[0] for item in told if item["what"] not in LEVELS}
        report.why_missing.update(whys)
    elif row["empty_levels"] and not row["unanswerable"]:
        report.empty += 1


class _Writer:
    """Writes a parquet file in row groups of equal size, so that its bytes depend on its rows only."""

    def __init__(self, path: Path) -> None:
        self._writer = pyarrow.parquet.ParquetWriter(path, SCHEMA)
        self._rows: list[Row] = []

    def add(self, row: Row) -> None:
        self._rows.append(row)
        if len(self._rows) == _GROUP_ROWS:
            self._write()

    def _write(self) -> None:
        self._writer.write_table(pyarrow.Table.from_pylist(self._rows, schema=SCHEMA))
        self._rows = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._rows:
            self._write()
        self._writer.close()
