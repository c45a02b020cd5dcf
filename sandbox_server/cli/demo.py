"""The verb `demo`: a correct, a wrong and an empty answer to each sample, over HTTP through all four endpoints."""

import json
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Annotated

import httpx
import typer

from sandbox_server.catalogue.instance import instance_hash
from sandbox_server.cli.kit import kit_path
from sandbox_server.cli.local_server import LocalServerFailed, local_server

app = typer.Typer()

EXPECTED = {"gold": ("resolved", 1.0), "wrong": ("unresolved", 0.0), "empty": ("empty_patch", 0.0)}
"""Answer -> its correct verdict and reward."""

_ASKS = 3  # a grading that takes longer than SANDBOX_REWARD_WAIT_S is answered `pending`; then ask again


@dataclass(frozen=True, slots=True)
class Sample:
    """A folder of examples/ and its row."""

    folder: Path
    instance_id: str
    title: str
    code_path: str | None
    """The file that a policy of the `code` dialect rewrites; None for openhands_xml."""

    def patch(self, answer: str) -> str:
        """The diff of this answer; "" for the empty one."""
        return "" if answer == "empty" else (self.folder / f"{answer}.patch").read_text()


@dataclass(slots=True)
class Rollout:
    """The course and the result of one rollout."""

    sample: Sample
    answer: str
    did: list[str] = field(default_factory=list)
    start_s: float = 0.0
    actions_s: list[float] = field(default_factory=list)
    postprocess_s: float = 0.0
    reward_s: float = 0.0
    reply: dict[str, object] = field(default_factory=dict)
    problem: str = ""
    """Why it is not as expected; else ""."""


@app.command(epilog="Example: sandbox-server demo --url http://127.0.0.1:5000")
def demo(
    url: Annotated[str, typer.Option(help="A running server that has the samples; default: start one.")] = "",
    examples: Annotated[Path | None, typer.Option(help="Folder with the samples; default: the package's.")] = None,
) -> None:
    """Run the samples through a server and check every verdict; exit 1 unless all are as expected.

    Their images must be there: `sandbox-server images build samples`.
    """
    examples = examples or kit_path("examples")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # else the server that it starts outlives it
    try:
        with _served(url, examples) as base_url, httpx.Client(base_url=base_url, timeout=300.0) as client:
            wrong = sum(_drive(client, sample) for sample in _samples(examples))
    except LocalServerFailed as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error
    if wrong:
        typer.echo(f"{wrong} verdicts are not as expected", err=True)
        raise typer.Exit(1)
    typer.echo("every verdict is as expected")


@contextmanager
def _served(url: str, examples: Path) -> Iterator[str]:
    if url:
        yield url
        return
    with local_server(examples / "instances.jsonl") as server:
        typer.echo(f"server at {server.url} (process {server.pid})")
        yield server.url
    typer.echo("server stopped; none of its containers is left")


def _samples(examples: Path) -> list[Sample]:
    rows = [json.loads(line) for line in (examples / "instances.jsonl").read_text().splitlines()]
    return [
        Sample(
            folder=examples / row["repo"].partition("/")[2],
            instance_id=row["instance_id"],
            title=row["problem_statement"].partition("\n")[0],
            code_path=row["code"]["path"] if row.get("dialect") == "code" else None,
        )
        for row in rows
    ]


def _drive(client: httpx.Client, sample: Sample) -> int:
    """Run all answers to one sample concurrently and print them; return how many were not as expected."""
    with ThreadPoolExecutor(len(EXPECTED)) as pool:
        rollouts = list(pool.map(lambda answer: _rollout(client, sample, answer), EXPECTED))
    show(sample, rollouts)
    return sum(bool(rollout.problem) for rollout in rollouts)


def show(sample: Sample, rollouts: Sequence[Rollout]) -> None:
    """Print a table of rollouts of one sample."""
    typer.echo(f"\n{sample.instance_id}: {sample.title}")
    typer.echo(
        f"  {'':6}{'start':>8}{'actions':>16}{'postprocess':>13}{'grading':>9}"
        f"  {'verdict':<12}{'reward':>6}{'F2P':>7}{'P2P':>7}  did"
    )
    for rollout in rollouts:
        typer.echo("  " + _line(rollout))


