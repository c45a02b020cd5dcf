"""The exec channels of one container. A few stay parked for their user's next command; more are opened on demand.

Known limit: a process of the same user can read a channel's memory and write to its pipes, so a policy's command can
forge its own exit status. In a grading, channels are therefore not shared: each one becomes its single command, and
the engine reports the exit status.
"""

import asyncio
import itertools
import secrets
import shlex
import time
from contextlib import suppress
from typing import NoReturn

from sandbox_server.errors import CommandBroken, SandboxExhausted, SandboxLost, UnknownUser
from sandbox_server.sandbox.base import ExecResult
from sandbox_server.sandbox.bash import frames
from sandbox_server.sandbox.bash.clock import SandboxClock
from sandbox_server.sandbox.bash.command import ChannelMode, ChannelProcess, StartedCommand
from sandbox_server.sandbox.bash.exec import collected
from sandbox_server.sandbox.bash.exec_channel import ChannelEnded, ChannelFlooded, ExecChannel
from sandbox_server.sandbox.bash.exec_request import ExecRequest
from sandbox_server.sandbox.bash.logins import Login, Logins
from sandbox_server.sandbox.engine import Container
from sandbox_server.sandbox.process import Size

_ROOT = "0"
_PARKED = 8  # parked channels per user, some 3 MB each; one turn of code search uses as many
_IDLE_S = 90.0  # a parked channel is closed after this; clients that poll a sandbox do so every few seconds
_LAST_ID = "2147483647"  # largest user id that the engine accepts
_MOST = 256  # channels of one container at a time; usually its process limit is reached first

_PARKED_ANSWER_S = 3.0  # for a parked channel to answer; after that a new one is tried
_ANSWER_S = 30.0  # for a new channel to answer, on a busy host
_KILL_S = 10.0  # for a sweep of up to several thousand processes
_KILL_TRIES = 20  # x 0.1 s: at the process limit the engine often fails to start a process
_EXIT_CODE_S = 2.0  # the daemon notes an exit status shortly after the end of the stream
_EXIT_CODE_PAUSES = (0.001, 0.002, 0.005, 0.01)  # then 20 ms each; usually the first look finds it
_END_TRIES = 50  # x 20 ms: for the daemon to note a container's end
_KILLED = 137
_NOT_STARTED = 126  # also the status of a command that may not be executed


