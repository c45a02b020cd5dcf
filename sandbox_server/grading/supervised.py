"""A run of tests under a bash of ours (supervise.bash), which no file and no text of the tested code can change.

Knowingly imperfect: the tested code runs as the same user, so it can kill that bash (then there is no end, and no
results), and where the host allows to trace one's parent it can do more. It cannot make the server take its text for
the supervisor's: the exit status is the engine's, the end is told with a word that only the supervisor knows.
"""

import posixpath
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources

from sandbox_server.errors import GraderBroken
from sandbox_server.grading.base import TestRun
from sandbox_server.records import VerdictName
from sandbox_server.sandbox.base import ExecResult, Output, Sandbox

_SCRIPT = resources.files(__package__).joinpath("supervise.bash").read_text()
_FILE_BYTES = 1 << 20
_FILES_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to run."""

    tests: str
    """Shell text; its last exit status is the tests'."""
    setup: str = ""
    """Shell text that runs before it in the same shell; what it prints is no part of the tests' output."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Absolute path -> text, written between the two."""
    merged: bool = True
    """The tests' stderr goes into their stdout, in order."""
    alone: bool = True
    """The tests get a shell of their own, forked from that of the set-up: an `exit` ends only them."""
    name: str = "bash"
    """What both find in `$0`."""

    def stdin(self, nonce: str) -> bytes:
        """The plan as supervise.bash reads it."""
        setup, tests = self.setup.encode(), self.tests.encode()
        counts = [int(self.merged), int(self.alone), len(setup), len(tests), len(self.files)]
        parts = [f"{nonce} {' '.join(map(str, counts))}\n".encode(), setup, tests]
        for path, data in self.files.items():
            name = path.encode()
            parts += [b"%d %d\n" % (len(name), len(data)), name, data]
        whole = b"".join(parts)
        if b"\0" in whole:
            raise GraderBroken("a script or a test file holds a NUL byte, which bash cannot take")
        return whole


@dataclass(frozen=True, slots=True)
class Supervised:
    """What came of it."""

    stdout: Output
    """Of the tests alone; with their stderr where that was merged."""
    stderr: str
    """Of the tests alone."""
    setup_log: str
    """What the set-up printed."""
    started: bool
    """The tests began."""
    unlaid: str
    """The file that could not be written before them; "": none."""
    exit_code: int | None
    """Of the tests; None: the supervisor did not see their end."""
    status: int | None
    """Of the supervisor, as the engine tells it; None when it was killed at its timeout."""
    timed_out: bool
    duration_s: float
    dropped: int
    """Bytes in the middle of the tests' output that were not kept."""

    @property
    def log(self) -> str:
        """All that was kept of the tests' output."""
        return self.stdout.text() + self.stderr


async def supervise(
    sandbox: Sandbox, plan: Plan, *, timeout_s: float, cwd: str, env: Mapping[str, str], keep_bytes: int
) -> Supervised:
    """Run `plan` as root with no input; `keep_bytes` of each stream.

    Raises:
        GraderBroken: the plan cannot be told. SandboxLost, SandboxExhausted, EngineUnavailable.

    """
    nonce = secrets.token_hex(16)
    result = await sandbox.exec(
        ["bash", "-c", _SCRIPT, plan.name],
        timeout_s=timeout_s,
        stdin=plan.stdin(nonce),
        cwd=cwd,
        env=env,
        user="root",
        keep_bytes=keep_bytes,
    )
    return _read(result, nonce, merged=plan.merged)


def _read(result: ExecResult, nonce: str, *, merged: bool) -> Supervised:
    said = result.stderr.text()
    setup_log, begun, errors = said.partition(f"\n{nonce} begin\n")
    before, unlaid, path = said.rpartition(f"\n{nonce} unlaid ")
    errors, ended, code = (errors if begun else said).rpartition(f"\n{nonce} end ")
    words = code.split(maxsplit=1) if ended else []
    exit_code = int(words[0]) if words and words[0].isdecimal() else None
    if not ended:
        errors = code
    return Supervised(
        result.stdout,
        "" if merged else errors,
        before if unlaid else setup_log,
        bool(begun or ended),
        path.rstrip("\n") if unlaid else "",
        # what another process of the container made of the supervisor is not an end of the tests
        exit_code if exit_code == result.exit_code else None,
        result.exit_code,
        result.timed_out,
        result.duration_s,
        result.stdout.dropped + (0 if merged else result.stderr.dropped),
    )


def placed(workdir: str, files: Mapping[str, bytes] | None) -> dict[str, bytes]:
    """`files` by their absolute paths."""
    return {posixpath.normpath(posixpath.join(workdir, path)): data for path, data in (files or {}).items()}


async def read_texts(sandbox: Sandbox, workdir: str, paths: Iterable[str]) -> dict[str, bytes]:
    """Those of `paths` that are text files of at most 1 MiB, up to 8 MiB in all.

    Raises:
        SandboxLost, EngineUnavailable.

    """
    texts: dict[str, bytes] = {}
    left = _FILES_BYTES
    for path in dict.fromkeys(paths):
        try:
            data = await sandbox.read_file(posixpath.join(workdir, path), max_bytes=min(_FILE_BYTES, left))
        except (OSError, OverflowError):
            continue
        if is_text(data):
            texts[path] = data
            left -= len(data)
    return texts


def is_text(data: bytes) -> bool:
    """UTF-8 without a NUL byte."""
    try:
        return "\0" not in data.decode()
    except UnicodeDecodeError:
        return False


def unlaid(run: Supervised) -> TestRun:
    """The verdict where a file could not be written before the tests."""
    cause = f"the tests' file {run.unlaid} cannot be written in the patched tree"
    return TestRun(VerdictName.NO_RESULTS, cause, 0, 0, exit_code=run.status, log_tail=run.setup_log[-4000:])