def _line(rollout: Rollout) -> str:
    reply = rollout.reply
    actions = f"{len(rollout.actions_s)} x {median(rollout.actions_s or [0.0]) * 1000:.1f} ms"
    counts = [f"{reply.get(f'{kind}_count', '?')}/{reply.get(f'{kind}_total', '?')}" for kind in ("f2p", "p2p")]
    line = (
        f"{rollout.answer:6}{rollout.start_s:6.2f} s{actions:>16}"
        f"{rollout.postprocess_s:11.2f} s{rollout.reward_s:7.2f} s"
        f"  {reply.get('verdict', '-')!s:<12}{reply.get('reward', '-')!s:>6}{counts[0]:>7}{counts[1]:>7}"
        f"  {', '.join(rollout.did)}"
    )
    return line if not rollout.problem else f"{line}\n    NOT AS EXPECTED: {rollout.problem}"


def _rollout(client: httpx.Client, sample: Sample, answer: str) -> Rollout:
    rollout = Rollout(sample, answer)
    try:
        begin = time.monotonic()
        sid = post(client, "/start_instance", instance_hash=instance_hash(sample.instance_id))["sid"]
        rollout.start_s = time.monotonic() - begin
        for did, content, wanted in _script(sample, answer):
            begin = time.monotonic()
            observation = post(client, "/process_action", sid=sid, content=content)["content"]
            rollout.actions_s.append(time.monotonic() - begin)
            rollout.did.append(did)
            if wanted not in str(observation):
                rollout.problem = f"{did}: the observation lacks {wanted!r}: {observation}"
        begin = time.monotonic()
        post(client, "/postprocess", sid=sid)
        rollout.postprocess_s = time.monotonic() - begin
        begin = time.monotonic()
        for _ in range(_ASKS):
            rollout.reply = post(client, "/compute_reward", sid=int(str(sid)))
            if rollout.reply.get("verdict") != "pending":
                break
        rollout.reward_s = time.monotonic() - begin
    except (httpx.HTTPError, KeyError, ValueError) as error:
        rollout.problem = f"{type(error).__name__}: {error}"
    seen = (rollout.reply.get("verdict"), rollout.reply.get("reward"))
    if not rollout.problem and seen != EXPECTED[answer]:
        rollout.problem = f"{seen} instead of {EXPECTED[answer]}: {rollout.reply.get('cause')}"
    return rollout


def post(client: httpx.Client, path: str, **body: object) -> dict[str, object]:
    """The response of a running server.

    Raises:
        httpx.HTTPError: it cannot be reached, or refuses; ValueError: the response is not a JSON object.

    """
    response = client.post(path, json=body)
    if response.is_error:
        raise httpx.HTTPStatusError(f"{path}: {response.status_code} {response.text}", request=response.request,
                                    response=response)  # fmt: skip
    reply = response.json()
    if not isinstance(reply, dict):
        raise ValueError(f"{path} answered {reply!r}")
    return reply


def _script(sample: Sample, answer: str) -> Iterator[tuple[str, str, str]]:
    """Yield (description, content, text that the observation must contain) for each action."""
    if sample.code_path is not None:
        path = sample.folder / "repo" / sample.code_path
        # The unchanged file is the empty answer: it produces no diff.
        source = _patched(sample, answer) if answer != "empty" else path.read_text()
        yield f"sent {path.name}", source, "No errors found in test." if answer == "gold" else "test_merge"
        return
    # The observation echoes the command, so the shell has to compute the expected text.
    yield "looked around", _bash("git status --short && git log --oneline | head -n 3 && ls && echo $((6*7))"), "42"
    yield "read", _bash("cat README.md && find . -name '*.py' -not -path './.git/*' | sort"), "README"
    if patch := sample.patch(answer):
        yield "wrote the patch", _bash(f"cat > /tmp/answer.patch <<'END_OF_PATCH'\n{patch}END_OF_PATCH"), ""
        yield "git apply", _bash("git apply -v /tmp/answer.patch && echo applied-$((3*7))"), "applied-21"
        yield "showed the diff", _bash("git add -A -N && git diff --stat && echo shown-$((3*7))"), "shown-21"


def _bash(command: str) -> str:
    return f"<function=execute_bash>\n<parameter=command>\n{command}\n</parameter>\n</function>"


def _patched(sample: Sample, answer: str) -> str:
    """The sample's code file with the answer's patch applied."""
    assert sample.code_path is not None
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, sample.code_path)
        target.parent.mkdir(parents=True)
        shutil.copy(sample.folder / "repo" / sample.code_path, target)
        command = ["git", "apply", str((sample.folder / f"{answer}.patch").resolve())]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        return target.read_text()
