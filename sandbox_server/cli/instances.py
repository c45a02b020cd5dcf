"""`sandbox-server instances ...`: the catalogue from the command line, with or without a running server."""

import asyncio
import importlib
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import typer

from sandbox_server.catalogue.certificates import Certificates
from sandbox_server.catalogue.database import Database
from sandbox_server.catalogue.importing import read_instances, read_tasks
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.catalogue.instances import Instances, InstanceSummary
from sandbox_server.catalogue.localization.extract import NO_TREE
from sandbox_server.catalogue.localization.fetched import FetchedTrees
from sandbox_server.catalogue.localization.task import TaskOptions
from sandbox_server.catalogue.localization.trees import CloneFolder
from sandbox_server.catalogue.localization.truth import AnswerFormat, RewardItem
from sandbox_server.cli import configuration, signalled
from sandbox_server.cli.localizing import Localizing
from sandbox_server.cli.progress import progress
from sandbox_server.errors import RowRejected

TruthSource = Literal["patch", "file_changes"]
_TREES = "--mirrors, --repos DIR, or --truth file_changes if the rows have that column"

app = typer.Typer(no_args_is_help=True)


@app.command("import", epilog="Example: sandbox-server instances import train.jsonl")
def import_files(
    files: list[Path] = typer.Argument(metavar="FILE", help="Files, or folders of Harbor tasks."),  # noqa: B008 -- typer reads it
    localization: bool = typer.Option(
        False, "--localization", help="Import as code-search tasks: find what the gold patch changes."
    ),
    repos: Path | None = typer.Option(  # noqa: B008 -- as above
        None,
        metavar="DIR",
        help="With --localization: clones named owner__repo or owner/repo, for modules and entities.",
    ),
    by_mirrors: bool = typer.Option(
        False, "--mirrors", help="Instead of --repos: fetch the repositories into this host's mirrors."
    ),
    rewards: str = typer.Option(
        "", metavar="NAME|FILE", help="With --localization: how answers are scored; default: the service's setting."
    ),
    written: AnswerFormat | None = typer.Option(  # noqa: B008 -- as above
        None,
        "--format",
        metavar="FORMAT",
        help="With --localization: format of the answer: auto, files, file_list, fenced, structured or lines.",
    ),
    truth: TruthSource = typer.Option(  # noqa: B008 -- as above
        "patch",
        metavar="SOURCE",
        help="With --localization: source of the files to find: patch (gold), or file_changes (a column).",
    ),
    only: list[str] | None = typer.Option(  # noqa: B008 -- as above
        None, metavar="SUFFIX", help="With --localization: only files with this ending have to be found, such as .py."
    ),
    family: str = typer.Option("", help="Family of all rows, such as localization; default: detected per row."),
    carry: list[str] | None = typer.Option(  # noqa: B008 -- as above
        None,
        metavar="PATH",
        help="For folders: a path that gradings take from the agent's container besides the task's own.",
    ),
) -> None:
    """Import task instances from JSON Lines, JSON, parquet or folders; docs/instances.md lists the families.

    A file is imported completely or not at all: the first bad file stops the import, and files before it stay imported.
    A folder holds Harbor tasks: refused tasks are named, and all others are imported.
    """
    by_patch = truth == "patch"
    if not localization and (repos is not None or by_mirrors or rewards or written or only or not by_patch):
        raise SystemExit("error: --repos, --mirrors, --rewards, --format, --truth and --only require --localization")
    if repos is not None and by_mirrors:
        raise SystemExit("error: give either --mirrors or --repos")
    if not by_patch and (repos is not None or by_mirrors):
        raise SystemExit(f"error: --truth {truth} needs no trees: leave out --mirrors and --repos")
    options = TaskOptions(_items(rewards), written, tuple(only or ()))
    clones, fetched = CloneFolder(repos) if repos else None, FetchedTrees() if by_mirrors else None
    localizing = Localizing(clones, fetched, options, by_patch=by_patch)
    folders = [path for path in files if path.is_dir()]
    if folders and (localization or family not in ("", "harbor")):
        raise SystemExit(f"error: {folders[0]} is a folder: only tasks of the family harbor are folders")
    if carry and len(folders) < len(files):
        raise SystemExit("error: --carry is for folders")
    if (family == "harbor" or folders) and len(folders) < len(files):
        raise SystemExit("error: tasks of the family harbor are folders; import other files by a call of their own")
    asyncio.run(
        _import_folders(folders, carry or ())
        if folders
        else _import(files, family, localizing if localization else None)
    )


