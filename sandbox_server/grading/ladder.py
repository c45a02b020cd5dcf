"""Applying a patch as swebench 5.0.2 does: four commands, each on a clean tree, the first that exits 0 counts."""

from collections.abc import Iterable
from dataclasses import dataclass
from shlex import quote

from sandbox_server.errors import GraderBroken, InfrastructureError
from sandbox_server.sandbox.base import Sandbox

APPLY_COMMANDS = (
    "git apply --verbose",
    "git apply --verbose --3way",
    "git apply --verbose --reject",
    "patch --batch --forward --fuzz=5 -p1 -i",
)
"""`swebench.harness.run_evaluation.GIT_APPLY_CMDS`; an image without `patch` simply fails the last one."""

ACCEPT_COMMAND = "git apply --check --reverse"
"""When all fail: the patch may be there all the same."""

RESET_COMMAND = "git checkout -- . ; git clean -fd"
"""A failed attempt (--reject above all) leaves parts behind that would make every later one fail."""

_PATCH_FILE = "/tmp/patch.diff"
_NO_GIT, _REFUSED, _NOT_CLEARED = 2, 3, 4
_FIRST_TIER = 10

# Arguments: paths to clear once the patch is in. One exec for all of it: each costs some 50 ms.
_SCRIPT = f"""
command -v git > /dev/null || exit {_NO_GIT}
tier={_FIRST_TIER}
clear=("$@")
take() {{
    "$@" {_PATCH_FILE} || return
    rm -rf -- "${{clear[@]}}" || exit {_NOT_CLEARED}
    exit "$tier"
}}
for command in {" ".join(quote(command) for command in APPLY_COMMANDS)}; do
    if [ "$tier" -gt {_FIRST_TIER} ]; then {RESET_COMMAND}; fi
    take $command
    tier=$((tier + 1))
done
take {ACCEPT_COMMAND}
exit {_REFUSED}
"""

# Git trusts only trees of its own user; an image may hold one of another.
_GIT_ENV = {"HOME": "/root", "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of a patch."""

    tier: str
    """The command that took it; "" when none did."""
    said: str
    """The end of what the commands printed."""


async def apply_patch(
    sandbox: Sandbox, patch: bytes, *, clear: Iterable[str], workdir: str, timeout_s: float
) -> Applied:
    """Apply `patch` to the tree at `workdir`, as root; then remove the files and folders `clear`, if there.

    Raises:
        GraderBroken: the image has no git or no such folder. InfrastructureError: not done within `timeout_s`.
        SandboxLost, EngineUnavailable.

    """
    await sandbox.write_file(_PATCH_FILE, patch)
    result = await sandbox.exec(
        ["bash", "-c", _SCRIPT, "ladder", *sorted(clear)],
        timeout_s=timeout_s,
        cwd=workdir,
        env=_GIT_ENV,
        user="root",
        merge_streams=True,
        keep_bytes=1 << 16,
    )
    said = result.stdout.text()[-2000:]
    if result.exit_code is None:
        raise InfrastructureError(f"the patch was not applied within {timeout_s:.0f} s")
    tiers = (*APPLY_COMMANDS, ACCEPT_COMMAND)
    if 0 <= (index := result.exit_code - _FIRST_TIER) < len(tiers):
        return Applied(tiers[index], said)
    if result.exit_code == _REFUSED:
        return Applied("", said)
    raise GraderBroken(f"no patch can be applied in this image (exit code {result.exit_code}): {said[-300:]}")
