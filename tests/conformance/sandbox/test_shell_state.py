"""The persistent shell keeps the state that a person at a terminal expects, and runs any text unchanged."""

import hashlib
import secrets
import time

import pytest

from sandbox_server.sandbox.base import ShellOutcome
from sandbox_server.sandbox.bash.sandbox import BashSandbox

from .specs import say, shown


async def test_state_persists(new_shell: BashSandbox) -> None:
    """A later action would miss the folder, variables, functions, aliases, umask or options of an earlier one."""
    await say(
        new_shell,
        "mkdir -p '/tmp/a b'; cd '/tmp/a b'; export KEPT=42; plain='x  y'; f() { echo from-f $1; };"
        " alias twice='echo al; echo ias'; umask 027; arr=(1 2 3); shopt -s nullglob; set -o pipefail",
    )
    out = await say(
        new_shell,
        "pwd; sh -c 'echo $KEPT'; echo \"$plain\"; f z; umask; echo ${#arr[@]}; shopt -q nullglob && echo ng\n"
        "twice; false | true; echo $?",
    )
    assert out.splitlines() == ["/tmp/a b", "42", "x  y", "from-f z", "0027", "3", "ng", "al", "ias", "1"]


async def test_result_tells_where_the_shell_stands(new_shell: BashSandbox) -> None:
    """The observation's frame would show a stale folder, user or interpreter."""
    result = await new_shell.shell.run("cd /usr; rm -f /usr/bin/python", timeout_s=5)
    assert (result.cwd, result.user, result.python) == ("/usr", "root", "")
    made = "mkdir -p /tmp/bin; printf '#!/bin/sh\n' > /tmp/bin/python; chmod +x /tmp/bin/python; PATH=/tmp/bin:$PATH"
    assert (await new_shell.shell.run(made, timeout_s=5)).python == "/tmp/bin/python"
    folder = "/tmp/new\nline 'q' \"d\" \\ é \x1b"
    await new_shell.exec(["mkdir", folder], timeout_s=5)
    result = await new_shell.shell.run("cd /tmp/new*", timeout_s=5)
    assert result.cwd == folder
    result = await new_shell.shell.run("rm -rf /tmp/bin; cd /tmp", timeout_s=5)
    assert (result.cwd, result.python) == ("/tmp", "")


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("true", 0),
        ("false", 1),
        ("(exit 37)", 37),
        ("no_such_command_x", 127),
        ("/etc/passwd", 126),
        ("sh -c 'kill -9 $$'", 137),
        ("if true; then", 2),
        ("echo 'open", 2),
        ("false | true", 0),
        ("", 0),
        ("# only a comment", 0),
        ("return 5", None),
        ("for", 2),
        (")", 2),
        ("cat <<EOF\nno end", 0),
    ],
)
async def test_exit_code(shared: BashSandbox, command: str, code: int | None) -> None:
    """A command would get another one's status, or an incomplete one would wait for its timeout."""
    began = time.monotonic()
    result = await shared.shell.run(command, timeout_s=30)
    assert result.outcome is ShellOutcome.FINISHED
    assert code is None or result.exit_code == code, shown(result)
    assert time.monotonic() - began < 20


async def test_last_status_is_seen_by_the_next_action(shared: BashSandbox) -> None:
    """`$?` at the begin of an action would be that of our own bookkeeping; a person would see the last command's."""
    await shared.shell.run("(exit 7)", timeout_s=5)
    assert await say(shared, "echo $?") == "7"


