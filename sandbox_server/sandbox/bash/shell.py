"""The persistent bash of a container, on its terminal: an action is one write to and one read from a stream.

boot.bash (the container's main process) keeps a shell alive and kills processes on a signal; rc.bash (the shell's
start file) prints marks around every action. Known limits: a policy that kills the sweeper and then ignores SIGINT
causes a restart of its container; output printed while no server is attached is lost, or waits if it goes through
FIFOs; the last output before `kill -9 -1` is lost with the process that holds the terminal there; an action's text runs
in the shell that reports its end, so it can make its own end appear early or wrong, but never another action's.
"""

import asyncio
import math
import secrets
import time
from collections.abc import Awaitable, Callable

from sandbox_server.errors import EngineUnavailable, SandboxLost
from sandbox_server.sandbox.base import ShellOutcome, ShellResult
from sandbox_server.sandbox.bash.lines import lines_of, quote
from sandbox_server.sandbox.bash.marks import READY_NONCE, Begin, End, Mark, Notice, Prompt
from sandbox_server.sandbox.bash.terminal import Terminal
from sandbox_server.sandbox.bash.turn import KEEP_BYTES, Turn, set_within, without_shell_lines
from sandbox_server.sandbox.collector import Collector

_TERMINAL_HOLDS = 4095  # bytes of input that the kernel buffers for a reader
_SIGINT_GRACE_S = 1.5  # for each of two SIGINTs
_SWEEP_S = 5.0  # for one sweep of up to some thousand processes
_AFTER_SWEEP_S = 1.0  # for the shell to answer once its children are gone
_READY_S = 60.0  # for a shell's start file; activating an environment takes seconds on a busy host
_NOTICE_S = 0.5  # from an action's end to the prompt
_UNPROMPTED_S = 0.02  # after an end without a prompt, because the shell's stderr is redirected
_AT_ONCE = 1 << 17  # characters of a command that are encoded on the event loop; longer ones on a thread
_ANY = ""  # nonce of a turn started by a previous server
_RESET_TERMINAL = b"stty sane -echo cols 200 rows 50 2>/dev/null\n"


