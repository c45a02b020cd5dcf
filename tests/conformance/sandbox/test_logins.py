"""Repeated login shells skip the profile, with no visible difference except the time."""

import asyncio
import secrets
import shlex

import pytest

from sandbox_server.sandbox.bash import logins
from sandbox_server.sandbox.bash.sandbox import BashSandbox

pytestmark = pytest.mark.asyncio(loop_scope="session")

USES = 4
"""Uses after which a profile that can be known is known."""

# variables that are others in every shell, and BASH_ARGC, which is (0) once something was sourced
_OTHERS = "BASHPID|BASH_ARGC|BASH_EXECUTION_STRING|EPOCH\\w+|RANDOM|SRANDOM|SECONDS|LINENO|PPID|_"

STATE = rf"""
status=$?
declare -p | grep -Ev '^declare -[-a-zA-Z]+ ({_OTHERS})='
declare -f; alias; shopt; set +o; umask; pwd; trap
echo "$0 $# $- $status"
"""
"""Prints what a command can see of how its shell started."""

PLAIN = [
    "",
    "# nothing",
    "export A='x y' B=\"$HOME/é $ \\`\" C=\n",
    "if [ -d /opt/tool/bin ]; then PATH=/opt/tool/bin:$PATH; fi",
    'export WHO=$(id -un) HERE="$PWD" OF="$GIVEN"',
    "for f in /etc/*.conf /nowhere/*; do if [ -r $f ]; then export LAST=$f; fi; done; unset f",
    "case $- in *i*) ;; *) return;; esac; alias ll='ls -l'",
    "mesg n 2> /dev/null || true",
    "[[ -x /bin/sh && ! -e '/no where' ]] && export SH=1; true",
]

NOT_PLAIN = {
    "function": "f() { echo f; }",
    "alias": "shopt -s expand_aliases; alias t=true",
    "variable": "UNEXPORTED=1",
    "array": "declare -ax LIST=(/etc/*.conf)",
    "option": "set -u",
    "umask": "umask 077",
    "folder": "cd /usr",
    "status": "false",
    "trap": "trap 'echo bye' EXIT",
    "says": "echo hello",
    "program": "export NOW=$(date +%s%N)",
    "time": "export NOW=$EPOCHREALTIME",
    "random": "export R=$RANDOM",
    "number": "export ME=$$",
    "file": "export TOKEN=$(< /etc/hostname)",
    "effect": "echo x >> /tmp/effects",
    "input": "read -r WHO < /etc/hostname; export WHO",
    "end": "exit 3",
}


@pytest.fixture(autouse=True)
def _time_to_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a look at a profile takes more than the second after which it is given up."""
    monkeypatch.setattr(logins, "_LEARN_S", 20.0)


async def run(sandbox: BashSandbox, text: str, **how: object) -> str:
    """Output of a login shell started as the E2B SDK starts it."""
    done = await sandbox.exec(["/bin/bash", "-l", "-c", text], timeout_s=20, **how)  # type: ignore[arg-type]
    return done.stdout.text() + done.stderr.text()


async def fresh(sandbox: BashSandbox, text: str, **how: object) -> str:
    """Output of a login shell started in a way that is never cached."""
    done = await sandbox.exec(["env", "/bin/bash", "-l", "-c", text], timeout_s=20, **how)  # type: ignore[arg-type]
    return done.stdout.text() + done.stderr.text()


async def is_known(sandbox: BashSandbox, **how: object) -> bool:
    """Whether the profile is skipped, after as many uses as needed."""
    for _ in range(USES):
        said = await run(sandbox, "tr '\\0' ' ' < /proc/$$/cmdline", **how)
    return "--noprofile" in said


async def have(sandbox: BashSandbox, path: str, text: str) -> None:
    """Write text to a file."""
    done = await sandbox.exec(["bash", "-c", f"printf %s {shlex.quote(text)} > {path}"], timeout_s=20)
    assert done.exit_code == 0


# In one container: what is known is known of one environment, so each profile is given with another.


@pytest.mark.parametrize("text", PLAIN)
async def test_a_shell_without_its_profile_is_as_one_with_it(shared: BashSandbox, text: str) -> None:
    await have(shared, "/root/.profile", text)
    how = {"env": {"GIVEN": "by the call", "OTHER": secrets.token_hex(4)}, "cwd": "/usr"}
    assert await is_known(shared, **how)
    assert await run(shared, STATE, **how) == await fresh(shared, STATE, **how)
    assert await run(shared, "exit 7", **how) == ""


@pytest.mark.parametrize("kind", NOT_PLAIN)
async def test_a_profile_that_does_more_runs_for_each_command(shared: BashSandbox, kind: str) -> None:
    await have(shared, "/root/.profile", NOT_PLAIN[kind])
    how = {"env": {"OTHER": secrets.token_hex(4)}}
    assert not await is_known(shared, **how)
    if kind not in ("program", "time", "random", "number", "end"):
        assert await run(shared, STATE, **how) == await fresh(shared, STATE, **how)


async def test_effects_are_had_each_time(sandbox: BashSandbox) -> None:
    await have(sandbox, "/root/.profile", NOT_PLAIN["effect"])
    looked = 1  # the one time that it was looked at
    for _ in range(10):
        await run(sandbox, "true")
    assert len((await fresh(sandbox, "cat /tmp/effects")).split()) == 10 + looked + 1


CHANGES = {
    "appended": "echo 'export A=2' >> ~/.profile",
    "replaced by an older one": "cp -p ~/.profile /tmp/p; echo 'export A=2' > /tmp/q; touch -r ~/.profile /tmp/q;"
    " cp -p /tmp/q ~/.profile",
    "removed": "rm ~/.profile",
    "another comes first": "echo 'export A=2' > ~/.bash_profile",
    "a part is added": "echo 'export A=2' > /etc/profile.d/a.sh; echo > ~/.profile",
    "a part is changed": "echo 'export A=2' > /root/part",
    "a folder appears": "mkdir -p ~/.local/bin",
    "it does more now": "echo 'A=$(date +%s%N)' >> ~/.profile",
}
LEFT = ("/root/.bash_profile", "/root/.local", "/etc/profile.d/a.sh")
"""What these leave beside the files that each test writes."""


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_is_seen_by_the_next_command(shared: BashSandbox, change: str) -> None:
    await shared.exec(["rm", "-rf", *LEFT], timeout_s=20)
    await have(shared, "/root/part", "export B=1")
    text = "export A=1\n. /root/part\nif [ -d ~/.local/bin ]; then A=local; fi\n"
    await have(shared, "/root/.profile", text)
    how = {"env": {"OTHER": secrets.token_hex(4)}}
    assert await is_known(shared, **how)
    before = await run(shared, "echo $A $B", **how)
    assert before == "1 1\n"
    await run(shared, CHANGES[change], **how)
    after = await run(shared, "echo $A $B", **how)
    assert after != before
    if change != "it does more now":
        assert after == await fresh(shared, "echo $A $B", **how)
        assert await is_known(shared, **how)
        assert await run(shared, "echo $A $B", **how) == after
    else:
        assert not await is_known(shared, **how)


async def test_users_folders_and_environments_are_kept_apart(sandbox: BashSandbox) -> None:
    await sandbox.exec(["useradd", "-m", "-s", "/bin/bash", "agent"], timeout_s=20)
    await have(sandbox, "/etc/profile.d/x.sh", 'export SEEN="$GIVEN $PWD $HOME"')
    calls = [
        {"user": user, "cwd": cwd, "env": {"GIVEN": given}}
        for user in ("root", "agent")
        for cwd in ("/usr", "/tmp")
        for given in ("a", "b")
    ]
    for _ in range(USES + 1):
        for how in calls:
            assert await run(sandbox, "echo $SEEN", **how) == await fresh(sandbox, "echo $SEEN", **how)
    for how in calls:
        assert await is_known(sandbox, **how)


async def test_an_environment_that_bash_cannot_set(sandbox: BashSandbox) -> None:
    """Such variables are set by env, which would be given the shell's option."""
    for _ in range(USES + 1):
        done = await sandbox.exec(
            ["/bin/bash", "-l", "-c", "env | grep -a odd; echo $A"], timeout_s=20, env={"odd-name": "1", "A": "2"}
        )
        assert (done.exit_code, done.stdout.text()) == (0, "odd-name=1\n2\n")


