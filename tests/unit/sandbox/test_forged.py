"""Parsers of a container's output terminate for any bytes, with a result or with the service's own error.

A policy's process can write into the streams of the service's own commands, and replace the image's programs.
"""

import asyncio
import contextlib
import json
import struct
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sandbox_server.boxes.orphans import process_ages, surviving_commands
from sandbox_server.errors import CommandBroken, ServiceError
from sandbox_server.protocols.e2b.envd_filesystem import entry
from sandbox_server.sandbox.base import ExecResult, Output, Sandbox, ShellOutcome
from sandbox_server.sandbox.bash import files, filesystem, frames, profile
from sandbox_server.sandbox.bash.clock import SandboxClock
from sandbox_server.sandbox.bash.command import ChannelMode, ChannelProcess, StartedCommand
from sandbox_server.sandbox.bash.exec_channel import ChannelEnded, ChannelFlooded, ExecChannel
from sandbox_server.sandbox.bash.filesystem_channels import ChannelEnded as FileChannelEnded
from sandbox_server.sandbox.bash.filesystem_channels import Exchange
from sandbox_server.sandbox.bash.marks import Scanner
from sandbox_server.sandbox.bash.shell import BashShell
from sandbox_server.sandbox.bash.turn import Turn
from sandbox_server.sandbox.docker.engine import Engine
from sandbox_server.sandbox.docker.exec_stream import DockerExecStream, _Stream
from sandbox_server.sandbox.process import ProcessEnd

NONCE = "0123456789abcdef" * 2
HUGE = "9" * 5000
FEW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])

WORDS = st.one_of(
    st.sampled_from(
        ["end", "zero", "0", "137", "exited", "signalled", "free", "held", "ok", "go", "full", "stale", "-1", "nan"]
    ),
    st.sampled_from([HUGE, "٣", "\udcff", "a[$(reboot)]", "0x10", "1_000", "+5", ""]),
    st.text(max_size=12),
)
LINES = st.lists(WORDS, max_size=6).map(" ".join)
MARKED = st.one_of(
    LINES.map(lambda line: f"{NONCE} {line}\n"),
    LINES.map(lambda line: f"\n{NONCE} {line}\n"),
    LINES,
    st.just(f"{NONCE}\n"),
    st.just(f"{NONCE} "),
    st.just("x" * 3000),
).map(lambda text: text.encode("utf-8", "surrogateescape" if text.isascii() else "replace"))
SAID = st.one_of(MARKED, st.binary(max_size=60))
FRAMES = st.lists(st.tuples(st.sampled_from([0, 1, 1, 1, 2, 2, 3, 255]), SAID), max_size=12)


def stream_of(said: list[tuple[int, bytes]], *, raw: bytes = b"") -> DockerExecStream:
    """A channel whose process has written these bytes and ended."""
    stream = _Stream(b"".join(struct.pack(">BxxxL", kind, len(data)) + data for kind, data in said) + raw)
    stream.eof_received()
    return DockerExecStream(cast(Engine, None), "recorded", stream)


class Recording:
    """Replaces the channels beside the command's own."""

    def __init__(self, killed: list[StartedCommand], returned: list[ExecChannel]) -> None:
        self.killed = killed
        self.returned = returned

    async def kill(self, begun: StartedCommand) -> None:
        self.killed.append(begun)

    async def signal(self, begun: StartedCommand, number: int) -> bool:
        return True

    async def status(self, channel: ExecChannel) -> int:
        return 0

    def give_back(self, channel: ExecChannel) -> None:
        self.returned.append(channel)

    def drop(self, channel: ExecChannel) -> None:
        channel.close()


def command_on(
    exec_stream: DockerExecStream, killed: list[StartedCommand], returned: list[ExecChannel]
) -> ChannelProcess:
    return ChannelProcess(
        ExecChannel(exec_stream, "0"),
        StartedCommand(NONCE, "1", 7, "", ""),
        b"",
        b"",
        ChannelMode(shared=True, reusable=True, pty=False, timeout_s=None),
        SandboxClock(),
        Recording(killed, returned),
    )


def run_recorded(
    said: list[tuple[int, bytes]],
) -> tuple[ProcessEnd | CommandBroken, bytes, list[StartedCommand], list[ExecChannel]]:
    """Run a command on such a channel; return its end, stdout, kills, and channels returned for reuse."""
    killed: list[StartedCommand] = []
    returned: list[ExecChannel] = []

    async def run() -> tuple[ProcessEnd | CommandBroken, bytes]:
        command = command_on(stream_of(said), killed, returned)
        out = b""
        try:
            async with asyncio.timeout(5):
                async for stream, data in command.output():
                    out += data if stream == 1 else b""
                end: ProcessEnd | CommandBroken = await command.wait()
        except CommandBroken as error:
            end = error
        await asyncio.sleep(0)
        return end, out

    end, out = asyncio.run(run())
    return end, out, killed, returned