class BashShell:
    """Implements `sandbox.base.Shell` with a terminal and callbacks of the sandbox."""

    def __init__(
        self,
        *,
        open_terminal: Callable[["BashShell"], Awaitable[Terminal]],
        signal: Callable[[str], Awaitable[None]],
        restart: Callable[["BashShell"], Awaitable[tuple[Terminal, bool]]],
        check: Callable[[], Awaitable[None]],
    ) -> None:
        """`restart` starts the container again and returns its new terminal and whether it had run out of memory.
        `check` raises SandboxPaused: it is frozen.
        """
        self._open_terminal = open_terminal
        self._signal = signal
        self._restart = restart
        self._check = check
        self._terminal: Terminal | None = None
        self._turn: Turn | None = None
        self._ready = asyncio.Event()
        self._swept = asyncio.Event()
        self._prompt_seen = asyncio.Event()
        self._unclean = False
        self._reviving: asyncio.Task[bool] | None = None
        self._cwd = ""
        self.user = "root"
        self.python = ""

    # ---- input from the terminal

    def received(self, data: bytes, mark: Mark | None) -> None:
        """Handle what the terminal sent: a mark, or a piece of output if `mark` is None."""
        turn = self._turn
        match mark:
            case None if turn is not None and turn.begun:
                turn.output.add(data)
            case None if b"__sb_b" in data:
                self._unclean = True  # our own input line is echoed: somebody switched echo on
            case Begin(nonce) if turn is not None and nonce == turn.nonce:
                turn.begun, turn.input = True, b""
            case End():
                self._ended(mark, turn)
            case Prompt():
                self._prompted(mark, turn)
            case Notice(("swept", *_)):
                self._swept.set()
            case Notice(("end", status)):
                self._ready.clear()
                if turn is not None and turn.begun:
                    turn.shell_status = int(status)
                elif turn is not None:
                    turn.replaced = True

    def _prompted(self, prompt: Prompt, turn: Turn | None) -> None:
        self._prompt_seen.set()
        self.user = prompt.user or self.user
        if prompt.nonce == READY_NONCE:
            self._ready.set()
            if turn is not None and turn.replaced and not turn.stopping and self._terminal and self._terminal.direct:
                self._write(turn.input)  # what the previous shell had not read is discarded with its terminal
        # inside an open quote, the prompt seen is still that of the previous action
        # only boot.bash can report that a shell ended; then the first prompt of the new shell ends the action
        if turn is not None and (
            turn.end is not None
            or (
                prompt.nonce == READY_NONCE
                and (turn.shell_status is not None or (turn.stopping and turn.replaced and not turn.begun))
            )
        ):
            turn.done.set()
            if turn.no_prompt is not None:
                turn.no_prompt.cancel()

    def _ended(self, end: End, turn: Turn | None) -> None:
        mine = turn is not None and turn.nonce in (_ANY, end.nonce)
        if mine or (end.nonce == READY_NONCE and not self._ready.is_set()):  # of a new shell
            self._cwd, self.python = end.cwd, end.python
        if turn is None or not mine:
            return
        # the last mark counts: an action can print one itself, because its shell knows the nonce, and go on
        turn.end = end
        if turn.no_prompt is not None:
            turn.no_prompt.cancel()
        if not end.closed:
            # no prompt follows if the policy made PS1 read-only
            wait_s = _NOTICE_S if end.prompt_follows else _UNPROMPTED_S
            turn.no_prompt = asyncio.get_running_loop().call_later(wait_s, turn.done.set)

    def disconnected(self) -> None:
        """The terminal's stream ended: the container or the daemon stopped."""
        self._terminal = None
        self._ready.set()  # a caller waiting for a shell then checks the terminal
        if self._turn is not None:
            self._turn.lost = True
            self._turn.done.set()

    # ---- Shell

    @property
    def running(self) -> bool:
        """A soft timeout left a command running, and its end has not been returned yet."""
        return self._turn is not None and self._turn.left_running

    @property
    def cwd(self) -> str:
        """The shell's working directory; "" before the first command after `attach`."""
        return self._cwd

    async def start(self, terminal: Terminal) -> None:
        """Wait until the first shell of a new container is ready.

        Raises:
            SandboxLost: no shell within 60 s, or the container ended.
        """
        self._terminal = _open_or_none(terminal)
        await self._wait_ready()

    async def run(
        self, command: str, *, timeout_s: float, soft_timeout_s: float | None = None, since_mark: bool = True
    ) -> ShellResult:
        """See `sandbox.base.Shell.run`. If the caller is cancelled, the command goes on until the next `run`."""
        if self.running:
            raise RuntimeError("a command is still running in this shell; poll, send or interrupt")
        return await self._run(command, Collector(KEEP_BYTES), timeout_s, soft_timeout_s, set_mark=since_mark)

    async def _run(
        self, command: str, output: Collector, timeout_s: float, soft_timeout_s: float | None, *, set_mark: bool
    ) -> ShellResult:
        nonce, lines = secrets.token_hex(8), None
        if len(command) > _AT_ONCE:  # 4 MB would block the event loop for 0.3 s
            lines = await asyncio.to_thread(lines_of, command, nonce, set_mark=set_mark)
        revived = await self._connect()
        left = self._turn
        if left is not None and not left.done.is_set():
            await self._stop(left)
        turn = self._turn = Turn(nonce, output, restarted=revived)
        self._submit(turn, command, set_mark=set_mark, lines=lines)
        limit = timeout_s if soft_timeout_s is None else min(soft_timeout_s, timeout_s)
        if await set_within(turn.done, limit):
            if turn.lost and not turn.begun:
                # the previous action was killing everything (kill -9 -1) when this one was written: it never ran
                await self._begin_again()
                turn = self._turn = Turn(secrets.token_hex(8), output, restarted=True)
                self._submit(turn, command, set_mark=True)
                await set_within(turn.done, limit)
            if turn.done.is_set():
                return await self._finish(turn, ShellOutcome.FINISHED)
        if soft_timeout_s is not None and soft_timeout_s < timeout_s:
            turn.left_running = True
            return self._result(turn, ShellOutcome.RUNNING, -1)
        return await self._stop(turn)

    async def poll(self, *, wait_s: float) -> ShellResult:
        """See `sandbox.base.Shell.poll`."""
        turn = self._current()
        if await set_within(turn.done, wait_s):
            return await self._finish(turn, ShellOutcome.FINISHED)
        return self._result(turn, ShellOutcome.RUNNING, -1)

    async def send(self, text: str, *, wait_s: float) -> ShellResult:
        """See `sandbox.base.Shell.send`."""
        turn = self._current()
        if turn.done.is_set():
            if turn.lost or turn.shell_status is not None:
                return await self._finish(turn, ShellOutcome.FINISHED)
            # the command has ended without its caller knowing: the text is a new command
            return await self._run(text, turn.output, math.inf, wait_s, set_mark=True)
        data = text.encode("utf-8", "replace") + b"\n"
        turn.typed += len(data)
        self._write(data)
        return await self.poll(wait_s=wait_s)

    async def interrupt(self, *, wait_s: float) -> ShellResult:
        """See `sandbox.base.Shell.interrupt`."""
        turn = self._current()
        if turn.done.is_set():
            return await self._finish(turn, ShellOutcome.FINISHED)
        self._write(b"\x03")
        if await set_within(turn.done, wait_s):
            return await self._finish(turn, ShellOutcome.INTERRUPTED)
        return await self._stop(turn)

    async def answers(self, *, within_s: float) -> bool:
        """See `sandbox.base.Shell.answers`."""
        if await self._connect():
            return False
        self._prompt_seen.clear()
        self._write(b"\n")
        return await set_within(self._prompt_seen, within_s) and self._terminal is not None

    async def settle(self, *, wait_s: float) -> ShellResult | None:
        """After a reattachment, wait for a command that the previous server left running, then stop it.

        Returns None if the shell was idle, RESTARTED if the container had stopped. Sends a line feed, which makes an
        idle shell print its prompt; a running command may read it as an empty line of input.
        """
        turn = Turn(_ANY, begun=True)
        self._turn = turn  # before the stream is open: FIFOs hold what was printed in between, the command's end too
        self._prompt_seen.clear()
        turn.restarted = revived = await self._connect()
        self._turn = turn
        if turn.end is not None:
            await set_within(turn.done, _NOTICE_S)
            return await self._finish(turn, ShellOutcome.FINISHED)
        self._prompt_seen.clear()
        self._write(b"\n")
        if await set_within(self._prompt_seen, min(_NOTICE_S, wait_s)) and turn.end is None and not turn.lost:
            self._turn = None
            # find out cwd and user, which only the previous server knew
            await self._run(":", Collector(KEEP_BYTES), _READY_S, None, set_mark=False)
            return self._result(turn, ShellOutcome.RESTARTED, 137) if revived else None
        if await set_within(self._prompt_seen, wait_s):
            return await self._finish(turn, ShellOutcome.FINISHED)
        return await self._stop(turn, arrived=self._prompt_seen)

    async def restart(self) -> None:
        """Start the container again, whatever is running in it."""
        self._turn = None
        await self._begin_again()

    def close(self) -> None:
        """Close the stream; the shell lives on."""
        if self._terminal is not None:
            self._terminal.close()

    # ---- stopping a command

    async def _stop(self, turn: Turn, *, arrived: asyncio.Event | None = None) -> ShellResult:
        """Send SIGINT twice, then kill its processes, then the shell, then restart the container, until the shell
        answers.

        `arrived` is set when the shell answers; for a turn started by another server, at any prompt.
        Raises SandboxPaused: the container is frozen, so the command is not to blame; the next `run` stops it.
        """
        await self._check()
        arrived = arrived or turn.done
        turn.stopping = True
        outcome = ShellOutcome.INTERRUPTED
        for _ in range(2):
            self._write(b"\x03")
            if await set_within(arrived, _SIGINT_GRACE_S):
                break
        else:
            outcome = ShellOutcome.KILLED
            if turn.typed > _TERMINAL_HOLDS:
                # SIGINT may be queued behind unread input, which a new shell would execute
                return await self._revive(turn)
        # also after a successful SIGINT: kills processes that escaped it by setsid or a double fork
        await self._sweep("USR1")
        if not await set_within(arrived, _AFTER_SWEEP_S):
            await self._sweep("USR2")
            if not await set_within(arrived, _READY_S / 4) and not turn.lost:
                return await self._revive(turn)
        return await self._finish(turn, outcome)

    async def _sweep(self, signal: str) -> None:
        self._swept.clear()
        try:
            await self._signal(signal)
        except SandboxLost:
            return  # the end of the stream reports the same, with the remaining output
        await set_within(self._swept, _SWEEP_S)

    async def _finish(self, turn: Turn, outcome: ShellOutcome) -> ShellResult:
        if turn.lost:
            return await self._revive(turn)
        self._turn = None
        if turn.shell_status is not None:
            turn.replaced = True
            if outcome is ShellOutcome.FINISHED and turn.end is None:
                return self._result(turn, ShellOutcome.SHELL_ENDED, turn.shell_status)
        return self._result(turn, outcome, turn.exit_code(outcome))

    async def _revive(self, turn: Turn) -> ShellResult:
        """No process is left or nothing answers: start the same container again; its files are kept."""
        oom = await self._begin_again()
        turn.restarted = True
        return self._result(turn, ShellOutcome.RESTARTED, 137, oom=oom)

    async def _begin_again(self) -> bool:
        # shielded from the caller's cancellation, which would leave the container half started; the next caller joins
        # it
        if self._reviving is None:
            self._reviving = asyncio.create_task(self._start_again())
        task = self._reviving
        try:
            return await asyncio.shield(task)
        finally:
            if task.done():
                self._reviving = None

    async def _start_again(self) -> bool:
        self._turn = None
        cwd = self._cwd
        if self._terminal is not None:
            self._terminal.close()
            self._terminal = None
        self._ready.clear()
        terminal, oom = await self._restart(self)
        self._terminal = _open_or_none(terminal)
        await self._wait_ready()
        if cwd and cwd != self._cwd:
            turn = self._turn = Turn(secrets.token_hex(8))
            self._submit(turn, f"cd -- {quote(cwd)} 2>/dev/null", set_mark=True)
            await set_within(turn.done, _READY_S)
            self._turn = None
        return oom

    async def _connect(self) -> bool:
        """Make sure of a terminal and a shell that reads it; True if the container had to be started again."""
        if self._reviving is not None:
            await self._begin_again()
            return True
        if self._terminal is None:
            try:
                self._terminal = _open_or_none(await self._open_terminal(self))
                self._ready.set()
            except SandboxLost:
                pass
            if self._terminal is None:
                await self._begin_again()
                return True
        elif not self._ready.is_set():
            await self._wait_ready()
        return False

    async def _wait_ready(self) -> None:
        if not await set_within(self._ready, _READY_S):
            raise EngineUnavailable(f"no shell answered within {_READY_S:g} s; is the host overloaded?")
        if self._terminal is None:
            raise SandboxLost("the container ended before its shell was ready; does the image have bash?")

    def _submit(self, turn: Turn, command: str, *, set_mark: bool, lines: list[bytes] | None = None) -> None:
        """Write `command` to the terminal. `lines`: its `lines_of`, if the caller has them already."""
        if self._unclean:
            self._write(_RESET_TERMINAL)
            self._unclean = False
        turn.input = b"".join(lines or lines_of(command, turn.nonce, set_mark=set_mark))
        self._write(turn.input)

    def _current(self) -> Turn:
        if self._turn is None:
            raise RuntimeError("no command is running in this shell")
        return self._turn

    def _write(self, data: bytes) -> None:
        if self._terminal is not None:
            self._terminal.write(data)

    def _result(self, turn: Turn, outcome: ShellOutcome, exit_code: int, *, oom: bool = False) -> ShellResult:
        output = turn.output.take()
        last = output.tail or output.head
        if b"\n" in last.replace(b"\r\n", b""):
            self._unclean = True  # bare line feeds: a program left the terminal in raw mode
        return ShellResult(
            output=without_shell_lines(output),
            outcome=outcome,
            exit_code=exit_code,
            cwd=self._cwd,
            user=self.user,
            python=self.python,
            duration_s=time.monotonic() - turn.started,
            shell_replaced=turn.replaced or turn.restarted,
            restarted=turn.restarted,
            oom_killed=oom,
        )


def _open_or_none(terminal: Terminal) -> Terminal | None:
    """None if it ended before the shell had it: `disconnected` was called too early to be noticed later."""
    return terminal if terminal.is_open else None
