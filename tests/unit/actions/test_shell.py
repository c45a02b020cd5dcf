"""`execute_bash`: what is asked of the shell, and what a policy is shown of its answers."""

from types import SimpleNamespace

import pytest

from sandbox_server.actions import registry
from sandbox_server.actions.base import Call, Observation
from sandbox_server.actions.profiles import OPENHANDS, PLAIN
from sandbox_server.sandbox.base import Output, ShellOutcome, ShellResult
from tests.golden.play import context
from tests.unit.actions.fakes import FakeSandbox, FakeShell, result

HEAD = "EXECUTION RESULT of [execute_bash]:\n"
PROMPT = "[Python Interpreter: /usr/bin/python]\nroot@openhands-workspace:/tmp # "
RUNNING = {"exit_code": -1, "outcome": ShellOutcome.RUNNING}


async def act(shell: FakeShell, command: str, **around) -> Observation:
    return await registry.tools()["execute_bash"].run(
        Call("execute_bash", {"command": command}), context(FakeSandbox(shell=shell), **around)
    )


async def text_of(answer: ShellResult, command: str = "cmd", **around) -> str:
    return (await act(FakeShell([answer]), command, **around)).text


async def test_pieces_share_the_action_its_time_and_its_mark(monkeypatch):
    """Each piece gets the whole timeout, or a timeout kills what an earlier action left in the background."""
    clock = iter([100.0, 100.0, 101.5, 109.0])
    monkeypatch.setattr("sandbox_server.actions.tools.shell.time", SimpleNamespace(monotonic=lambda: next(clock)))
    shell = FakeShell([result(), result(), result()])
    await act(shell, "a\nb\nc", command_timeout_s=8.0, soft_timeout_s=2.0)
    assert shell.asked == [
        ("run", "a", 8.0, 2.0, True),
        ("run", "b", 6.5, 0.5, False),
        ("run", "c", 0.1, 0.1, False),
    ]


@pytest.mark.parametrize(
    "last",
    [
        result("", 1),
        result("", 0, ShellOutcome.SHELL_ENDED),
        result("", 0, ShellOutcome.RESTARTED),
        result("", **RUNNING),
        result("", 130, ShellOutcome.INTERRUPTED),
    ],
)
async def test_nothing_runs_after_a_failure_or_an_end(last):
    """`exit 0` or a failed `cd` is followed by commands that were meant for elsewhere."""
    shell = FakeShell([result(), last])
    observation = await act(shell, "a\nb\nrm -rf build")
    assert [asked[1] for asked in shell.asked] == ["a", "b"]
    assert observation.outcome == last.outcome
    assert observation.exit_code == last.exit_code


async def test_timeouts_are_told_in_upstreams_words():
    """The message names the seconds of one part, not of the action; or reports a kill as an interrupt."""
    out = "part\r\n"
    left_s = 99.98716230900003  # of 100 s, after the action's wait for its turn
    observation = await act(FakeShell([result(out, 130, ShellOutcome.INTERRUPTED)]), "cmd", command_timeout_s=left_s)
    note = "[Command timed out after 100 seconds. SIGINT was sent to interrupt the command.]"
    assert observation.text == f"{HEAD}cmd\r\npart\r\n\r\n\r\n{note}{PROMPT}\n[Command finished with exit code 130]"
    assert observation.timed_out
    killed = await act(FakeShell([result(out, 137, ShellOutcome.KILLED)]), "cmd", command_timeout_s=1.5)
    note = (
        "[Command timed out after 1.5 seconds. SIGINT was sent to interrupt the command, but failed. "
        "The command was killed.]"
    )
    assert killed.text == f"{HEAD}cmd\r\npart\r\n\r\n\r\n{note}{PROMPT}\n[Command finished with exit code 137]"
    assert killed.timed_out and killed.outcome == "killed"
    assert not (await act(FakeShell([result()]), "cmd")).timed_out