@app.command("list", epilog="Example: sandbox-server instances list --dataset swe-gym")
def list_instances(
    dataset: str | None = typer.Option(None, help="Only this data set."),
    repo: str | None = typer.Option(None, help="Only this repository."),
    limit: int = typer.Option(100, min=1, help="Maximum number."),
) -> None:
    """List instances: id, hash, grader, result of `verify`."""
    asyncio.run(_list(dataset, repo, limit))


@app.command("show", epilog="Example: sandbox-server instances show samples__ledger-12")
def show_instance(
    instance_id: str = typer.Argument(metavar="ID", help="Id of the instance."),
    as_json: bool = typer.Option(False, "--json", help="The whole record, gold patch and tests included."),
) -> None:
    """Show one instance."""
    asyncio.run(_show(instance_id, as_json=as_json))


@app.command("verify", epilog="Example: sandbox-server instances verify samples__ledger-12")
def verify_instances(
    ids: list[str] | None = typer.Argument(None, metavar="ID", help="Ids of instances; none: all."),  # noqa: B008 -- typer reads it
    jobs: int = typer.Option(0, min=0, help="Instances at a time; 0: SANDBOX_GRADE_CONCURRENCY."),
) -> None:
    """Grade the gold patch and the unpatched tree of these instances, or of all: only gold may resolve."""
    # only this verb needs an engine and the graders
    verify = importlib.import_module("sandbox_server.cli.verify").verify
    if unsound := signalled.run(verify(ids or [], jobs=jobs)):
        raise SystemExit(f"error: {unsound} not sound")


@app.command("certify", epilog="Example: sandbox-server instances certify --mutants 4 samples__ledger-12")
def certify_instances(
    ids: list[str] | None = typer.Argument(None, metavar="ID", help="Ids of instances; none: all."),  # noqa: B008 -- typer reads it
    jobs: int = typer.Option(0, min=0, help="Runs of tests at a time; 0: one for every two CPUs."),
    times: int = typer.Option(3, min=2, help="Runs of gold, and of the unpatched tree, first quiet, then under load."),
    mutants: int = typer.Option(8, min=0, help="Maximum number of small faults to put into gold."),
    again: bool = typer.Option(False, "--again", help="Start anew instead of continuing the previous run."),
) -> None:
    """Measure how reliable the tests of these instances, or of all, are: flakes, free tests, mutants, variants.

    Finished steps are stored, so a second call continues where the first ended. Exit code 1 if one is not sound.
    """
    # as for `verify`
    certify = importlib.import_module("sandbox_server.cli.certify").certify
    if unsound := signalled.run(certify(ids or [], jobs=jobs, times=times, mutants=mutants, again=again)):
        raise SystemExit(f"error: {unsound} not sound")


@app.command("certificates", epilog="Example: sandbox-server instances certificates --format csv")
def show_certificates(
    ids: list[str] | None = typer.Argument(None, metavar="ID", help="Ids of instances; none: all."),  # noqa: B008 -- typer reads it
    style: str = typer.Option("md", "--format", help="csv, json or md."),
) -> None:
    """Show what `certify` found, one line per instance and image."""
    asyncio.run(_certificates(ids or [], style))


@asynccontextmanager
async def _database() -> AsyncIterator[Database]:
    database = configuration.database()
    try:
        await database.migrate()
        yield database
    finally:
        await database.dispose()


@asynccontextmanager
async def _catalogue() -> AsyncIterator[Instances]:
    async with _database() as database:
        yield Instances(database)


def _items(named: str) -> tuple[RewardItem, ...]:
    if not named:
        return ()
    # only --rewards needs the grading code
    composition = importlib.import_module("sandbox_server.grading.localization.composition")
    try:
        found = composition.load(named)
    except ValueError as error:
        raise SystemExit(f"error: --rewards: {error}") from None
    if found.discount is not None:
        raise SystemExit("error: --rewards: an instance cannot have a discount; use SANDBOX_LOCALIZATION_REWARDS")
    items: tuple[RewardItem, ...] = found.items
    return items


async def _import(files: Sequence[Path], family: str, localizing: Localizing | None) -> None:
    async with _catalogue() as instances:
        for file in files:
            try:
                found = _read(file, family)
                if localizing is not None:
                    await localizing.prepare(file, found)
            except RowRejected as error:
                raise SystemExit(f"error: {file}: {error.detail} (nothing of this file was imported)") from None
            if localizing is not None:
                found = _localized(localizing, found)
            report = await instances.add(found)
            typer.echo(f"{file}: {report.new} new, {report.updated} updated, {report.unchanged} unchanged")
            causes = Counter(instance.ungradable_because for instance in found if instance.grader is None)
            for because, count in causes.most_common(10):
                typer.echo(f"  {count} ungradable: {because}")
    if localizing is not None:
        for because, count in localizing.failed.most_common(10):
            typer.echo(f"  {count} not converted to code search: gold patch: {because}")
        for because, count in localizing.missing.most_common(10):
            mended = f"; give {_TREES}" if because == NO_TREE else ""
            typer.echo(f"  {count} without modules and entities: {because}{mended}")


