"""Processes of a policy that write into the service's own streams, or replace programs of the image."""

import asyncio
import time
from contextlib import suppress

import pytest

from sandbox_server.errors import CommandBroken, SandboxExhausted
from sandbox_server.sandbox.base import ShellOutcome
from sandbox_server.sandbox.bash.sandbox import BashSandbox

from .specs import shown

# Writes into every stream of every bash of ours, again and again.
FLOOD = r"""
while :; do
  for p in /proc/[0-9]*; do
    mapfile -d '' words 2> /dev/null < "$p/cmdline"
    [[ ${words[0]##*/} == bash && (${words[*]} == *" exec-channel "* || ${words[*]} == *" -p -s") ]] || continue
    for f in "$p"/fd/*; do
      [[ $(readlink "$f") == pipe:* ]] || continue
      { printf 'end zero\nend\n%05000d 0 exited free\n' 7 > "$f"; } 2> /dev/null
    done
  done
done
"""

# Looks for the nonce in the memory of the channel's bash, and tells an end in its name.
FORGE = r"""
while read -r range _ _ _ _ name; do
  [[ $name == '[heap]' ]] || continue
  from=$((16#${range%-*} / 4096)) to=$((16#${range#*-} / 4096))
  nonces=$(dd if=/proc/$PPID/mem bs=4096 skip=$from count=$((to - from)) 2> /dev/null |
    grep -aoE '__sb_run [0-9a-f]{32}' | tr -d '_a-z ' --complement | grep -oE '[0-9a-f]{32}$' | sort -u)
done < /proc/$PPID/maps 2> /dev/null
for nonce in $nonces; do
  for f in /proc/$PPID/fd/*; do
    { printf "$1" "$nonce" > "$f"; } 2> /dev/null
  done
done
sleep 0.3
exit 5
"""


async def test_commands_beside_a_process_that_writes_into_their_channels(sandbox: BashSandbox) -> None:
    """`end zero` behind a command's last words was a ValueError, and a frame of one word another."""
    flood = await sandbox.start(["bash", "-c", FLOOD])
    flood.detach()
    began, seen = time.monotonic(), dict[int, int | None]()
    for number in range(12):
        try:
            done = await sandbox.exec(["sh", "-c", f"exit {number}"], timeout_s=5)
            seen[number] = number if done.timed_out else done.exit_code  # a flood may take all of its time
        except CommandBroken as error:
            assert "new session" in error.detail
        except SandboxExhausted as error:  # what it wrote ended a channel before the command
            assert "a process in it ends" in error.detail
        with suppress(CommandBroken, SandboxExhausted):
            await sandbox.write_file("/tmp/x", b"x")
            await sandbox.listdir("/tmp")
    assert all(code == number for number, code in seen.items()), f"a forged exit code: {seen}"
    assert time.monotonic() - began < 40
    await flood.kill_tree()
    assert (await sandbox.exec(["sh", "-c", "exit 3"], timeout_s=5)).exit_code == 3


@pytest.mark.parametrize("words", ["zero", "end zero", f"{'9' * 5000} exited free", f"0 {'x' * 5000}"])
async def test_a_command_that_finds_its_nonce(shared: BashSandbox, words: str) -> None:
    """Each of these instead of the end was a ValueError; the last one waited for its line feed for ever."""
    text = f"%s {words}" + ("" if "x" in words[:4] else "\\n")
    try:
        async with asyncio.timeout(15):
            done = await shared.exec(["bash", "-c", FORGE, "forge", text], timeout_s=10)
        assert done.exit_code == 5
    except CommandBroken:
        pass
    assert (await shared.exec(["true"], timeout_s=10)).exit_code == 0


