"""`sandbox-server export`: a run as JSON Lines, or one session as a page or a recording."""

import sys
import time
from enum import StrEnum
from pathlib import Path

import typer

from sandbox_server.cli import api

app = typer.Typer()


class Format(StrEnum):
    """The format in which one session is exported."""

    HTML = "html"
    ASCIICAST = "asciicast"


@app.command(epilog="Example: sandbox-server export --run grpo-7b --output run.jsonl")
def export(
    run: str | None = typer.Option(None, help="Only this run's sessions; default: all."),
    hours: float | None = typer.Option(None, min=0, help="Only sessions started within this many hours."),
    actions: bool = typer.Option(False, "--actions", help="Include every action and observation."),
    session: str | None = typer.Option(None, metavar="SID", help="One session, as a file that needs no server."),
    kind: Format = typer.Option(Format.HTML, "--format", help="Of --session; asciinema plays an asciicast."),  # noqa: B008 -- typer reads it
    output: Path | None = typer.Option(None, "--output", "-o", help="Output file; default: standard output."),  # noqa: B008 -- typer reads it
) -> None:
    """Write sessions with rewards, masks and causes, one JSON object per line, newest first.

    With --session: that session alone, as a page or a recording.
    """
    if session is not None:
        api.call("GET", f"/v1/sessions/{session}")  # an error of a page would not say why
        paths = {Format.HTML: "/ui/sessions/{}/export", Format.ASCIICAST: "/v1/sessions/{}/asciicast"}
        path, query = paths[kind].format(session), {}
    else:
        since = None if hours is None else time.time() - 3600 * hours
        given = {"run": run, "since": since, "actions": "true" if actions else None}
        path, query = "/v1/export", {name: str(value) for name, value in given.items() if value is not None}
    if output is None:
        for chunk in api.stream(path, query):
            sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
        return
    with output.open("wb") as file:
        for chunk in api.stream(path, query):
            file.write(chunk)
    typer.echo(f"{output}: {output.stat().st_size:,} bytes", err=True)
