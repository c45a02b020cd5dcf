"""The persistent bash of a container, on its terminal: an action is a write and a read on one stream.

boot.bash (the container's main process) keeps a shell alive and sweeps processes when signalled; rc.bash (the
shell's start file) sets marks around every action. Knowingly imperfect: a policy that kills the sweeper and then
ignores SIGINT costs itself a restart of the container; output shown while no server was attached is lost. An action's
text runs in the very shell that tells its end, so it can have its own end told early or wrongly, never another's.
"""

import asyncio
import math
import re
import secrets
import time
from collections.abc import Awaitable, Callable

from sandbox_server.errors import EngineUnavailable, SandboxLost
from sandbox_server.sandbox.base import Output, ShellOutcome, ShellResult
from sandbox_server.sandbox.bash.lines import lines_of, quote
from sandbox_server.sandbox.bash.marks import READY_NONCE, Begin, End, Mark, Notice, Prompt
from sandbox_server.sandbox.bash.terminal import Terminal
from sandbox_server.sandbox.bash.turn import KEEP_BYTES, Turn, set_within
from sandbox_server.sandbox.collector import Collector

_TERMINAL_HOLDS = 4095  # bytes of input that the kernel keeps for a reader
_SIGINT_GRACE_S = 1.5  # for each of two SIGINTs
_SWEEP_S = 5.0  # for one sweep of up to some thousand processes
_AFTER_SWEEP_S = 1.0  # for the shell to come back once its children are gone
_READY_S = 60.0  # for a shell's start file; activation of an environment takes seconds on a busy host
_NOTICE_S = 0.5  # from an action's end to the prompt
_UNPROMPTED_S = 0.02  # after an end that no prompt follows, for its shell's stderr leads elsewhere
# what `set -x` and `set -v` show of our prompt command, and what the loop's bash says of a killed shell
_OURS = re.compile(rb'[^\r\n]*(?:__sb_p (?:\d+|"\$\?")|bash --noediting --rcfile \$D/rc -i(?: \(core dumped\))?)\r\n')
_AT_ONCE = 1 << 17  # characters of a command
_ANY = ""  # nonce of a turn that a former server wrote
_RESET_TERMINAL = b"stty sane -echo cols 200 rows 50 2>/dev/null\n"


