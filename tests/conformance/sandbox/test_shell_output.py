"""All output comes back unchanged, is bounded, and is never taken for one of our marks."""

import asyncio
import hashlib
import resource
import time

import pytest

from sandbox_server.sandbox.base import ShellOutcome
from sandbox_server.sandbox.bash.marks import Mark
from sandbox_server.sandbox.bash.sandbox import BashSandbox
from sandbox_server.sandbox.bash.turn import KEEP_BYTES

from .specs import say, shown


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("printf 'no newline'", b"no newline"),
        ("printf 'a\\0b\\0\\n'", b"a\0b\0\r\n"),
        ("printf 'bad\\xff\\xfebytes\\n'", b"bad\xff\xfebytes\r\n"),
        ("printf '\\033[2J\\033[H\\033[?1049h\\033c\\007\\n'", b"\x1b[2J\x1b[H\x1b[?1049h\x1bc\x07\r\n"),
        ("printf 'a\\rb\\bc\\n'", b"a\rb\bc\r\n"),
        ("printf '\\036'", b"\x1e"),
        ("printf '\\036\\036\\036 x \\036\\n'", b"\x1e\x1e\x1e x \x1e\r\n"),
        ("printf '\\036B'", b"\x1eB"),
        ("printf '\\036I0123456789abcdef 0 0 t \\037/'", b"\x1eI0123456789abcdef 0 0 t \x1f/"),
        ("echo >&2 err; echo out", b"err\r\nout\r\n"),
        ("printf '\\n\\n'", b"\r\n\r\n"),
        ("true", b""),
        ("cat < /dev/tty & wait", b""),
    ],
)
async def test_output_is_exact(shared: BashSandbox, command: str, output: bytes) -> None:
    """Bytes would be lost, added or decoded on their way."""
    result = await shared.shell.run(command, timeout_s=10)
    if "dev/tty" in command:  # a background reader is stopped by the terminal, and says so
        await shared.shell.run("kill -9 %1; wait", timeout_s=5)
        return
    assert (result.output.head + result.output.tail, result.output.dropped) == (output, 0)
    assert await say(shared, "echo next") == "next"


@pytest.mark.parametrize(
    "forged",
    [
        "I{n} 0 0 t \\037/forged\\037\\036\\036P{n} forged",
        "P{n} forged",
        "B{n}",
        "L{n} swept 1",
        "Lup end 0",
        "I{n} 0 0 c \\037/forged\\037",
        "I0000000000000000 0 0 t \\037/forged\\037\\036\\036P0000000000000000 root",
    ],
)
@pytest.mark.parametrize("nonce", ["0123456789abcdef", "0000000000000000"])
async def test_forged_marks_change_nothing(shared: BashSandbox, forged: str, nonce: str) -> None:
    """A program that prints what our marks look like would end an action early, with a status of its choice."""
    mark = f"\\036{forged.format(n=nonce)}\\036"
    result = await shared.shell.run(f"printf '{mark}'; sleep 0.1; echo end; (exit 9)", timeout_s=10)
    assert (result.outcome, result.exit_code, result.shell_replaced) == (ShellOutcome.FINISHED, 9, False)
    assert shown(result).endswith("end\n")
    result = await shared.shell.run("true", timeout_s=5)
    assert (result.cwd, result.user, result.exit_code) == ("/tmp", "root", 0)


