"""What the end of capture.bash means: a patch, the policy's doing, or a fault of the service."""

from types import SimpleNamespace
from typing import cast

import pytest

from sandbox_server.errors import ImageUnavailable, SandboxDiskFull
from sandbox_server.sandbox.base import ExecResult, Output, Runtime
from sandbox_server.scoring.captures import Captures, _Failed

DIFF = b"diff --git a/x b/x\n"


def _captures() -> Captures:
    return Captures(cast(Runtime, SimpleNamespace(outside=None)), timeout_s=7, max_bytes=1 << 20, cpu_shares=256)


def _end(code: int | None = 0, stderr: str = "", *, dropped: int = 0) -> ExecResult:
    return ExecResult(
        code, Output(DIFF, b"tail" if dropped else b"", dropped), Output(stderr.encode()), code is None, 1.0
    )


@pytest.mark.parametrize(
    ("end", "diff", "cause"),
    [
        (_end(), DIFF, ""),
        (_end(0, "warning: something\n"), DIFF, ""),
        (_end(0, "no-git\n"), DIFF, "removed .git"),
        (_end(0, "error: x\npartial\nno-git\n"), DIFF, "could not be read and are left out"),
        (_end(0, "left out: /a -> /b\n"), DIFF, "links lead to what is not taken"),
        (_end(0, dropped=5 << 20), None, "5 MB is larger than SANDBOX_MAX_PATCH_MB"),
        (_end(4), None, "removed the work tree /testbed"),
    ],
)
def test_what_is_taken(end: ExecResult, diff: bytes | None, cause: str) -> None:
    """A patch that was cut short would be graded as if it were whole, or a whole one be dropped."""
    taken = _captures()._of(end, "/testbed")
    assert taken.diff == diff and cause in taken.cause and bool(cause) == bool(taken.cause)


@pytest.mark.parametrize(
    ("end", "error", "why"),
    [
        (_end(5), SandboxDiskFull, "free space"),
        (_end(3), ImageUnavailable, "no base"),
        (_end(6, "fatal: bad index"), _Failed, "ended with 6: fatal: bad index"),
        (_end(None), _Failed, "7 s"),
    ],
)
def test_what_is_no_patch(end: ExecResult, error: type[Exception], why: str) -> None:
    """A full disk of the host would be an empty patch: a 0.0 that the policy did not earn."""
    with pytest.raises(error, match=why) as raised:
        _captures()._of(end, "/testbed")
    assert getattr(raised.value, "timed_out", False) == end.timed_out
