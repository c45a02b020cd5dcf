"""Judging by an exit code: 0 is resolved, anything else is not; F2P is the command itself, one of one."""

from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.grading.base import TestRun
from sandbox_server.records import VerdictName
from sandbox_server.sandbox.base import DEFAULT_ACTIVATION, Sandbox

_LOG_BYTES = 1 << 20


async def run_command(instance: TaskInstance, sandbox: Sandbox, command: str, *, timeout_s: float) -> TestRun:
    """Run `command` by bash in the instance's workdir, as root, after its activation.

    Raises:
        SandboxLost, EngineUnavailable.

    """
    result = await sandbox.exec(
        ["bash", "-c", f"{instance.sandbox.activate or DEFAULT_ACTIVATION}\n{command}"],
        timeout_s=timeout_s,
        cwd=instance.sandbox.workdir,
        env={"HOME": "/root"},
        user="root",
        merge_streams=True,
        keep_bytes=_LOG_BYTES,
    )
    if result.timed_out:
        name, cause = VerdictName.TIMEOUT, f"the command ran past its limit of {timeout_s:g} s"
    else:
        name = VerdictName.RESOLVED if result.exit_code == 0 else VerdictName.UNRESOLVED
        cause = f"the command exited with {result.exit_code}"
    return TestRun(
        name,
        cause,
        f2p_count=int(name is VerdictName.RESOLVED),
        p2p_count=0,
        exit_code=result.exit_code,
        timings_s={"tests": result.duration_s},
        log_tail=result.stdout.text()[-4000:],
    )