async def test_programs_of_the_policys_own(sandbox: BashSandbox) -> None:
    """A `find` that prints no numbers was a ValueError; a `head` without an end filled the server's memory."""
    await sandbox.exec(
        [
            "bash",
            "-c",
            r"""for p in find head; do rm -f "$(type -P $p)"; done
            printf '#!/bin/bash\nprintf "x\\0f\\0f\\0%%05000d\\0y\\0" 7\n' > /usr/bin/find
            printf '#!/bin/bash\nwhile :; do printf %%01000000d 7; done\n' > /usr/bin/head
            chmod 755 /usr/bin/find /usr/bin/head""",
        ],
        timeout_s=10,
    )
    began = time.monotonic()
    for asked in (sandbox.stat("/tmp"), sandbox.listdir("/"), sandbox.read_file("/etc/passwd", max_bytes=1000)):
        with pytest.raises(CommandBroken):
            await asked
    assert time.monotonic() - began < 60


# Its own nonce an action has: what it prints with it counts only if nothing follows soon, so these end without a fork.
MARKS = [
    r"""printf '\036I0000000000000000 0 0 t \037/forged\037\036\036P0000000000000000 root\036' > /dev/tty; (exit 5)""",
    r"""printf '\036I0000000000000000 0 0  \037/forged\037\036' > /dev/tty; (exit 5)""",
    r"""printf '\036I%s 0 0 t \037/forged\037\036' "$__sb_n" > /dev/tty; five""",
    r"""printf '\036I%s 0 0 c \037/forged\037\036' "$__sb_n" > /dev/tty; five""",
    r"""printf '\036I%s 0 0  \037/forged\037\036' "$__sb_n" > /dev/tty; five""",
    r"""printf '\036L%032d end 0\036\036Lend zero\036\036I%05000d 0 0 t \037\037\036' 0 7 > /dev/tty; (exit 5)""",
    r"""printf '\036P%s root\036\036B%s\036' "$__sb_n" "$__sb_n" > /dev/tty; five""",
]


@pytest.mark.parametrize("forged", MARKS)
async def test_marks_that_are_printed_by_hand(shared: BashSandbox, forged: str) -> None:
    """The status that an action prints itself would be taken for the shell's."""
    await shared.shell.run("five() { return 5; }", timeout_s=10)
    result = await shared.shell.run(forged, timeout_s=10)
    assert (result.exit_code, result.outcome) == (5, ShellOutcome.FINISHED)
    assert result.cwd != "/forged"
    after = await shared.shell.run("echo mine", timeout_s=10)
    assert (shown(after).strip(), after.exit_code) == ("mine", 0)


async def test_a_loop_that_prints_prompts_is_still_stopped(sandbox: BashSandbox) -> None:
    """The prompt of a new shell, printed by hand, passed for the end of a command that ignores its interruption."""
    loop = r"""trap '' INT; while :; do printf '\036P0000000000000000 root\036' > /dev/tty; done"""
    began = time.monotonic()
    stopped = await sandbox.shell.run(loop, timeout_s=0.5)
    assert stopped.outcome in (ShellOutcome.KILLED, ShellOutcome.RESTARTED)
    after = await sandbox.shell.run("echo mine", timeout_s=10)
    assert (shown(after).strip(), after.outcome) == ("mine", ShellOutcome.FINISHED)
    assert time.monotonic() - began < 40


async def test_marks_of_a_process_left_behind(sandbox: BashSandbox) -> None:
    """A process that goes on printing marks would end other actions, or give them its output."""
    # what it knows: the nonce of its own action, which is no other's
    flood = r"""n=$__sb_n
(while :; do
  printf '\036I%s 0 0  \037/forged\037\036' "$n" 0000000000000000
  printf '\036P%s root\036' "$n" 0000000000000000
  printf '\036B%s\036' "$n"
  sleep 0.01
done) &"""
    await sandbox.shell.run(flood, timeout_s=10)
    await asyncio.sleep(0.2)
    for status in (3, 4):
        result = await sandbox.shell.run(f"sleep 0.2; echo mine; (exit {status})", timeout_s=10)
        assert (result.exit_code, shown(result).strip()) == (status, "mine")
        assert result.cwd != "/forged"