@FEW
@given(FRAMES)
@example([(1, f"{NONCE} end zero\n".encode()), (2, f"{NONCE}\n".encode())])
@example([(1, f"{NONCE} {HUGE} exited free\n".encode()), (2, f"{NONCE}\n".encode())])
@example([(1, f"{NONCE} 128 signalled free\n".encode()), (2, f"{NONCE}\n".encode())])
@example([(3, b"what the engine says"), (0, b"\n")])
def test_a_command_of_any_frames(said: list[tuple[int, bytes]]) -> None:
    """A frame of one word is an error of the command; it used to be a ValueError and so a 500."""
    end, _, killed, _ = run_recorded(said)
    if isinstance(end, CommandBroken):
        assert killed, "the command that broke off lives on"
    else:
        assert -1 <= end.exit_code <= 255
        assert end.signal is None or 0 < end.signal < 65


def test_words_behind_the_end_do_not_change_it() -> None:
    """A second line after the status is not parsed as part of it."""
    ended = [(1, f"out{NONCE} 3 exited free\n".encode()), (2, f"{NONCE}\n".encode())]
    end, out, _, returned = run_recorded(ended)
    assert (end, out, len(returned)) == (ProcessEnd(3), b"out", 1)
    end, out, _, returned = run_recorded([ended[0], (1, b"end zero\n" + b"x" * (1 << 20)), ended[1]])
    assert (end, out, len(returned)) == (ProcessEnd(3), b"out", 0), "its channel is used again, others write there"


@FEW
@given(FRAMES)
@example([(1, b"x" * (1 << 17))])
def test_an_answer_of_any_frames(said: list[tuple[int, bytes]]) -> None:
    """A channel's answer to a request."""

    async def ask() -> None:
        channel = ExecChannel(stream_of(said), "0")
        with contextlib.suppress(ChannelEnded, ChannelFlooded):
            line, _, _ = await channel.ask(NONCE, None)
            with contextlib.suppress(frames.BadFrame):
                begun = frames.parse_start(line)
                assert begun.pid > 0
                assert (begun.tick + begun.last).isascii()
                assert (begun.tick + begun.last).isdigit(), "a channel of root's calculates with it"

    asyncio.run(ask())


@FEW
@given(st.binary(max_size=200))
def test_any_bytes_of_the_engines_stream(raw: bytes) -> None:
    """Headers that announce 4 GiB, unknown streams, a stream that ends within a frame."""

    async def read() -> None:
        exec_stream = stream_of([], raw=raw)
        while (frame := await exec_stream.receive()) is not None:
            assert frame[0] in (1, 2)

    asyncio.run(read())


@FEW
@given(FRAMES)
@example([(1, f"\n{NONCE} ".encode() + b"y" * 5000)])
def test_an_answer_about_files_of_any_frames(said: list[tuple[int, bytes]]) -> None:
    """An answer's final word without an end is not kept in memory without bound."""

    async def answer() -> None:
        exchange = Exchange(stream_of(said))
        exchange._mark = f"\n{NONCE} ".encode()
        with contextlib.suppress(FileChannelEnded, CommandBroken, OverflowError):
            await exchange.answer(1 << 16)
            assert len(exchange.word) <= frames.LONGEST_WORD

    asyncio.run(answer())


@FEW
@given(FRAMES, st.integers(0, 100))
@example([(1, b"x" * 30_000)] * 4, 10)
def test_a_file_of_any_frames(said: list[tuple[int, bytes]], most: int) -> None:
    """The output of a `head` replaced by the policy is bounded."""

    async def read() -> None:
        exchange = Exchange(stream_of(said))
        exchange._mark = f"\n{NONCE} ".encode()
        with contextlib.suppress(FileChannelEnded, CommandBroken):
            word, data = await files._exchange(exchange, most, b"", "load")
            assert len(data) <= most
            assert len(word) <= frames.LONGEST_WORD

    asyncio.run(read())


FIELD = st.one_of(
    st.sampled_from([b"f", b"l", b"d", b"12", b"644", b"1700000000.5", b"99999999999999999", b"-1", b"1e9", b"0x1"]),
    st.sampled_from([HUGE.encode(), b"9" * 400, b"\xff", b"", b"nan", b"8", "٣".encode()]),
    st.binary(max_size=8).map(lambda data: data.replace(b"\0", b"")),
)
ANSWERS = st.one_of(
    st.lists(FIELD, max_size=40).map(b"\0".join),
    st.tuples(st.just([b"/top"]), st.lists(FIELD, min_size=11, max_size=11), st.lists(FIELD, max_size=6)).map(
        lambda parts: b"\0".join([*parts[0], *parts[1], *parts[2], b""])
    ),
    st.binary(max_size=900),
)


