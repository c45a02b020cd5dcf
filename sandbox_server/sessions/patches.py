"""The end of a session's tree: its diff against the tree that the image was prepared with."""

import hashlib
import time
from importlib import resources

from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.errors import SandboxDiskFull, SandboxExhausted
from sandbox_server.records import PatchRecord, SessionRecord
from sandbox_server.sandbox.base import ExecResult, Sandbox

_SCRIPT = resources.files(__package__).joinpath("capture.bash").read_text()
_NO_BASE, _NO_TREE, _NO_SPACE = 3, 4, 5


async def capture(
    sandbox: Sandbox,
    session: SessionRecord,
    instance: TaskInstance,
    *,
    base_commit: str,
    timeout_s: float,
    max_bytes: int,
) -> PatchRecord:
    """Take the diff: new, binary, mode-changed, staged and committed changes in it, ignored files not.

    Raises:
        SandboxLost, SandboxDiskFull, EngineUnavailable: nothing could be taken, and not because of the agent.
    """
    try:
        result = await _run(sandbox, instance, timeout_s, max_bytes)
    except SandboxExhausted:
        # the agent's processes leave no room for another one; without them there is
        await sandbox.restart()
        result = await _run(sandbox, instance, timeout_s, max_bytes)
    if result.exit_code == _NO_SPACE:
        raise SandboxDiskFull(
            "no room to take the diff; free space on the engine's disk, then ask for the reward again"
        )
    diff: bytes | None = result.stdout.head + result.stdout.tail
    notes, cause = result.stderr.text().splitlines(), ""
    if "partial" in notes:
        cause = f"some files could not be read and are left out: {' '.join(notes)[:300]}"
    elif "no-git" in notes:
        cause = "the agent removed .git; the changes were taken without it"
    if result.timed_out:
        diff, cause = None, f"the tree could not be compared within {timeout_s:g} s; it is too large"
    elif result.exit_code == _NO_BASE:
        diff, cause = None, "the agent removed what its changes are compared with (/var/lib/sandbox)"
    elif result.exit_code == _NO_TREE:
        diff, cause = None, f"the agent removed the work tree {instance.sandbox.workdir}"
    elif result.exit_code != 0:
        diff, cause = None, f"the diff failed with {result.exit_code}: {result.stderr.text().strip()[-300:]}"
    elif result.stdout.dropped:
        size = len(diff or b"") + result.stdout.dropped
        diff, cause = None, f"the patch of {size >> 20} MB is larger than SANDBOX_MAX_PATCH_MB"
    return PatchRecord(
        sid=session.sid,
        instance_id=session.instance_id,
        diff=diff,
        cause=cause,
        base_commit=base_commit,
        captured_at=time.time(),
        sha256="" if diff is None else hashlib.sha256(diff).hexdigest(),
    )


async def _run(sandbox: Sandbox, instance: TaskInstance, timeout_s: float, max_bytes: int) -> ExecResult:
    return await sandbox.exec(
        ["bash", "-c", _SCRIPT, "capture", instance.sandbox.workdir],
        timeout_s=timeout_s,
        cwd="/",
        user="root",
        keep_bytes=max_bytes,
    )
