"""The state of one action on the terminal."""

import asyncio
import re
import time
from dataclasses import dataclass, field

from sandbox_server.sandbox.base import Output, ShellOutcome
from sandbox_server.sandbox.bash.marks import End
from sandbox_server.sandbox.collector import Collector

KEEP_BYTES = 1 << 18  # of an action's output; at most 30,000 characters of 4 bytes are shown

# what `set -x` and `set -v` print of our prompt command, and what boot.bash's bash prints about a killed shell
_OURS = re.compile(rb'[^\r\n]*(?:__sb_p (?:\d+|"\$\?")|bash --noediting --rcfile \$D/rc -i(?: \(core dumped\))?)\r\n')


@dataclass(slots=True)
class Turn:
    """One action on the terminal, from its write to the prompt after it."""

    nonce: str
    output: Collector = field(default_factory=lambda: Collector(KEEP_BYTES))
    input: bytes = b""
    """Its terminal lines, until it has begun."""
    begun: bool = False
    end: End | None = None
    shell_status: int | None = None
    """Exit status of the shell itself, if the action ended it."""
    replaced: bool = False
    """The previous shell ended before the action started; a new one ran it."""
    restarted: bool = False
    """All processes were killed, before or by the action; the container was started again."""
    lost: bool = False
    stopping: bool = False
    """It is being stopped. If it had not begun, its input was lost with the former shell."""
    typed: int = 0
    """Bytes of input sent to it."""
    left_running: bool = False
    """Its caller got the answer that it still runs. A turn that runs with False had its caller cancelled."""
    no_prompt: asyncio.TimerHandle | None = None
    done: asyncio.Event = field(default_factory=asyncio.Event)
    started: float = field(default_factory=time.monotonic)

    def exit_code(self, outcome: ShellOutcome) -> int:
        """The action's exit code under `outcome`; -1 if unknown."""
        if outcome is ShellOutcome.INTERRUPTED:
            return 130
        if outcome is ShellOutcome.KILLED:
            return 137
        return self.end.exit_code if self.end is not None else -1


def without_shell_lines(output: Output) -> Output:
    """An action's output without trailing lines that the shell itself printed."""
    last = output.tail or output.head
    kept = last
    while _OURS.fullmatch(kept, line := kept.rfind(b"\n", 0, -1) + 1):
        kept = kept[:line]
    if len(kept) == len(last):
        return output
    return Output(output.head, kept, output.dropped) if output.tail else Output(kept)


async def set_within(event: asyncio.Event, seconds: float) -> bool:
    """Wait at most `seconds` for `event`; return whether it is set."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return event.is_set()
    return True