class ExecChannels:
    """Starts and kills commands in one container.

    `shared=False`: each channel runs a single command, so no earlier command can have tampered with it.
    """

    def __init__(self, container: Container, clock: SandboxClock, *, shared: bool, login_cache: bool) -> None:
        self._container = container
        self._clock = clock
        self._shared = shared
        self._parked: dict[str, list[ExecChannel]] = {}
        self._open: set[ExecChannel] = set()
        self._known = {_ROOT, "root"}
        self._workdir: str | None = None
        self._logins = Logins(self.run) if login_cache else None

    @property
    def parked(self) -> int:
        """Number of channels waiting for a command."""
        return sum(map(len, self._parked.values()))

    async def start(self, request: ExecRequest) -> ChannelProcess:
        """See `sandbox.base.Sandbox.start`."""
        self._clock.check()
        user = _ROOT if request.user in (None, "", "root") else request.user or _ROOT
        await self._know(user)
        words = await self._words(request, user)
        login = await self._logins.of(request) if self._logins and request.pty is None else None
        for _ in range(_PARKED + 2):
            if request.pty is not None:
                return await self._begin_on_terminal(request, user, words)
            parked = self._take(user)
            channel = parked or await self._new(user)
            try:
                command = await self._begin(channel, request, words, login, self._answer_s(parked))
            except ChannelEnded:
                if parked is None:
                    await self._refused()
            else:
                if command is not None:
                    return command
                self._known.discard(user)
                await self._know(user)
        raise SandboxExhausted(
            "the container's channels end as soon as they are opened; its processes are being killed"
        )

    async def run(self, request: ExecRequest, stdin: bytes = b"", keep_bytes: int = 1 << 20) -> ExecResult:
        """See `sandbox.base.Sandbox.exec`."""
        started = time.monotonic()
        return await collected(await self.start(request), stdin, keep_bytes, started)

    async def open_ahead(self, commands: int) -> None:
        """See `sandbox.base.Sandbox.stand_by`."""
        for _ in range(commands):
            self._parked.setdefault(_ROOT, []).append(await self._new(_ROOT))

    async def kill(self, begun: StartedCommand) -> None:
        """Kill every process that descends from a command.

        Raises:
            SandboxLost: the container does not run. SandboxExhausted: it cannot take the process that would do the
            killing.
        """
        since = ["", ""] if self._shared else [begun.tick, begun.last]
        for attempt in itertools.count(1):
            try:
                await self._control("__sb_kill", begun.tag, str(begun.pid), *since, within_s=_KILL_S)
                return
            except SandboxExhausted:
                if attempt == _KILL_TRIES:
                    raise
            await asyncio.sleep(0.1)

    def close(self) -> None:
        """Close all channels; running commands go on, but their output is lost."""
        for channel in tuple(self._open):
            self.drop(channel)

    # ---- beginning a command

    async def _words(self, request: ExecRequest, user: str) -> list[str]:
        if self._workdir is None:
            self._workdir = await self._container.workdir()
        return request.words(user, self._workdir)

    def _answer_s(self, parked: ExecChannel | None) -> float:
        return _PARKED_ANSWER_S if parked and self._shared else _ANSWER_S

    async def _begin(
        self, channel: ExecChannel, request: ExecRequest, words: list[str], login: Login | None, within_s: float
    ) -> ChannelProcess | None:
        """Start the command; None if the name of the channel's user now belongs to another user id.

        Raises:
            ChannelEnded: nothing was started.
        """
        nonce, tag = secrets.token_hex(16), _tag()
        if self._shared:
            text = shlex.join(["__sb_run", nonce, tag, login.name if login else "", *words])
            if not (channel.user[0].isascii() and channel.user[0].isdigit()):
                text = f"__sb_as {nonce} {shlex.quote(channel.user.partition(':')[0])} {text}"
            if login is not None and login.name not in channel.logins:
                text = login.definition + text
                channel.logins.add(login.name)
            if request.stdin:
                text += "\nexit"  # the rest of the input is the command's
        else:
            text = "__sb_now; " + shlex.join(["__sb_become", nonce, tag, "", *words])
        answered = await self._ask(channel, nonce, tag, text, within_s)
        return await self._command(channel, request, nonce, tag, answered, login)

    async def _begin_on_terminal(self, request: ExecRequest, user: str, words: list[str]) -> ChannelProcess:
        nonce, tag = secrets.token_hex(16), _tag()
        size = request.pty or Size(24, 80)
        text = f'stty rows {size.rows} cols {size.cols} <&"$__sb_in"; __sb_now; ' + shlex.join(
            ["__sb_become", nonce, tag, "", *words]
        )
        channel = await self._new(user, terminal_request=text)
        try:
            answered = await self._ask(channel, nonce, tag, None, _ANSWER_S)
        except ChannelEnded:
            await self._refused()
        command = await self._command(channel, request, nonce, tag, answered)
        if command is None:
            raise UnknownUser(f"the sandbox has no user {user}")
        return command

    async def _ask(
        self, channel: ExecChannel, nonce: str, tag: str, text: str | None, within_s: float
    ) -> tuple[str, bytes, bytes]:
        try:
            async with asyncio.timeout(within_s):
                return await channel.ask(nonce, text)
        except ChannelEnded:
            self.drop(channel)
            raise
        except ChannelFlooded:  # retrying on another channel might run it twice
            await self._take_back(channel, tag)
            raise CommandBroken("The beginning of a command") from None
        except TimeoutError:
            await self._take_back(channel, tag)
            raise ChannelEnded from None
        except asyncio.CancelledError:
            await asyncio.shield(self._take_back(channel, tag, nonce))
            raise

    async def _take_back(self, channel: ExecChannel, tag: str, nonce: str | None = None) -> None:
        """Undo a request whose answer nobody waited for.

        Only a started command can be killed, so wait for the answer first, for a bounded time; closing the channel then
        cancels the request.
        """
        pid = 0
        if nonce is not None:
            with suppress(ChannelEnded, ChannelFlooded, TimeoutError, frames.BadFrame):
                async with asyncio.timeout(_PARKED_ANSWER_S):
                    line, _, _ = await channel.ask(nonce, None)
                pid = frames.parse_start(line.removesuffix("\r")).pid
        self.drop(channel)
        with suppress(SandboxLost):
            await self.kill(StartedCommand("", tag, pid, "", ""))

    async def _command(
        self,
        channel: ExecChannel,
        request: ExecRequest,
        nonce: str,
        tag: str,
        answered: tuple[str, bytes, bytes],
        login: Login | None = None,
    ) -> ChannelProcess | None:
        """Return the command that the channel's answer announces. Raises CommandBroken: the answer is malformed."""
        line, first, errors = answered
        line = line.removesuffix("\r")  # added by a terminal
        if line == "stale":
            self.drop(channel)
            return None
        if line == "full":
            if request.stdin:
                self.drop(channel)
            else:
                self.give_back(channel)
            raise SandboxExhausted("the container takes no further process; it is at its limit of processes")
        try:
            began = frames.parse_start(line)
        except frames.BadFrame:
            await self._take_back(channel, tag)
            raise CommandBroken("The beginning of a command") from None
        if self._logins and login is not None and began.login != login.name:
            self._logins.changed(login)
        terminal = request.pty is not None
        return ChannelProcess(
            channel,
            StartedCommand(nonce, tag, began.pid, began.tick, began.last),
            first,
            errors,
            ChannelMode(self._shared and not terminal, not request.stdin, terminal, request.timeout_s),
            self._clock,
            self,
        )

    async def _know(self, user: str) -> None:
        name, _, group = user.partition(":")
        is_number = name.isascii() and name.isdigit()
        if is_number and (len(name) > len(_LAST_ID) or int(name) > int(_LAST_ID)):
            raise UnknownUser(f"no sandbox has a user {name[:20]}; the largest user id is {_LAST_ID}")
        if user in self._known or (is_number and not group):
            return
        if "known" not in await self._control("__sb_who", name, group, within_s=_ANSWER_S):
            raise UnknownUser(f"the sandbox has no user {user}; make it first, or name one of /etc/passwd")
        self._known.add(user)

    # ---- channels

    async def _new(self, user: str, *, terminal_request: str | None = None) -> ExecChannel:
        if len(self._open) >= _MOST:
            raise SandboxExhausted(f"{_MOST} commands run in the sandbox; wait for one to end")
        channel = await ExecChannel.open(self._container, user, terminal_request=terminal_request)
        self._open.add(channel)
        return channel

    def _take(self, user: str) -> ExecChannel | None:
        parked = self._parked.get(user)
        if not parked:
            return None
        channel = parked.pop()
        if channel.idle is not None:
            channel.idle.cancel()
            channel.idle = None
        return channel

    def give_back(self, channel: ExecChannel) -> None:
        """See `command.Channels`."""
        parked = self._parked.setdefault(channel.user, [])
        if not self._shared or len(parked) >= _PARKED or channel not in self._open:
            self.drop(channel)
            return
        parked.append(channel)
        channel.idle = asyncio.get_running_loop().call_later(_IDLE_S, self.drop, channel)

    def drop(self, channel: ExecChannel) -> None:
        """See `command.Channels`."""
        self._open.discard(channel)
        parked = self._parked.get(channel.user, [])
        if channel in parked:
            parked.remove(channel)
        channel.close()

    async def _control(self, function: str, *words: str, within_s: float) -> list[str]:
        """Have a channel of root run `function`, which does not fork; return the words of its answer.

        Raises:
            SandboxLost, SandboxExhausted: no channel could be opened.
        """
        for _ in range(_PARKED + 2):
            parked = self._take(_ROOT) if self._shared else None
            channel = parked or await self._new(_ROOT)
            nonce = secrets.token_hex(16)
            try:
                async with asyncio.timeout(within_s):
                    answer, _, _ = await channel.ask(nonce, shlex.join([function, nonce, *words]))
            except (ChannelEnded, ChannelFlooded, TimeoutError):
                self.drop(channel)
                if parked is None:
                    await self._refused()
            except BaseException:
                self.drop(channel)
                raise
            else:
                self.give_back(channel)
                return answer.split()
        raise SandboxExhausted(
            "the container's channels end as soon as they are opened; its processes are being killed"
        )

    async def _refused(self) -> NoReturn:
        """Raise the reason why a new channel did not answer; the engine may note a container's end late."""
        for _ in range(_END_TRIES):
            if not (await self._container.state()).running:
                raise SandboxLost(f"the container {self._container.id[:12]} is not running")
            await asyncio.sleep(0.02)
        raise SandboxExhausted(
            "the container takes no further command: it is at its limit of processes or memory, or a process in it ends"
            " what would run the command"
        )

    async def signal(self, begun: StartedCommand, number: int) -> bool:
        """See `command.Channels`."""
        return await self._control("__sb_signal", begun.tag, str(begun.pid), str(number), within_s=_ANSWER_S) == [
            "sent"
        ]

    # ---- the end of a channel that became its command

    async def status(self, channel: ExecChannel) -> int:
        """See `command.Channels`."""
        pauses = itertools.chain(_EXIT_CODE_PAUSES, itertools.repeat(0.02))
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _EXIT_CODE_S
        while loop.time() < deadline:
            code = await channel.exec_stream.exit_code()
            if code in (_KILLED, _NOT_STARTED):
                await self._still_sound()
            if code is not None:
                return code
            await asyncio.sleep(next(pauses))
        raise SandboxLost("a command's output ended but its process did not; the container is broken")

    async def _still_sound(self) -> None:
        """Check that the container still works, because the engine may report a command's end before the container's.

        Raises:
            SandboxLost: the container has ended. SandboxExhausted: it runs but can take no further process.
        """
        probe = await self._container.exec(["true"], user=_ROOT)
        try:
            # what runs in the container may have put anything in place of `true`
            with suppress(TimeoutError):
                async with asyncio.timeout(_ANSWER_S):
                    while await probe.receive() is not None:
                        pass
                    if await probe.exit_code() == 0:
                        return
        finally:
            probe.close()
        await self._refused()


def _tag() -> str:
    """A unique value for RLIMIT_LOCKS; its 18 digits differ from every other number in /proc/PID/limits."""
    return str(10**17 + secrets.randbelow(9 * 10**17))
