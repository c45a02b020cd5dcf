"""Runs tests under a bash of ours (supervise.bash), which no file or output of the tested code can change.

Known limits: the tested code runs as the same user, so it can kill that bash (then no end is seen and there are no
results); where the host allows tracing one's parent, it can do more. It cannot pass its own output off as the
supervisor's: the exit status comes from the engine, and the end is marked by a nonce that only the supervisor knows.
"""

import posixpath
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources

from sandbox_server.errors import GraderBroken
from sandbox_server.grading.base import TestRun
from sandbox_server.sandbox.base import ExecResult, Output, Sandbox
from sandbox_server.verdicts import VerdictName

_SCRIPT = resources.files(__package__).joinpath("supervise.bash").read_text()
_STATUS = re.compile("[0-9]{1,3}")
_FILE_BYTES = 1 << 20
_FILES_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run."""

    tests: str
    """Shell text; its last exit status is the result of the tests."""
    setup: str = ""
    """Shell text that runs first in the same shell; its output is not part of the tests' output."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Absolute path -> content, written between set-up and tests."""
    merged: bool = True
    """Merge the tests' stderr into their stdout, in order."""
    alone: bool = True
    """Run the tests in a shell forked from that of the set-up, so that an `exit` in them ends only that shell."""
    name: str = "bash"
    """`$0` of the set-up and of the tests."""

    def stdin(self, nonce: str) -> bytes:
        """The plan in the format that supervise.bash reads."""
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
class SupervisedRun:
    """The result of a supervised run."""

    stdout: Output
    """Output of the tests only, with their stderr if merged."""
    stderr: str
    """stderr of the tests; "" if merged."""
    setup_log: str
    """Output of the set-up."""
    started: bool
    """Whether the tests began."""
    unplaced: str
    """The file that could not be written before the tests; "" if none."""
    exit_code: int | None
    """Exit code of the tests; None if the supervisor did not see them end."""
    status: int | None
    """Exit status of the supervisor, from the engine; None if it was killed at the timeout."""
    timed_out: bool
    duration_s: float
    dropped: int
    """Bytes dropped from the middle of the tests' output."""

    @property
    def log(self) -> str:
        """All of the tests' output that was kept."""
        return self.stdout.text() + self.stderr


async def supervise(
    sandbox: Sandbox, plan: Plan, *, timeout_s: float, cwd: str, env: Mapping[str, str], keep_bytes: int
) -> SupervisedRun:
    """Run `plan` as root without input; keep `keep_bytes` of each stream.

    Raises:
        GraderBroken: the plan holds a NUL byte. SandboxLost, SandboxExhausted, EngineUnavailable.

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


def _read(result: ExecResult, nonce: str, *, merged: bool) -> SupervisedRun:
    said = result.stderr.text()
    setup_log, begun, errors = said.partition(f"\n{nonce} begin\n")
    before, unplaced, path = said.rpartition(f"\n{nonce} unplaced ")
    errors, ended, code = (errors if begun else said).rpartition(f"\n{nonce} end ")
    words = code.split(maxsplit=1) if ended else []
    exit_code = int(words[0]) if words and _STATUS.fullmatch(words[0]) else None
    if not ended:
        errors = code
    return SupervisedRun(
        result.stdout,
        "" if merged else errors,
        before if unplaced else setup_log,
        bool(begun or ended),
        path.rstrip("\n") if unplaced else "",
        # If another process tampered with the supervisor, its status is not that of the tests.
        exit_code if exit_code == result.exit_code else None,
        result.exit_code,
        result.timed_out,
        result.duration_s,
        result.stdout.dropped + (0 if merged else result.stderr.dropped),
    )


def with_absolute_paths(workdir: str, files: Mapping[str, bytes] | None) -> dict[str, bytes]:
    """`files` with absolute paths."""
    return {posixpath.normpath(posixpath.join(workdir, path)): data for path, data in (files or {}).items()}


async def read_texts(sandbox: Sandbox, workdir: str, paths: Iterable[str]) -> dict[str, bytes]:
    """The files among `paths` that are text of at most 1 MiB, up to 8 MiB in all.

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
    """Whether `data` is UTF-8 without NUL bytes."""
    try:
        return "\0" not in data.decode()
    except UnicodeDecodeError:
        return False


def unplaced_result(run: SupervisedRun) -> TestRun:
    """The result when a test file could not be written."""
    cause = f"the tests' file {run.unplaced} cannot be written in the patched tree"
    return TestRun(VerdictName.NO_RESULTS, cause, 0, 0, exit_code=run.status, log_tail=run.setup_log[-4000:])