NEW_SHELL = (
    "A new shell was started in /tmp with the last environment; functions, aliases and unexported variables are gone."
)
NEW_WITHOUT = "A new shell was started in /tmp; variables, functions and aliases are gone."


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (result("", 3, ShellOutcome.SHELL_ENDED, shell_replaced=True), f"[The shell exited with code 3. {NEW_SHELL}]"),
        (
            result("", 137, ShellOutcome.RESTARTED, shell_replaced=True),
            f"[All processes of the sandbox were killed; its files are kept. {NEW_WITHOUT}]",
        ),
        (
            result("", 137, ShellOutcome.RESTARTED, oom_killed=True),
            "[The sandbox ran out of memory. All processes of the sandbox were killed; its files are kept. "
            f"{NEW_WITHOUT}]",
        ),
        (
            result("", 0, shell_replaced=True, restarted=True),
            f"[All processes of the sandbox were killed; its files are kept. {NEW_WITHOUT}]",
        ),
        (result("", 0, shell_replaced=True), f"[The shell no longer answered. {NEW_SHELL}]"),
        (result("", 137, oom_killed=True), "[The sandbox ran out of memory.]"),
    ],
)
@pytest.mark.parametrize("profile", [OPENHANDS, PLAIN])
async def test_a_lost_shell_is_said_in_one_line(answer, line, profile):
    """A policy's functions vanish, or its command is killed, without a message to the policy."""
    text = await text_of(answer, profile=profile)
    assert line in text.replace("\r", "").split("\n") or f"{line}[Python" in text


async def test_without_python_each_prompt_stays():
    """BashSession takes a prompt off by its interpreter line; without python the text is not OpenHands'."""
    shell = FakeShell([result("x\r\n", python="", user="me"), result("y\r\n", 1, python="", user="me")])
    prompt = "\nme@openhands-workspace:/tmp $ "
    assert (await act(shell, "a\nb")).text == (
        f"{HEAD}a\r\nx\r\n\r\n{prompt}\r\nb\r\ny\r\n\r\n{prompt}\n[Command finished with exit code 1]"
    )


async def test_a_long_output_loses_its_middle_before_the_exit_line():
    """The observation is longer than a context, or its exit code is cut away."""
    text = (await text_of(result("x" * 50_000 + "END\r\n", 7))).removeprefix(HEAD)
    body, _, last = text.rpartition("\n")
    assert last == "[Command finished with exit code 7]"
    assert body.startswith("cmd\r\nxxx") and body.endswith("END" + PROMPT)
    cut = "\n[... Observation truncated due to length ...]\n"
    assert body.index(cut) == 15_000 and len(body) == 30_000 + len(cut)
    assert len(await text_of(result("x" * 29_000))) < 30_000
    plain = await text_of(result("x" * 50_000), profile=PLAIN)
    assert len(plain) == 30_000 + len(cut)


async def test_a_left_running_command_is_polled_fed_and_interrupted():
    """Soft timeout: the next action is run as a command instead of reaching the one that waits."""
    shell = FakeShell([result("Name? ", **RUNNING), result("", **RUNNING), result("hi Bob\r\n"), result("^C\r\n", 130)])
    asked = await act(shell, "python ask.py", soft_timeout_s=2.0)
    assert asked.text == f"{HEAD}python ask.py\r\nName? \n[Command finished with exit code -1]"
    assert (asked.exit_code, asked.outcome) == (-1, "running")
    assert (await act(shell, "", soft_timeout_s=2.0)).text == f"{HEAD}\n[Command finished with exit code -1]"
    fed = await act(shell, "Bob\nAlice", soft_timeout_s=2.0)
    assert fed.text == f"{HEAD}Bob\nAlice\r\nhi Bob{PROMPT}\n[Command finished with exit code 0]"
    shell.running = True
    stopped = await act(shell, " CTRL+C\n")
    assert stopped.text == (
        f"{HEAD}ctrl+c\r\n^C\r\n\r\n\r\n[SIGINT was sent to interrupt the command.]"
        "\n[Command finished with exit code 130]"
    )
    assert shell.asked[1:] == [("poll", 2.0), ("send", "Bob\nAlice", 2.0), ("interrupt", 5.0)]


async def test_a_poll_that_sees_the_end_shows_the_prompt():
    """The policy never learns that its command has ended."""
    shell = FakeShell([result("done\r\n")], running=True)
    assert (await act(shell, "")).text == f"{HEAD}\r\ndone\r\n\r\n{PROMPT}\n[Command finished with exit code 0]"


