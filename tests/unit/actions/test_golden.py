"""The recorded observations of OpenHands 0.16.1 and openhands-aci 0.1.2, on fakes."""

import pytest

from sandbox_server.actions import registry
from sandbox_server.actions.base import Call
from sandbox_server.sandbox.base import ShellOutcome, ShellResult
from tests.golden.play import context, play_editor, script
from tests.unit.actions.fakes import FakeSandbox, FakeShell, result

REPO = "/workspace/repo"
TIMED_OUT = {"exit_code": 130, "outcome": ShellOutcome.INTERRUPTED}


@pytest.fixture
def sandbox():
    fake = FakeSandbox()
    fake.mkdir("/workspace/ed/pkg")
    fake.mkdir("/workspace/ed/.git")
    return fake


async def test_the_editor_says_what_openhands_aci_said(sandbox):
    """Any change of an editor text, of the order of its checks or of the undo stack."""
    for call, seen, recorded in await play_editor(sandbox):
        assert seen == recorded, call


SHELL: list[list[tuple[str, ShellResult]]] = [
    [("pwd && ls", result(f"{REPO}\r\n", cwd=REPO))],
    [("echo hi", result("hi\r\n", cwd=REPO))],
    [("false", result("", 1, cwd=REPO))],
    [('printf "no newline"', result("no newline", cwd=REPO))],
    [("echo a; echo b", result("a\r\nb\r\n", cwd=REPO))],
    [("cd /tmp", result()), ("pwd", result("/tmp\r\n"))],
    [("echo one", result("one\r\n")), ("false", result("", 1))],
    [("export X=1", result())],
    [("echo $X", result("1\r\n"))],
    [("hello_nope", result("bash: hello_nope: command not found\r\n", 127))],
    [("cat <<EOF\nline1\nline2\nEOF", result("line1\r\nline2\r\n"))],
    [("for i in 1 2; do\necho $i\ndone", result("1\r\n2\r\n"))],
    [("sleep 20 &", result("[1] 26901\r\n"))],
    [],
    [("sleep 30", result("\r\n", **TIMED_OUT))],
    [],
    [],
    [
        (
            'python3 -c "print(input())"',
            result(
                'Traceback (most recent call last):\r\n  File "<string>", line 1, in <module>\r\nKeyboardInterrupt\r\n'
                "\r\n[1]+  Done                    sleep 20\r\n",
                **TIMED_OUT,
            ),
        )
    ],
    [("echo after", result("after\r\n"))],
    [("if true; then", result("^C\r\n", **TIMED_OUT))],
]


@pytest.mark.parametrize(("step", "answers"), list(zip(script("bash"), SHELL, strict=True)))
async def test_the_shell_frame_is_bash_sessions(step, answers):
    """Echo, joins, interpreter line, prompt, timeout note or exit line differ; or the text is split elsewhere."""
    shell = FakeShell([answer for _, answer in answers])
    tool = registry.tools()["execute_bash"]
    observation = await tool.run(Call(tool.name, {"command": step["input"]}), context(FakeSandbox(shell=shell)))
    assert observation.text == step["observation"]
    assert [asked[1] for asked in shell.asked] == [piece for piece, _ in answers]
    assert f"exit code {observation.exit_code}]" in step["observation"]