def _read(file: Path, family: str) -> list[TaskInstance]:
    with progress("rows") as bar:

        def on_progress(done: int, total: int) -> None:
            if done == 1:
                bar.begin(total)
            bar.ran()

        return read_instances(
            file, swebench4_dir=configuration.load().swebench4_dir, family=family, on_progress=on_progress
        )


def _localized(localizing: Localizing, found: Sequence[TaskInstance]) -> list[TaskInstance]:
    """Reads the files that each gold patch changes: seconds for a large repository."""
    made = []
    with progress("tasks", len(found)) as bar:
        for instance in found:
            made.append(localizing(instance))
            bar.ran()
    return made


async def _import_folders(folders: Sequence[Path], carry: Sequence[str]) -> None:
    async with _catalogue() as instances:
        for folder in folders:
            found, refused = read_tasks(folder, carry)
            report = await instances.add(found)
            typer.echo(f"{folder}: {report.new} new, {report.updated} updated, {report.unchanged} unchanged")
            for because in refused:
                typer.echo(f"  refused: {because}", err=True)
            if refused and not found:
                raise SystemExit(f"error: {folder}: no task was imported")


async def _list(dataset: str | None, repo: str | None, limit: int) -> None:
    async with _catalogue() as instances:
        shown = await instances.list(dataset=dataset, repo=repo, limit=limit)
        total = await instances.count(dataset=dataset, repo=repo)
    width = max((len(summary.instance_id) for summary in shown), default=0)
    for summary in shown:
        facts = (f"{summary.instance_hash:>19}", f"{summary.grader or 'ungradable':<10}", _verification(summary))
        typer.echo("  ".join((f"{summary.instance_id:<{width}}", *facts)).rstrip())
    typer.echo(f"{len(shown)} of {total}" if len(shown) < total else f"{total} in all", err=True)


async def _certificates(ids: Sequence[str], style: str) -> None:
    table = importlib.import_module("sandbox_server.cli.certificates")  # needs the grading code
    async with _database() as database:
        found = await table.rows(Instances(database), Certificates(database), ids)
    if not found:
        typer.echo("no certificates; `sandbox-server instances certify` makes them", err=True)
    try:
        typer.echo(table.written(found, style))
    except ValueError as error:
        raise SystemExit(f"error: --format: {error}") from None


async def _show(instance_id: str, *, as_json: bool) -> None:
    async with _database() as database:
        instances = Instances(database)
        instance = await instances.by_id(instance_id)
        verification = await instances.verified(instance_id)
        table = importlib.import_module("sandbox_server.cli.certificates")  # needs the grading code
        certified = await table.rows(instances, Certificates(database), [instance_id])
    if as_json:
        typer.echo(instance.model_dump_json(indent=2))
        return
    facts = _facts(instance)
    if verification is not None:
        facts["verified"] = f"gold {verification.gold}, empty {verification.empty}"
    for name, value in facts.items():
        typer.echo(f"{name:<12} {value}")
    for row in certified:
        typer.echo(
            f"{'certificate':<12} " + ", ".join(f"{name} {value}" for name, value in row.items() if name != "instance")
        )


def _facts(instance: TaskInstance) -> dict[str, str]:
    facts = {
        "id": instance.instance_id,
        "hash": str(instance.instance_hash),
        "data set": instance.dataset,
        "repo": f"{instance.repo} {instance.version}".strip(),
        "base commit": instance.base_commit,
        "images": " | ".join(instance.sandbox.images),
        "workdir": instance.sandbox.workdir,
        "workspace": instance.workspace,
        "dialect": instance.dialect or "the server's default",
        "grader": instance.grader.kind if instance.grader else f"none: {instance.ungradable_because}",
        "tests": f"{len(instance.fail_to_pass)} to fix, {len(instance.pass_to_pass)} to keep",
        "converted by": instance.conversion,
    }
    return {name: value for name, value in facts.items() if value}


def _verification(summary: InstanceSummary) -> str:
    found = summary.verification
    if found is None:
        return ""
    return "verified" if found.sound else f"gold {found.gold}, empty {found.empty}"