@settings(max_examples=150, deadline=None)
@given(ANSWERS, st.sampled_from(["", "user.e2b"]))
@example(b"/a\0a\0f\0f\0%b\x00644\0-rw\0root\0root\x001.5\x001\x001.5\0" % HUGE.encode(), "")
@example(b"/a\0a\0f\0f\x001\x00644\0-rw\0root\0root\x0099999999999999.5\x001\x001.5\0", "")
def test_entries_of_any_answer(answer: bytes, namespace: str) -> None:
    """The policy can replace `find`: fields that are not numbers, too few fields, times after the year 9999."""
    for reader in (filesystem._shown, filesystem._listed):
        with contextlib.suppress(CommandBroken):
            found = asyncio.run(filesystem._read(cast(Any, reader), answer, namespace))
            for info in found if isinstance(found, list) else [found]:
                json.dumps(entry(info))
                f"{info.owner}{info.group}{info.permissions}{info.changed}{info.attributes}".encode()


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(LINES, st.sampled_from(["\x1d", "\x1e", "\x1f", ". ", "00", "umask", "\n", "[ -e", "'"]))))
@example(["\x1d\x1dumask\x1d\x1e.\x1d00\x1d\x1dumask\x1d"])
def test_a_profile_that_says_anything(parts: list[str]) -> None:
    """`.` without a file used to be an IndexError."""
    with contextlib.suppress(profile.NotPlain):
        report = profile.report("".join(parts), "")
        profile.definition("1", profile.NOTHING, report)


def test_a_long_profile_is_not_read() -> None:
    """A megabyte of trace must not block the event loop for seconds."""
    with pytest.raises(profile.NotPlain, match="too long"):
        profile.report("\x1e [ -e /a ]\n" * 50_000, "")


@FEW
@given(st.lists(LINES, max_size=6).map("\n".join))
@example(f"7 {HUGE} 5\n7 1\nx\n8 100 300")
def test_ages_of_any_text(text: str) -> None:
    """The bash that prints them is the image's."""

    class Told:
        async def exec(self, argv: list[str], **_: object) -> ExecResult:
            return ExecResult(0, Output(text.encode("utf-8", "replace")), Output(b""), False, 0.0)

    found = asyncio.run(process_ages(cast(Sandbox, Told()), [7]))
    assert found.keys() <= {7}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"began_at": "x"}', '{"began_at": 1, "newer": 2}', HUGE])
async def test_notes_of_commands_that_cannot_be_read(text: str) -> None:
    """One unreadable record, for example of a newer server, must not hide all commands of its box."""
    forgotten: list[int] = []

    class Notes:
        async def note_command(self, sid: str, pid: int, text: str) -> None:
            raise AssertionError

        async def forget_command(self, sid: str, pid: int) -> None:
            forgotten.append(pid)

        async def commands(self, sid: str) -> dict[int, str]:
            return {7: text}

    class Alive:
        async def exec(self, argv: list[str], **_: object) -> ExecResult:
            return ExecResult(0, Output(b"7 1 500\n"), Output(b""), False, 0.0)

    assert await surviving_commands(Notes(), "1", cast(Sandbox, Alive()), []) == []
    assert forgotten == [7]


TOKEN = "f" * 32
MINE = "0123456789abcdef"
MARKS = st.one_of(
    st.builds(
        "\x1eI{} {} {} {} \x1f{}\x1f{}\x1e".format,
        st.sampled_from([MINE, "0" * 16, "a" * 16]),
        st.sampled_from(["0", "999", "zero", HUGE]),
        st.sampled_from(["0", "9999999999", ""]),
        st.sampled_from(["t", "c", ""]),
        LINES,
        LINES,
    ),
    st.sampled_from([MINE, "0" * 16]).map("\x1eP{} root\x1e".format),
    st.sampled_from([MINE, "0" * 16]).map("\x1eB{}\x1e".format),
    st.one_of(LINES, st.sampled_from(["end zero", "end", "end 1 2", "up", "swept", f"end {HUGE}"])).map(
        lambda words: f"\x1eL{TOKEN} {words}\x1e"
    ),
    LINES,
)


@FEW
@given(st.lists(MARKS, max_size=12))
@example([f"\x1eL{TOKEN} end zero\x1e"])
@example([f"\x1eL{TOKEN} end\x1e"])
def test_a_terminal_of_any_marks(marks: list[str]) -> None:
    """`end zero` in the loop's name used to end the terminal's stream with a ValueError."""

    async def show() -> None:
        shell = BashShell(
            open_terminal=cast(Any, None), signal=cast(Any, None), restart=cast(Any, None), check=cast(Any, None)
        )
        turn = shell._turn = Turn(MINE, begun=True)
        for data, mark in Scanner(TOKEN).feed("".join(marks).encode("utf-8", "replace")):
            shell.received(data, mark)
        assert 0 <= (turn.shell_status or 0) <= 999
        shell._result(turn, ShellOutcome.FINISHED, turn.exit_code(ShellOutcome.FINISHED))
        if turn.no_prompt is not None:
            turn.no_prompt.cancel()

    asyncio.run(show())


def test_what_is_told_says_what_to_do() -> None:
    error: ServiceError = CommandBroken("The end of a command")
    assert (error.code, error.http_status, error.retryable) == ("command_broken", 409, False)
    assert "start a new session" in error.detail
