"""`sandbox-server sessions ...`: the sessions of the running server, over its own API."""

import json
import time
from urllib.parse import quote

import typer

from sandbox_server.cli import api

app = typer.Typer(no_args_is_help=True)


@app.command("list")
def list_sessions(
    state: str | None = typer.Option(None, help="live, ending, ended or lost."),
    run: str | None = typer.Option(None, help="Only those of this run."),
    limit: int = typer.Option(100, min=1, max=1000, help="At most so many, the newest first."),
) -> None:
    """List sessions: sid, state, age, actions, instance."""
    filters = {"state": state, "run": run}
    query: dict[str, str | int] = {"limit": limit} | {
        name: value for name, value in filters.items() if value is not None
    }
    for session in api.call("GET", "/v1/sessions", query):
        age_s = time.time() - session["created_at"]
        typer.echo(
            f"{session['sid']:>16}  {session['state']:<6}  {age_s:>8.0f} s  {session['actions']:>4} actions"
            f"  {session['instance_id']}  {session['end_reason']}".rstrip()
        )


@app.command("show")
def show_session(sid: str = typer.Argument(metavar="SID")) -> None:
    """Show all that is known of a session."""
    typer.echo(json.dumps(api.call("GET", f"/v1/sessions/{sid}"), indent=2, ensure_ascii=False))


@app.command("close")
def close_session(
    sid: str | None = typer.Argument(None, metavar="[SID]"),
    run: str | None = typer.Option(None, help="Every session and box of this run, in place of a SID."),
) -> None:
    """End a session, or all of a run; their patches are kept and graded."""
    if (sid is None) == (run is None):
        raise typer.BadParameter("name one session by its SID, or a run with --run")
    if run is not None:
        _close_run(run)
        return
    session = api.call("DELETE", f"/v1/sessions/{sid}")
    typer.echo(f"{session['sid']} {session['state']} ({session['end_reason']})")


def _close_run(run: str) -> None:
    while True:
        answer = api.call("DELETE", f"/v1/runs/{quote(run)}/sessions")
        typer.echo(f"{len(answer['ended'])} sessions of run {run} ended, {len(answer['ending'])} are ending")
        if not answer["ending"]:
            return