async def test_several_are_learned_at_once(shared: BashSandbox) -> None:
    """Profiles learned at the same time must not be confused."""
    await shared.exec(["rm", "-rf", *LEFT], timeout_s=20)
    await have(shared, "/root/.profile", 'export SEEN="$GIVEN"')
    given = [str(number) for number in range(6)]
    for _ in range(USES + 1):
        said = await asyncio.gather(*(run(shared, "echo $SEEN", env={"GIVEN": text}) for text in given))
        assert [text.strip() for text in said] == given


async def test_a_user_whose_home_moves(sandbox: BashSandbox) -> None:
    """The profile's effect for the old home must not stay after /etc/passwd has changed."""
    await sandbox.exec(["bash", "-c", "useradd -m -s /bin/bash agent; cp -r ~agent /srv/agent"], timeout_s=20)
    await have(sandbox, "/etc/profile.d/x.sh", 'export SEEN="$HOME"')

    async def seen() -> bytes:
        process = await sandbox.start(["/bin/bash", "-l", "-c", "echo $SEEN"], user="agent", home_cwd=True)
        return b"".join([data async for _, data in process.output()])

    for _ in range(USES):
        assert await seen() == b"/home/agent\n"
    await sandbox.exec(["sed", "-i", "s#/home/agent#/srv/agent#", "/etc/passwd"], timeout_s=20)
    assert await seen() == b"/srv/agent\n"


async def test_a_users_own_programs_are_found_once_they_are_there(sandbox: BashSandbox) -> None:
    """The usual ~/.profile of Debian adds ~/.local/bin if that is a folder: `pip install --user` makes it."""
    await sandbox.exec(["useradd", "-m", "-s", "/bin/bash", "agent"], timeout_s=20)
    how = {"user": "agent", "home_cwd": True}
    process = None
    for _ in range(USES):
        process = await sandbox.start(["/bin/bash", "-l", "-c", "tool"], **how)  # type: ignore[arg-type]
        assert (await process.wait()).exit_code == 127
    made = "mkdir -p ~/.local/bin; printf '#!/bin/sh\\necho here' > ~/.local/bin/tool; chmod +x ~/.local/bin/tool"
    process = await sandbox.start(["/bin/bash", "-l", "-c", made], **how)  # type: ignore[arg-type]
    assert (await process.wait()).exit_code == 0
    process = await sandbox.start(["/bin/bash", "-l", "-c", "tool"], **how)  # type: ignore[arg-type]
    assert b"".join([data async for _, data in process.output()]) == b"here\n"


async def test_a_profile_that_hangs_costs_its_commands_their_time(
    sandbox: BashSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logins, "_LEARN_S", 1.0)
    await have(sandbox, "/root/.profile", "sleep 0.1; while [ ! -e /tmp/go ]; do sleep 0.1; done")
    for _ in range(USES):
        done = await sandbox.exec(["/bin/bash", "-l", "-c", "true"], timeout_s=0.5)
        assert done.timed_out
    await have(sandbox, "/tmp/go", "")
    assert await run(sandbox, "echo on") == "on\n"
