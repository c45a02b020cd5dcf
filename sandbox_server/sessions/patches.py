"""The end of a session's tree: its diff against the tree that the image was prepared with."""

import hashlib
from importlib import resources

from sandbox_server import clock
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.errors import SandboxDiskFull, SandboxExhausted, SandboxLost
from sandbox_server.records import PatchRecord, SessionRecord
from sandbox_server.sandbox.base import ExecResult, Sandbox

_SCRIPT = resources.files(__package__).joinpath("capture.bash").read_text()
_NO_BASE, _NO_TREE, _NO_SPACE, _NO_GIT = 3, 4, 5, 127


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
        SandboxLost, SandboxDiskFull, EngineUnavailable: nothing could be taken, and not clearly because of the agent.
    """
    try:
        result = await _run(sandbox, instance, timeout_s, max_bytes)
    except SandboxExhausted:
        # the agent's processes leave no room for another one; without them there is
        await sandbox.restart()
        result = await _run(sandbox, instance, timeout_s, max_bytes)
    diff, cause = _taken(result, instance.sandbox.workdir, timeout_s)
    return PatchRecord(
        sid=session.sid,
        instance_id=session.instance_id,
        diff=diff,
        cause=cause,
        base_commit=base_commit,
        captured_at=clock.now(),
        sha256="" if diff is None else hashlib.sha256(diff).hexdigest(),
    )


def none(session: SessionRecord) -> PatchRecord:
    """Of a session that is scored by what the policy answered; it stands for the session's end like any other."""
    return PatchRecord(
        sid=session.sid,
        instance_id=session.instance_id,
        diff=None,
        cause="a task of code search: no patch is taken",
        base_commit="",
        captured_at=clock.now(),
    )


def _taken(result: ExecResult, workdir: str, timeout_s: float) -> tuple[bytes | None, str]:
    """The diff, None where the agent left nothing to take one from, and what was remarkable.

    Raises:
        SandboxDiskFull, SandboxLost: it is not clear that the agent is to blame, so there is no verdict on it.
    """
    if result.timed_out:
        raise SandboxLost(f"its changes could not be taken within {timeout_s:g} s (SANDBOX_POSTPROCESS_TIMEOUT_S)")
    if result.exit_code == _NO_SPACE:
        raise SandboxDiskFull(
            "no room to take the diff; free space on the engine's disk, then ask for the reward again"
        )
    agents = {
        _NO_BASE: "the agent removed what its changes are compared with (/var/lib/sandbox)",
        _NO_TREE: f"the agent removed the work tree {workdir}",
        _NO_GIT: "the agent removed git, which the image had",
    }
    if result.exit_code in agents:
        return None, agents[result.exit_code]
    if result.exit_code != 0:
        said = result.stderr.text().strip()[-300:]
        raise SandboxLost(f"its changes could not be taken, git ended with {result.exit_code}: {said}")
    diff = result.stdout.head + result.stdout.tail
    if result.stdout.dropped:
        size = len(diff) + result.stdout.dropped
        return None, f"the patch of {size >> 20} MB is larger than SANDBOX_MAX_PATCH_MB"
    notes = result.stderr.text().splitlines()
    if "partial" in notes:
        return diff, f"some files could not be read and are left out: {' '.join(notes)[:300]}"
    return diff, "the agent removed .git; the changes were taken without it" if "no-git" in notes else ""


async def _run(sandbox: Sandbox, instance: TaskInstance, timeout_s: float, max_bytes: int) -> ExecResult:
    return await sandbox.exec(
        ["bash", "-c", _SCRIPT, "capture", instance.sandbox.workdir],
        timeout_s=timeout_s,
        cwd="/",
        user="root",
        keep_bytes=max_bytes,
    )
