"""The persistent shell of another user than root: it is that user's, and gives no way back to root."""

import pytest

from .backends import Backend
from .specs import say, spec

_MARK = r"""read -ra words </proc/$$/stat
printf '%s 1\n0 0 0 0 x[$(id>/tmp/evaluated)]\n' "${words[21]}" >|/run/sandbox/mark"""
"""A place from which processes are killed that is compared with this shell's, and runs a command if it is evaluated."""


_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TRAPS = """mkdir /tmp/bin && for name in env setpriv chown tty script bash; do
printf '#!/bin/sh\n[ "$(id -u)" = 0 ] && id >/tmp/evaluated\nexec /usr/bin/%s "$@"\n' $name >/tmp/bin/$name; done
chmod +x /tmp/bin/*"""


@pytest.mark.parametrize("user", ["nobody", "4711"])
async def test_a_shell_is_its_users(backend: Backend, user: str) -> None:
    """An agent that is not to be root is root, or cannot use its own terminal."""
    runtime = backend.runtime("test-user")
    sandbox = await runtime.create(spec(user=user, workdir="/tmp", env={"PATH": f"/tmp/bin:{_PATH}"}))
    try:
        who = (
            await say(sandbox, "id -u; id -G; echo $HOME; pwd; echo mine >own; stat -c %u own; echo out >/dev/stdout")
        ).split()
        uid = {"nobody": "65534", "4711": "4711"}[user]
        assert who == [uid, uid, {"nobody": "/nonexistent", "4711": "/"}[user], "/tmp", uid, "out"]
        assert "ermission denied" in await say(sandbox, "echo x >/run/sandbox/rc")
        assert "ermission denied" in await say(sandbox, "rm -f /run/sandbox/rc; cat /etc/shadow")
        assert "not permitted" in await say(sandbox, "kill -9 1")
        assert (await say(sandbox, "grep -E 'Cap(Prm|Eff|Inh|Amb)' /proc/self/status")).count("0000000000000000") == 4
        # the state of the shell outlasts it, and a command that does not end is killed
        await say(sandbox, "export KEPT=1; cd /; exit")
        assert await say(sandbox, "echo $KEPT $PWD $(id -u)") == f"1 / {uid}"
        late = await sandbox.shell.run("trap '' INT; sleep 60; echo never", timeout_s=1)
        assert late.outcome.value in ("killed", "interrupted") and await say(sandbox, "id -u") == uid
        # what root looks for in PATH and evaluates of its files
        await say(sandbox, _TRAPS)
        await say(sandbox, "exit")
        assert "No such file" in await say(sandbox, "cat /tmp/evaluated")
        await say(sandbox, _MARK)
        await sandbox.shell.run("trap '' INT; sleep 60", timeout_s=1, since_mark=False)
        assert "No such file" in await say(sandbox, "cat /tmp/evaluated")
        await sandbox.restart()
        assert await say(sandbox, "id -u") == uid
        # small files
        await sandbox.write_file("/tmp/written", b"x", user=user)
        assert await say(sandbox, "stat -c %u /tmp/written") == uid
        with pytest.raises(PermissionError):
            await sandbox.write_file("/etc/passwd", b"x", user=user)
        with pytest.raises(PermissionError):
            await sandbox.read_file("/etc/shadow", max_bytes=1 << 16, user=user)
    finally:
        await runtime.remove(sandbox.container_id)