TEXTS = {
    "controls": "".join(chr(i) for i in range(1, 32)) + "\x7f",
    "quotes": "'\"`$HOME \\ \\' \\\\ !x !! $'a' $(date) {a,b} * ? ~ # ; & | < > ( )",
    "unicode": "é ü 漢字 🎉 \u202e\ufeff\u0301",
    "tabs": "\ta\tb\t\n  two\n\n\n",
    "flow": "a\x11b\x13c\x03d\x04e\x1af\x15g\x16h\x17i\x08j",
    "own marks": "\x1eB0000000000000000\x1e __sb_b __sb_c __sb_d \x1e\x1f",
    "long line": "x" * 10_000,
    "long words": "é" * 9_000 + "'" * 5_000 + "\\" * 5_000,
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
async def test_text_arrives_byte_for_byte(shared: BashSandbox, text: str) -> None:
    """The terminal would cut a long line or act on a control character of the command."""
    data = text.encode()
    out = await say(shared, f"cat > /tmp/h <<'EOF_4711'\n{text}\nEOF_4711\nmd5sum < /tmp/h")
    assert out.split()[0] == hashlib.md5(data + b"\n").hexdigest()


async def test_one_megabyte_of_every_character(shared: BashSandbox) -> None:
    """A large file written by heredoc would arrive damaged."""
    block = "".join(chr(i) for i in (*range(1, 1280), *range(0x4E00, 0x4E40), 0x1F600)).replace("\r", "")
    text = (block * (1_000_000 // len(block.encode()) + 1))[:700_000]
    assert len(text.encode()) > 1_000_000
    began = time.monotonic()
    out = await say(shared, f"cat > /tmp/h <<'EOF_4711'\n{text}\nEOF_4711\nmd5sum < /tmp/h")
    assert out.split()[0] == hashlib.md5(text.encode() + b"\n").hexdigest()
    assert time.monotonic() - began < 40
    assert (await shared.shell.run("unset __sb_c", timeout_s=5)).exit_code == 0


async def test_unpaired_surrogates_do_not_raise(shared: BashSandbox) -> None:
    """Invalid Unicode in a policy's text would be an error of the service."""
    assert await say(shared, "echo 'a\ud800b' | tr -d '?'") == "ab"


async def test_multi_line_commands(shared: BashSandbox) -> None:
    """Heredocs, loops and functions over several lines would be cut at their lines."""
    command = "for i in 1 2; do\n  cat <<EOF\nin $i\nEOF\ndone\ng() {\n  echo 'it''s'\n}\ng \\\n  more\nunset -f g"
    assert (await say(shared, command)).splitlines() == ["in 1", "in 2", "its"]


CHANGES = {
    "set -e": "set -e",
    "set -u": "set -u",
    "set -eu": "set -eu; set -o pipefail",
    "PS1": "PS1='> ' PS2='>> ' PS4='trace '; PROMPT_COMMAND='echo prompted'",
    "PROMPT_COMMAND array": "unset PROMPT_COMMAND; PROMPT_COMMAND=('echo one' 'echo two')",
    "readonly PS1": "readonly PS1='x '",
    "IFS": "IFS=0123456789abcdef",
    "readonly IFS": "readonly IFS",
    "alias eval": "alias eval=false builtin=false true=false __sb_b=false",
    "functions": "printf() { echo bad; }; read() { return 1; }; eval() { return 9; }; hash() { return 1; };"
    " export() { :; }; cd() { return 1; }; local() { :; }; trap() { :; }; command() { :; }",
    "DEBUG trap": "trap ':' DEBUG; set -T",
    "ERR trap": "trap ':' ERR; set -E",
    "RETURN trap": "trap ':' RETURN; set -T",
    "EXIT trap": "trap ':' EXIT",
    "posix": "set -o posix",
    "noglob": "set -f",
    "noclobber": "set -C",
    "no job control": "set +m",
    "history": "set -o history -o histexpand; HISTCONTROL=; HISTSIZE=10",
    "shopt": "shopt -s extglob nocasematch failglob nullglob compat31; shopt -u promptvars expand_aliases",
    "TMOUT": "TMOUT=600",
    "ulimit": "ulimit -c 0; ulimit -n 64",
    "hashall": "set +h",
}
INHERITED = {
    "allexport": "set -a",
    "locale": "export LC_ALL=C LANG=C",
    "no PATH": "PATH=",
    "HOME": "unset HOME TERM PWD OLDPWD USER",
    "BASH_ENV": "export BASH_ENV=/nonexistent ENV=/nonexistent",
    "huge environment": "export BIG=$(head -c 100000 /dev/zero | tr '\\0' x)",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
async def test_shell_settings_of_the_policy(new_shell: BashSandbox, change: str) -> None:
    """A setting would break the way a later command is run, or leak our bookkeeping into its output."""
    await _changes_nothing_else(new_shell, change)


@pytest.mark.parametrize("change", INHERITED.values(), ids=INHERITED.keys())
async def test_settings_that_a_next_shell_inherits(sandbox: BashSandbox, change: str) -> None:
    """A variable would break the way a later command is run, or leak our bookkeeping into its output."""
    await _changes_nothing_else(sandbox, change)


async def _changes_nothing_else(sandbox: BashSandbox, change: str) -> None:
    result = await sandbox.shell.run(change, timeout_s=10)
    assert (result.outcome, result.exit_code) == (ShellOutcome.FINISHED, 0), shown(result)
    for number in range(2):
        began = time.monotonic()
        result = await sandbox.shell.run(f'echo "next-{number}-$((6*7))"', timeout_s=30)
        assert time.monotonic() - began < 20
        assert (result.outcome, result.exit_code) == (ShellOutcome.FINISHED, 0)
        assert shown(result).removesuffix("prompted\n").removesuffix("x ") == f"next-{number}-42\n"
        assert result.cwd == "/tmp"
    if "set -e" not in change:
        assert (await sandbox.shell.run("(exit 3)", timeout_s=10)).exit_code == 3


@pytest.mark.parametrize("options", ["set -x", "set -v", "set -xv", "set -x; PS4='+ ${BASH_SOURCE}:${LINENO}: '"])
async def test_traces_show_the_command_and_nothing_of_ours(new_shell: BashSandbox, options: str) -> None:
    """`set -x` would fill the observation with the service's own functions."""
    await new_shell.shell.run(options, timeout_s=5)
    for _ in range(2):
        out = await say(new_shell, "echo one-$((1+1))\ntrue")
        assert "one-2" in out
        assert "__sb" not in out, out
        assert "/run/sandbox" not in out, out
    await new_shell.shell.run("set +xv", timeout_s=5)
    assert await say(new_shell, "echo end") == "end"


SABOTAGE = {
    "disabled builtins": "enable -n printf read hash export",
    "builtin is a function": "builtin() { return 0; }",
    "functions of ours": "__sb_p() { :; }",
    "restricted": "set -r",
    "no file descriptors": "ulimit -n 3",
    "no file size": "ulimit -f 0",
    "extdebug": "shopt -s extdebug; trap false DEBUG",
    "readonly PROMPT_COMMAND": "readonly PROMPT_COMMAND=:",
    "our functions unset": "unset -f __sb_b __sb_d __sb_p",
    "terminal": "stty inlcr",
    "no line ends": "stty -icrnl -onlcr raw eol x",
    "stdin closed": "exec < /dev/null",
    "stdin is a file": "exec < /etc/passwd",
    "another program": "exec sleep 1000",
    "another shell": "exec bash --norc",
    "keyword": "set -k",
    "noexec": "set -n",
    "one command": "set -t",
}
UNWRITABLE = {
    SABOTAGE[name] for name in ("disabled builtins", "builtin is a function", "no file size", "another program")
}


@pytest.mark.parametrize("command", SABOTAGE.values(), ids=SABOTAGE.keys())
async def test_a_broken_shell_is_replaced(
    new_shell: BashSandbox, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A policy that breaks its shell would lose its session instead of one action."""
    await _is_replaced(new_shell, command, monkeypatch)


async def test_a_shell_whose_files_are_gone_is_replaced(sandbox: BashSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy that removes our files would lose its session instead of one action."""
    await _is_replaced(sandbox, "rm -rf /run/sandbox/*; exit 4", monkeypatch)


async def _is_replaced(sandbox: BashSandbox, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox_server.sandbox.bash.shell._SIGINT_GRACE_S", 0.3)
    kept = secrets.token_hex(4)
    await sandbox.shell.run(f"cd /usr; export KEPT={kept}", timeout_s=5)
    began = time.monotonic()
    await sandbox.shell.run(command, timeout_s=1)
    await sandbox.shell.run("true", timeout_s=1)
    out = await say(sandbox, "echo alive $KEPT $PWD", timeout_s=20)  # a new shell takes over a second on a busy host
    # what no longer could be written down when the shell ended is lost, no more
    assert out == f"alive {kept} /usr" or (command in UNWRITABLE and out.startswith("alive"))
    assert time.monotonic() - began < 40


async def test_an_action_forks_and_waits_for_nothing(new_shell: BashSandbox) -> None:
    """An action would cost a pause or a `docker exec` (0.7 ms on an idle machine). The quickest tell."""
    took = []
    for _ in range(200):
        began = time.perf_counter()
        await new_shell.shell.run("true", timeout_s=5)
        took.append(time.perf_counter() - began)
    assert sorted(took)[20] < 0.010
