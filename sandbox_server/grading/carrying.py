"""Places an agent's files in a grading container, for tasks whose result is not a diff (`TaskInstance.carried`).

Only the task's carried paths are written there. Whatever else the agent changed in its own container has no effect:
programs, libraries, start-up files, tests, rewards.
"""

import posixpath
from collections.abc import Sequence
from importlib import resources

from sandbox_server.errors import InfrastructureError
from sandbox_server.grading.patching import ApplyResult
from sandbox_server.sandbox.base import Sandbox

TIER = "files"
"""The verdict's `tier` for such tasks, instead of the command that applied a patch."""
_MAGIC = b"sandbox-files "
_SCRIPT = resources.files(__package__).joinpath("carrying.bash").read_text()


def refusal(files: bytes, roots: Sequence[str]) -> str:
    """Why these bytes cannot be the output of scoring/carry.bash for `roots`; "" if they may be."""
    head = files[:100].partition(b"\n")[0]
    sizes = head.removeprefix(_MAGIC).split()
    if not head.startswith(_MAGIC) or len(sizes) != 2 or not all(size.isdigit() for size in sizes):
        return "it does not hold the files of a session; tasks of Harbor are graded by those, not by a diff"
    folders, within = map(int, sizes)
    begin = len(head) + 1
    lists = files[begin : begin + folders + within]
    if len(lists) < folders + within or any(part[-1:] not in (b"", b"\0") for part in (lists[:folders], lists)):
        return "its lists of files are cut off"
    for name in lists[:folders].split(b"\0")[:-1]:
        path = posixpath.normpath("/" + name.decode("utf-8", "surrogateescape").removeprefix("./"))
        if not any(path == root or path.startswith(f"{root}/") for root in roots):
            return f"it names a folder that is not carried: {path[:100]!r}"
    return ""


async def place(sandbox: Sandbox, files: bytes, roots: Sequence[str], *, timeout_s: float) -> ApplyResult:
    """Write `files`, which `refusal` has accepted, as root.

    Raises:
        InfrastructureError: not done within `timeout_s`. SandboxLost, EngineUnavailable.
    """
    done = await sandbox.exec(
        ["bash", "-c", _SCRIPT, "carry", *roots],
        timeout_s=timeout_s,
        stdin=files,
        cwd="/",
        user="root",
        merge_streams=True,
        keep_bytes=1 << 16,
    )
    said = done.stdout.text()[-2000:]
    if done.exit_code is None:
        raise InfrastructureError(f"the agent's files were not placed within {timeout_s:.0f} s")
    return ApplyResult(TIER, said) if done.exit_code == 0 else ApplyResult("", said, refused=True)
