"""`sandbox-server sessions ...`: the sessions of the running server, through its own API."""

import json
import time
from urllib.parse import quote

import typer

from sandbox_server.cli import api, terminal
from sandbox_server.cli.formatting import seconds
from sandbox_server.insight.sanitize import for_terminal

_AT_ONCE = 20
_LOOK_S = 1.0

app = typer.Typer(no_args_is_help=True)


@app.command("list", epilog="Example: sandbox-server sessions list --run grpo-7b --verdict unresolved")
def list_sessions(
    state: str | None = typer.Option(None, help="live, ending, ended or lost."),
    run: str | None = typer.Option(None, help="Only sessions of this run."),
    instance: str | None = typer.Option(None, help="Only sessions of this instance."),
    verdict: str | None = typer.Option(None, help="Only sessions with this verdict."),
    node: str | None = typer.Option(None, help="Only sessions on this node."),
    limit: int = typer.Option(100, min=1, max=1000, help="Maximum number; the newest come first."),
) -> None:
    """List sessions: sid, state, age, duration, actions, verdict, reward, run, instance."""
    filters = {"state": state, "run": run, "instance": instance, "verdict": verdict, "node": node}
    query: dict[str, str | int] = {"limit": limit} | {
        name: value for name, value in filters.items() if value is not None
    }
    for session in api.call("GET", "/v1/sessions", query):
        began, ended = session["created_at"], session["ended_at"]
        reward = "-" if session["reward"] is None or session["mask"] else f"{session['reward']:.3g}"
        judged = (session["verdict"] or "-") + (" masked" if session["mask"] else "")
        typer.echo(
            for_terminal(
                f"{session['sid']:>16}  {session['state']:<6}  {seconds(time.time() - began):>6} ago"
                f"  {seconds((ended or time.time()) - began):>6}  {session['actions']:>4} actions"
                f"  {judged:<14} {reward:>5}  {session['run'] or '-':<12}  {session['instance_id'] or '(box)'}"
                f"  {session['end_reason']}".rstrip()
            )
        )


@app.command("follow", epilog="Example: sandbox-server sessions follow 8235282074402559")
def follow_session(
    sid: str = typer.Argument(metavar="SID", help="Id of the session."),
    after: int = typer.Option(0, min=0, help="Start after this action."),
) -> None:
    """Print a session's actions as they arrive, until it ends; then its verdict, if any."""
    while True:
        # checked first, so that no action is missed between the last page and the end
        over = api.call("GET", f"/v1/sessions/{sid}")["state"] in ("ended", "lost")
        new = api.call("GET", f"/v1/sessions/{sid}/actions", {"after": after, "limit": _AT_ONCE})
        for action in new:
            after = action["seq"]
            status = action["outcome"] if action["exit_code"] is None else f"exit {action['exit_code']}"
            typer.secho(for_terminal(f"[{after}] {action['tool']} {status} {seconds(action['duration_s'])}"), bold=True)
            typer.echo(for_terminal(action["content"]))
            typer.secho(for_terminal(action["observation"]), dim=True)
        if over and not new:
            break
        if not new:
            time.sleep(_LOOK_S)
    session = api.call("GET", f"/v1/sessions/{sid}")
    judged = "" if session["grade"] is None else f": {session['verdict']}, reward {session['grade']['reward']:.3g}"
    typer.echo(for_terminal(f"{sid} {session['state']} ({session['end_reason']}){judged}"))


@app.command("show", epilog="Example: sandbox-server sessions show 8235282074402559")
def show_session(sid: str = typer.Argument(metavar="SID", help="Id of the session.")) -> None:
    """Show a session in full."""
    typer.echo(json.dumps(api.call("GET", f"/v1/sessions/{sid}"), indent=2, ensure_ascii=False))


@app.command("open", epilog="Example: sandbox-server sessions open 8235282074402559 --at 7")
def open_session(
    sid: str = typer.Argument(metavar="SID", help="Id of the session."),
    at: int | None = typer.Option(None, min=0, help="After this action; 0: before the first. Default: the last one."),
) -> None:
    """Open a shell in a copy of a session, live or ended. The copy is gone at exit; stdin may be a script."""
    raise typer.Exit(terminal.open_copy(sid, at))


@app.command("close", epilog="Example: sandbox-server sessions close 8235282074402559")
def close_session(
    sid: str | None = typer.Argument(None, metavar="SID", help="Id of the session."),
    run: str | None = typer.Option(None, help="All sessions and boxes of this run, instead of a SID."),
) -> None:
    """End a session, or all sessions of a run; their patches are kept and graded."""
    if (sid is None) == (run is None):
        raise typer.BadParameter("give either a SID or --run")
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
