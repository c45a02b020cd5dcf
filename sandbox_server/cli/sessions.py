"""`sandbox-server sessions ...`: the sessions of the running server, over its own API."""

import json
import time
from typing import Any

import httpx
import typer

from sandbox_server.cli import configuration
from sandbox_server.errors import ServiceError

app = typer.Typer(no_args_is_help=True)

_TIMEOUT_S = 330.0  # an end waits for the action under way and the capture of the patch


@app.command("list")
def list_sessions(
    state: str | None = typer.Option(None, help="live, ending, ended or lost."),
    limit: int = typer.Option(100, min=1, max=1000, help="At most so many, the newest first."),
) -> None:
    """List sessions: sid, state, age, actions, instance."""
    query: dict[str, str | int] = {"limit": limit} if state is None else {"limit": limit, "state": state}
    for session in _call("GET", "/v1/sessions", query):
        age_s = time.time() - session["created_at"]
        typer.echo(
            f"{session['sid']:>16}  {session['state']:<6}  {age_s:>8.0f} s  {session['actions']:>4} actions"
            f"  {session['instance_id']}  {session['end_reason']}".rstrip()
        )


@app.command("show")
def show_session(sid: str = typer.Argument(metavar="SID")) -> None:
    """Show all that is known of a session."""
    typer.echo(json.dumps(_call("GET", f"/v1/sessions/{sid}"), indent=2, ensure_ascii=False))


@app.command("close")
def close_session(sid: str = typer.Argument(metavar="SID")) -> None:
    """End a session; its patch is kept and graded."""
    session = _call("DELETE", f"/v1/sessions/{sid}")
    typer.echo(f"{session['sid']} {session['state']} ({session['end_reason']})")


def _call(method: str, path: str, query: dict[str, str | int] | None = None) -> Any:
    settings = configuration.load()
    headers = {"X-API-Key": settings.api_keys[0].get_secret_value()} if settings.api_keys else {}
    url = f"http://{settings.host}:{settings.port}{path}"
    try:
        answer = httpx.request(method, url, params=query, headers=headers, timeout=_TIMEOUT_S)
    except httpx.TransportError as e:
        raise ServiceError(
            f"no server answers at {url}: {e}; is it running, and are SANDBOX_HOST and _PORT its own?"
        ) from e
    if answer.is_error:
        try:
            detail = answer.json()["detail"]
        except (ValueError, KeyError, TypeError):
            detail = answer.text[:300]
        raise ServiceError(f"{answer.status_code}: {detail}")
    return answer.json()