class BashShell:
    """Implements `sandbox.base.Shell` over a terminal and the ways to act from outside that the sandbox gives it."""

    def __init__(
        self,
        *,
        open_terminal: Callable[["BashShell"], Awaitable[Terminal]],
        signal: Callable[[str], Awaitable[None]],
        restart: Callable[["BashShell"], Awaitable[tuple[Terminal, bool]]],
    ) -> None:
        """`restart` starts the container again: (its new terminal, whether memory had run out)."""
        self._open_terminal = open_terminal
        self._signal = signal
        self._restart = restart
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

    # ---- what the terminal tells us

    def received(self, data: bytes, mark: Mark | None) -> None:
        """One piece of output, or one mark."""
        turn = self._turn
        match mark:
            case None if turn is not None and turn.begun:
                turn.output.add(data)
            case None if b"__sb_b" in data:
                self._unclean = True  # we see our own line: somebody switched echo on
            case Begin(nonce) if turn is not None and nonce == turn.nonce:
                turn.begun = True
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
        # after an open quote the prompt is still the one of the action before
        # only the loop can say that a shell has ended, so that the first prompt of a new one ends the action
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
        if mine or (end.nonce == READY_NONCE and not self._ready.is_set()):  # of a shell that takes over
            self._cwd, self.python = end.cwd, end.python
        if turn is None or not mine:
            return
        # the last one counts: an action that prints a mark of its own, with the nonce that its shell knows, goes on
        turn.end = end
        if turn.no_prompt is not None:
            turn.no_prompt.cancel()
        if not end.closed:
            # the prompt does not follow when the policy made PS1 read-only
            wait_s = _NOTICE_S if end.prompt_follows else _UNPROMPTED_S
            turn.no_prompt = asyncio.get_running_loop().call_later(wait_s, turn.done.set)

    def disconnected(self) -> None:
        """The terminal's stream ended: the container stopped, or the daemon did."""
        self._terminal = None
        self._ready.set()  # whoever waits for a shell looks at the terminal then
        if self._turn is not None:
            self._turn.lost = True
            self._turn.done.set()

    # ---- Shell

    @property
    def running(self) -> bool:
        """A command was left running by a soft timeout, and its end was not told yet."""
        return self._turn is not None and self._turn.left_running

    @property
    def cwd(self) -> str:
        """Where the shell stands; "" before its first command after `attach`."""
        return self._cwd

    async def start(self, terminal: Terminal) -> None:
        """Wait until the first shell of a new container is ready.

        Raises:
            SandboxLost: it did not come within a minute, or the container ended.
        """
        self._terminal = terminal
        await self._wait_ready()

    async def run(
        self, command: str, *, timeout_s: float, soft_timeout_s: float | None = None, since_mark: bool = True
    ) -> ShellResult:
        """See `sandbox.base.Shell.run`. When the caller is cancelled, the command goes on until the next `run`."""
        if self.running:
            raise RuntimeError("a command is still running in this shell; poll, send or interrupt")
        return await self._run(command, Collector(KEEP_BYTES), timeout_s, soft_timeout_s, set_mark=since_mark)

    async def _run(
        self, command: str, output: Collector, timeout_s: float, soft_timeout_s: float | None, *, set_mark: bool
    ) -> ShellResult:
        nonce, lines = secrets.token_hex(8), None
        if len(command) > _AT_ONCE:  # 4 MB would keep the event loop for 0.3 s
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
                # everything was dying when it was written (kill -9 -1 in the action before): it never ran
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
            # it has ended meanwhile, unseen by whoever typed: what was typed is a command
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

    async def settle(self, *, wait_s: float) -> ShellResult | None:
        """After a reattachment: wait for a command that the former server left in flight, then stop it.

        None when the shell was idle; RESTARTED when the container had stopped. A line feed makes an idle shell show
        its prompt; a command in flight may read it as an empty line of input.
        """
        revived = await self._connect()
        turn = self._turn = Turn(_ANY, begun=True, restarted=revived)
        self._prompt_seen.clear()
        self._write(b"\n")
        if await set_within(self._prompt_seen, min(_NOTICE_S, wait_s)) and turn.end is None and not turn.lost:
            self._turn = None
            # where it stands, which the former server knew
            await self._run(":", Collector(KEEP_BYTES), _READY_S, None, set_mark=False)
            return self._result(turn, ShellOutcome.RESTARTED, 137) if revived else None
        if await set_within(self._prompt_seen, wait_s):
            return await self._finish(turn, ShellOutcome.FINISHED)
        return await self._stop(turn, arrived=self._prompt_seen)

    async def restart(self) -> None:
        """Start the container again, whatever runs in it."""
        self._turn = None
        await self._begin_again()

    def close(self) -> None:
        """Let go of the stream; the shell lives on."""
        if self._terminal is not None:
            self._terminal.close()

    # ---- the ways a command ends

    async def _stop(self, turn: Turn, *, arrived: asyncio.Event | None = None) -> ShellResult:
        """SIGINT twice, then kill its processes, then the shell, then restart the container: until the shell answers.

        `arrived` is what says that it answers; for a turn that this server did not write, any prompt.
        """
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
                # SIGINT may wait behind text that nobody reads, and a new shell would run that text
                return await self._revive(turn)
        # also after a SIGINT that worked: what escaped it by setsid or a double fork goes here
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
            return  # the stream's end tells the same, with the rest of the output
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
        """All processes are gone, or nothing answers: start the same container again; its files are kept."""
        oom = await self._begin_again()
        turn.restarted = True
        return self._result(turn, ShellOutcome.RESTARTED, 137, oom=oom)

    async def _begin_again(self) -> bool:
        # a restart goes on when its caller is cancelled, else a container would be left half started; the next joins
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
        self._terminal, oom = await self._restart(self)
        await self._wait_ready()
        if cwd and cwd != self._cwd:
            turn = self._turn = Turn(secrets.token_hex(8))
            self._submit(turn, f"cd -- {quote(cwd)} 2>/dev/null", set_mark=True)
            await set_within(turn.done, _READY_S)
            self._turn = None
        return oom

    async def _connect(self) -> bool:
        """Have a terminal and a shell that reads it; True when the container had to be started again."""
        if self._reviving is not None:
            await self._begin_again()
            return True
        if self._terminal is None:
            try:
                self._terminal = await self._open_terminal(self)
                self._ready.set()
            except SandboxLost:
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
        """Write it; `lines`: what `lines_of` gives for it, where that is known already."""
        if self._unclean:
            self._write(_RESET_TERMINAL)
            self._unclean = False
        self._write(b"".join(lines or lines_of(command, turn.nonce, set_mark=set_mark)))

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
        kept = last
        while _OURS.fullmatch(kept, line := kept.rfind(b"\n", 0, -1) + 1):
            kept = kept[:line]
        if len(kept) < len(last):
            output = Output(output.head, kept, output.dropped) if output.tail else Output(kept)
        return ShellResult(
            output=output,
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