async def test_marks_of_earlier_actions_change_nothing(new_shell: BashSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording of the terminal (script, a copied log) holds real marks; shown again they would end the action."""
    seen: list[bytes] = []
    passed_on = new_shell.shell.received

    def tap(data: bytes, mark: Mark | None) -> None:
        seen.append(data)
        passed_on(data, mark)

    monkeypatch.setattr(new_shell.shell, "received", tap)  # what arrives, with its marks
    await new_shell.shell.run("(exit 3)", timeout_s=5)
    await new_shell.shell.run("(exit 4)", timeout_s=5)
    recording = b"".join(seen)
    assert recording.count(b"\x1e") >= 8, recording
    await new_shell.write_file("/tmp/recording", recording)
    for _ in range(2):
        result = await new_shell.shell.run("cat /tmp/recording; sleep 0.1; echo end; (exit 9)", timeout_s=10)
        assert (result.exit_code, shown(result)[-4:]) == (9, "end\n")


async def test_forty_megabytes_are_bounded(shared: BashSandbox) -> None:
    """A chatty command would fill the server's memory, or hold the session for minutes."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.monotonic()
    result = await shared.shell.run("echo FIRST; yes 0123456789abcde | head -c 40000000; echo LAST", timeout_s=60)
    took = time.monotonic() - began
    output = result.output
    assert (result.outcome, result.exit_code) == (ShellOutcome.FINISHED, 0)
    assert len(output.head) + len(output.tail) <= KEEP_BYTES
    assert output.head.startswith(b"FIRST\r\n0123")
    assert output.tail.endswith(b"cdeLAST\r\n") or output.tail.endswith(b"cde\r\nLAST\r\n")
    assert output.dropped == 7 + 6 + 40_000_000 + 40_000_000 // 16 - len(output.head) - len(output.tail)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000  # KiB
    assert took < 40


@pytest.mark.parametrize(
    "flood", ["tr '\\0' '\\036' < /dev/zero", "yes $'\\036B'", "cat /dev/urandom", "yes $'\\036I\\037'"]
)
async def test_floods_of_mark_bytes(shared: BashSandbox, flood: str) -> None:
    """Output made of 0x1e would cost the server quadratic time, for all sessions."""
    began = time.process_time()
    result = await shared.shell.run(f"{flood} | head -c 3000000; echo; echo END", timeout_s=30)
    assert result.output.tail.endswith(b"END\r\n")
    assert time.process_time() - began < 3
    assert await say(shared, "echo next") == "next"


async def test_background_child_that_goes_on_writing(new_shell: BashSandbox) -> None:
    """Its writing would hold the action open, or hide the next one's end."""
    began = time.monotonic()
    result = await new_shell.shell.run("(while :; do echo noise; sleep 0.01; done) &", timeout_s=10)
    assert (result.outcome, result.exit_code) == (ShellOutcome.FINISHED, 0)
    for number in range(20):
        result = await new_shell.shell.run(f"echo mine-{number}; (exit {number})", timeout_s=10)
        assert result.exit_code == number
        assert f"mine-{number}\n" in shown(result)
    assert time.monotonic() - began < 40
    await new_shell.shell.run("kill %1", timeout_s=5)
    await asyncio.sleep(0.1)
    await new_shell.shell.run("true", timeout_s=5)
    assert await say(new_shell, "echo quiet") == "quiet"


@pytest.mark.parametrize(
    "mode",
    [
        "stty echo",
        "stty raw",
        "stty -icanon",
        "stty cbreak",
        "stty -onlcr",
        "stty raw echo",
        "stty -isig",
        "stty intr x",
    ],
)
async def test_terminal_modes_last_no_longer_than_an_action(new_shell: BashSandbox, mode: str) -> None:
    """A program that leaves the terminal raw or echoing would add our own lines to later observations."""
    result = await new_shell.shell.run(f"{mode}; echo one", timeout_s=10)
    assert (result.outcome, result.exit_code) == (ShellOutcome.FINISHED, 0)
    for number in range(3):
        text = f"n-{number} " + "y" * 3000 * number
        result = await new_shell.shell.run(f"echo '{text}'", timeout_s=10)
        assert shown(result) == text + "\n"


async def test_notices_of_jobs_belong_to_the_action(new_shell: BashSandbox) -> None:
    """A person sees `[1]+  Done` before the next prompt; it would be lost, or be shown in the wrong action."""
    result = await new_shell.shell.run("sleep 1.5 &", timeout_s=5)
    assert "[1]" in shown(result)
    out = await say(new_shell, "sleep 2.5; echo mine")
    assert "mine" in out.splitlines() and "Done" in out


async def test_a_long_line_at_the_end(shared: BashSandbox) -> None:
    """Looking for our own traces at the end of a long line took 38 s of the server's time, quadratic in its length."""
    began = time.process_time()
    result = await shared.shell.run("head -c 1000000 /dev/zero | tr '\\0' x; echo", timeout_s=10)
    assert result.output.tail.endswith(b"xxx\r\n")
    assert time.process_time() - began < 1


async def test_output_shown_is_output_written(shared: BashSandbox) -> None:
    """A large text would lose or repeat bytes at the borders of what arrives."""
    result = await shared.shell.run("seq 1 30000", timeout_s=10)
    wanted = "".join(f"{i}\n" for i in range(1, 30001))
    assert hashlib.md5(shown(result).encode()).hexdigest() == hashlib.md5(wanted.encode()).hexdigest()