@pytest.mark.parametrize(("soft_s", "hard_s", "wait_s"), [(None, 100.0, 5.0), (None, 3.0, 3.0), (20.0, 100.0, 20.0)])
async def test_a_poll_waits_no_longer_than_an_action_may(soft_s, hard_s, wait_s):
    """A poll outlasts the client's patience."""
    shell = FakeShell([result("", **RUNNING)], running=True)
    await act(shell, "", soft_timeout_s=soft_s, command_timeout_s=hard_s)
    assert shell.asked == [("poll", wait_s)]


async def test_an_interrupt_that_had_to_kill_says_so():
    """A policy believes that ctrl+c was enough."""
    shell = FakeShell([result("", 137, ShellOutcome.KILLED)], running=True)
    observation = await act(shell, "ctrl+c")
    assert "[SIGINT was sent to interrupt the command, but failed. The command was killed.]" in observation.text
    assert observation.exit_code == 137 and observation.text.endswith("exit code 137]")
    assert (observation.outcome, observation.timed_out) == ("killed", False)


async def test_an_interrupted_command_counts_as_130_whatever_it_made_of_it():
    """A program that catches SIGINT and exits 0 looks as if it had not been interrupted."""
    observation = await act(FakeShell([result("bye\r\n", 0)], running=True), "ctrl+c")
    assert observation.exit_code == 130 and observation.text.endswith("exit code 130]")


@pytest.mark.parametrize("profile", [OPENHANDS, PLAIN])
async def test_a_nul_byte_runs_nothing(profile):
    """Bash drops NUL bytes: another command than the one that was written runs."""
    shell = FakeShell()
    observation = await act(shell, "rm -rf /tmp/a\0b", profile=profile)
    assert not shell.asked
    assert "NUL byte, which bash cannot take. Nothing was run." in observation.text
    assert observation.exit_code == 2


async def test_lone_surrogates_reach_bash_as_replacement_characters():
    """A command that cannot be encoded breaks the stream to the shell."""
    shell = FakeShell([result("", 1)])
    await act(shell, "echo \ud800")
    assert shell.asked[0][1] == "echo \ufffd"


async def test_undecodable_and_dropped_output_is_still_text():
    """A reply cannot be encoded as JSON, or dropped output is not marked."""
    answer = ShellResult(Output(b"a\xff\xfeb", b"end\r\n", 7), ShellOutcome.FINISHED, 0, "/tmp", "root", "", 0.0)
    text = await text_of(answer)
    assert "a\ufffd\ufffdb\n[... 7 bytes dropped ...]\nend\r\n" in text
    text.encode()


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (result("a\r\nb\r\n"), "a\nb"),
        (result(""), ""),
        (result("oops\r\n", 2), "oops\n[exit code: 2]"),
        (result("", 1), "[exit code: 1]"),
        (
            result("part\r\n", 130, ShellOutcome.INTERRUPTED),
            "part\n[Command timed out after 6 seconds. SIGINT was sent to interrupt the command.]\n[exit code: 130]",
        ),
        (
            result("Name? ", **RUNNING),
            "Name? \n[The command is still running. Send an empty command to wait, text as its input, or ctrl+c.]",
        ),
    ],
)
async def test_plain_shows_what_matters(answer, text):
    """The plain profile carries frame or carriage returns, or hides a failure."""
    assert await text_of(answer, profile=PLAIN) == text


async def test_plain_runs_the_text_as_one():
    """A script of a policy that never saw OpenHands stops at its first failing line."""
    shell = FakeShell([result("x\r\n")])
    await act(shell, "false\necho x", profile=PLAIN)
    assert [asked[1] for asked in shell.asked] == ["false\necho x"]


@pytest.mark.parametrize("command", ["", "ctrl+c"])
async def test_plain_says_that_nothing_runs(command):
    """An empty observation leaves the policy guessing."""
    shell = FakeShell()
    assert (await act(shell, command, profile=PLAIN)).text == "[No command is running.]"
    assert not shell.asked
    shell = FakeShell([result("bye\r\n", 130)], running=True)
    assert (await act(shell, command, profile=PLAIN)).text == "bye\n[exit code: 130]"
