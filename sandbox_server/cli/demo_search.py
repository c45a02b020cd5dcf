"""The verb `demo-search`: a scripted code-search rollout on each sample, over HTTP, with each item of its reward."""

import json
import math
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import httpx
import typer

from sandbox_server.catalogue.instance import instance_hash
from sandbox_server.cli.demo import post
from sandbox_server.cli.kit import kit_path
from sandbox_server.cli.local_server import LocalServerFailed, local_server

app = typer.Typer()

_BLOCK = re.compile(r"<tool_response>\n(.*?)\n</tool_response>", re.DOTALL)
_RECORDED = "Your answer is recorded."


@dataclass(frozen=True, slots=True)
class Script:
    """A rollout.json: the policy's actions, and the expected rewards."""

    instance_id: str
    title: str
    says: str
    turns: tuple[tuple[str, ...], ...]
    """Commands; those of one turn run at once."""
    answer: str
    total: float
    """The correct total with SANDBOX_LOCALIZATION_REWARDS=tool_use_capped."""


@dataclass(slots=True)
class RolloutResult:
    """The course of a rollout."""

    start_s: float = 0.0
    turns_s: list[float] = field(default_factory=list)
    reply: dict[str, object] = field(default_factory=dict)
    problem: str = ""
    """Why it is not as expected; else ""."""


@app.command(epilog="Example: sandbox-server demo-search")
def demo_search(
    examples: Annotated[Path | None, typer.Option(help="Folder with the samples; default: the package's.")] = None,
) -> None:
    """Play a code-search rollout on each sample and check its reward; exit 1 unless all are as expected.

    Their image must be there: `sandbox-server images build search`.
    """
    examples = examples or kit_path("examples")
    with tempfile.TemporaryDirectory(prefix="sandbox-search-") as folder:
        make = [sys.executable, str(examples / "build_search.py"), folder]
        made = subprocess.run(make, capture_output=True, text=True, check=False)
        if made.returncode:
            raise SystemExit(f"error: {' '.join(make)}: {made.stderr[-2000:]}")
        _demo(examples / "search", Path(folder).resolve())


def _demo(samples: Path, folder: Path) -> None:
    settings = {
        "SANDBOX_REPOSITORY_URL": f"{folder}/{{repo}}",
        "SANDBOX_REPOSITORY_FOLDERS": str(folder),
        "SANDBOX_LOCALIZATION_REWARDS": "tool_use_capped",
    }
    options = ("--localization", "--mirrors")
    try:
        with local_server(folder / "rows.jsonl", settings, import_options=options) as server:
            typer.echo(f"server at {server.url} (process {server.pid})")
            with httpx.Client(base_url=server.url, timeout=300.0) as client:
                wrong = sum(not drive(client, script) for script in scripts(samples, folder / "rows.jsonl"))
    except (LocalServerFailed, OSError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error
    typer.echo("\nserver stopped; none of its containers is left")
    if wrong:
        typer.echo(f"{wrong} rewards are not as expected", err=True)
        raise typer.Exit(1)
    typer.echo("every reward is as expected")


def scripts(samples: Path, rows: Path) -> list[Script]:
    """The rollout of each row."""
    found = []
    for row in map(json.loads, rows.read_text().splitlines()):
        script = json.loads((samples / row["instance_id"].rpartition("-")[2] / "rollout.json").read_text())
        title = row["problem_statement"].partition("\n")[0]
        turns = tuple(map(tuple, script["turns"]))
        made = Script(row["instance_id"], title, script["says"], turns, script["answer"], script["total"])
        found.append(made)
    return found


def drive(client: httpx.Client, script: Script) -> bool:
    """Play and print a rollout; return whether it is as expected."""
    typer.echo(f"\n{script.instance_id}: {script.title}\n  {script.says}")
    played = RolloutResult()
    try:
        _play(client, script, played)
    except (httpx.HTTPError, KeyError, ValueError) as error:
        played.problem = f"{type(error).__name__}: {error}"
    typer.echo(f"  started in {played.start_s:.2f} s")
    for number, (commands, took_s) in enumerate(zip(script.turns, played.turns_s, strict=False), start=1):
        typer.echo(f"  turn {number}: {len(commands)} calls, {took_s * 1000:.0f} ms: {' | '.join(commands)}")
    reply = played.reply
    answer = reply.get("answer")
    if isinstance(answer, dict):
        places = answer.get("entities") or answer.get("files")
        typer.echo(f"  answer ({answer.get('format')}): {' '.join(places or ())}")
    items = reply.get("items")
    for item in items if isinstance(items, list) else ():
        parts = ", ".join(f"{name} {value:.3g}" for name, value in item["parts"].items())
        typer.echo(f"    {item['fn']:<34}{item['value']:6.3f} x {item['weight']:g}  {parts}".rstrip())
    typer.echo(f"  total {reply.get('reward', '-')}, {reply.get('verdict', '-')}")
    if played.problem:
        typer.echo(f"    NOT AS EXPECTED: {played.problem}")
    return not played.problem


def _play(client: httpx.Client, script: Script, played: RolloutResult) -> None:
    begin = time.monotonic()
    sid = post(client, "/start_instance", instance_hash=instance_hash(script.instance_id))["sid"]
    played.start_s = time.monotonic() - begin
    for commands in script.turns:
        begin = time.monotonic()
        observation = str(post(client, "/process_action", sid=sid, content="\n".join(map(_call, commands)))["content"])
        played.turns_s.append(time.monotonic() - begin)
        outputs = _BLOCK.findall(observation)
        if len(outputs) != len(commands) or any("[exit code:" in output for output in outputs):
            played.problem = f"{len(commands)} calls were answered with {observation}"
    recorded = str(post(client, "/process_action", sid=sid, content=script.answer)["content"])
    if _RECORDED not in recorded:
        played.problem = f"the answer was not recorded: {recorded}"
    post(client, "/postprocess", sid=sid)
    played.reply = post(client, "/compute_reward", sid=sid)
    total, masked = played.reply["reward"], played.reply["mask"]
    if masked or not isinstance(total, float) or not math.isclose(total, script.total, abs_tol=1e-9):
        played.problem = f"{total} instead of {script.total}: {played.reply.get('cause')}"


def _call(command: str) -> str:
    return f"<tool_call>{json.dumps({'name': 'bash', 'arguments': {'command': command}})}</tool_call>"
