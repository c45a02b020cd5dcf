"""`sandbox-server dataset ...`: data for training and evaluation; `build` for code search, `verl` for veRL."""

import asyncio
import os
import sys
from pathlib import Path

import typer

from sandbox_server.catalogue.localization.dataset import BuildOptions, BuildReport, build
from sandbox_server.catalogue.localization.fetched import FetchedTrees
from sandbox_server.cli import mirrors
from sandbox_server.cli.dataset_verl import write_verl

app = typer.Typer(no_args_is_help=True)

_SHOWN = 20
_LEFT_OUT = 3
"""Exit code if the files were written but lack some rows."""


app.command("verl", epilog="Example: sandbox-server dataset verl train.parquet")(write_verl)


@app.command("build", epilog="Example: sandbox-server dataset build --input rows.jsonl --output data --mirrors")
def build_dataset(
    source: Path = typer.Option(..., "--input", metavar="ROWS", help="JSON Lines, JSON or parquet."),  # noqa: B008 -- typer reads it
    output: Path = typer.Option(..., metavar="DIR", help="Output folder for train.parquet and validation.parquet."),  # noqa: B008 -- as above
    repos: Path | None = typer.Option(  # noqa: B008 -- as above
        None, metavar="DIR", help="Clones named owner__repo or owner/repo; needed for modules and entities."
    ),
    by_mirrors: bool = typer.Option(
        False,
        "--mirrors",
        help="Instead of --repos: fetch the repositories into this host's mirrors.",
    ),
    split: float = typer.Option(0.2, min=0, max=0.999, help="Share of the instances for validation."),
    seed: int = typer.Option(42, help="Seed for choosing the validation instances."),
    only: list[str] | None = typer.Option(  # noqa: B008 -- as above
        None, metavar="SUFFIX", help="Only files with this ending have to be found, such as .py."
    ),
    workers: int = typer.Option(os.cpu_count() or 1, min=1, help="Processes."),
) -> None:
    """Build a data set for code search; when interrupted, run it again to continue. docs/dataset.md.

    Exit code 3: rows were left out; each is listed with its line number.
    """
    if by_mirrors and repos:
        raise SystemExit("error: give either --mirrors or --repos")
    fetched = asyncio.run(_fetched(source)) if by_mirrors else None
    options = BuildOptions(output, repos, split, seed, workers, fetched, tuple(only or ()))
    shown = 0
    with typer.progressbar(length=1, label="rows", file=sys.stderr, hidden=not sys.stderr.isatty()) as bar:

        def progress(done: int, total: int) -> None:
            nonlocal shown
            bar.length = total
            bar.update(done - shown)
            shown = done

        report = build(source, options, progress)
    _tell(report, output)
    if report.bad:
        raise typer.Exit(_LEFT_OUT)


async def _fetched(source: Path) -> FetchedTrees:
    fetched = FetchedTrees()
    async with mirrors.opened() as found:
        await fetched.fetch_rows(found, source)
    return fetched


def _tell(report: BuildReport, output: Path) -> None:
    typer.echo(f"{output / 'train.parquet'}: {report.train} rows")
    typer.echo(f"{output / 'validation.parquet'}: {report.validation} rows")
    for count, what in (
        (report.resumed, "were done in an earlier run"),
        (report.unanswerable, "unanswerable: no file of the base tree has to be found"),
        (report.empty, "change no class or function"),
        (report.missing, "without modules and entities, which could not be determined:"),
    ):
        if count:
            typer.echo(f"  {count} {what}")
    for why, count in report.why_missing.most_common(5):
        typer.echo(f"    {count} {why}")
    if report.bad:
        typer.echo(f"{len(report.bad)} rows left out ({output / 'bad_rows.jsonl'}):", err=True)
        for bad in report.bad[:_SHOWN]:
            typer.echo(f"  {bad.why}", err=True)
        if len(report.bad) > _SHOWN:
            typer.echo(f"  and {len(report.bad) - _SHOWN} more", err=True)
