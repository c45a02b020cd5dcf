"""One scripted rollout: appends numbered lines to a file of the repository, then applies the fix.

The shell's directory and environment are checked too: every action must print a mark that contains both.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from sandbox_client.client import SandboxClient
from sandbox_client.errors import SandboxError

from bench.samples import EXAMPLES
from bench.trainer import bash

T = TypeVar("T")

LINES = 7
"""Numbered lines per rollout; with the fix, the look at the file and the clean-up about ten actions."""
SLOW_LINE = 4
"""This one takes a second, so that there is an action to interrupt."""
LOG = "/testbed/chaos.log"
_TRIES = 15
"""Tries per action that was reported as not done, or possibly not done."""
_PAUSE_S = 1.0
_REWARD_ASKS = 8
"""`infra` is graded again at the next request, so a trainer with time asks again."""
_REWARD_PAUSE_S = 3.0
TERMINAL = frozenset({"sandbox_lost", "session_ended", "unknown_session"})
"""Codes after which no action of the session can run."""
_INTERRUPTED = "interrupted during the previous action"
_FULL = ("No space left on device", "Out of diskspace")
"""The kernel's and git's messages."""
_NEW_SHELL = "A new shell was started"
_RESTORED = "sandbox was restored on another"
_DIFFERENT = "not all ended as before"

Ending = Literal["gold", "wrong", "none"]
EXPECTED: dict[Ending, str] = {"gold": "resolved", "wrong": "unresolved", "none": "empty_patch"}
Phase = Literal["start", "act", "finish", "reward", "over"]


class Gave(Exception):
    """The rollout cannot continue, and the service said so."""


@dataclass(slots=True)
class Acked:
    """An acknowledged action."""

    content: str
    observation: str
    at: float
    """Monotonic time."""


@dataclass(slots=True)
class Rollout:
    """The record of one rollout: the responses and their times."""

    number: int
    tag: str
    sample: str
    ending: Ending
    began: float
    sid: str = ""
    node: str = ""
    """The session's node soon after its start."""
    phase: Phase = "start"
    since: float = 0.0
    """Monotonic time at which the current call was sent."""
    slow: bool = False
    """The current call is the slow action."""
    acked: list[Acked] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    """Numbers of the lines that are certainly in the file, in order."""
    fixed: bool = False
    restored: bool = False
    different: bool = False
    """The service reported that not every replayed action ended as before: a line may be there twice."""
    interrupted: int = 0
    """Actions answered with a notice of an interruption, a new shell or a full disk instead of their own output."""
    errors: dict[str, int] = field(default_factory=dict)
    """Error codes of actions -> count."""
    new_shell: bool = False
    """The service just reported a new shell, so the rollout must set up its state again."""
    terminal: bool = False
    """The service reported that the session can run nothing any more."""
    gave_up: str = ""
    """Why the rollout ended early, as the service reported it."""
    verdict: str = ""
    mask: bool = False
    reward: float = 0.0
    cause: str = ""
    wrong: list[str] = field(default_factory=list)
    """Responses that a correct service never gives."""
    longest_s: float = 0.0
    ended: float = 0.0

    @property
    def over(self) -> bool:
        return self.phase == "over"

    @property
    def finished(self) -> bool:
        """It got the verdict of its own work."""
        return self.over and not self.gave_up and not self.mask

    @property
    def failed_honestly(self) -> bool:
        """It got no verdict of its own work, and was told so."""
        return self.over and (bool(self.gave_up) or self.mask)


class Player:
    """Plays one rollout; every call goes through `_timed`, which records the current call and its start."""

    def __init__(self, client: SandboxClient, instance_id: str, rollout: Rollout, moved: Callable[[], None]) -> None:
        """`moved` is called whenever a request was sent or answered."""
        self._client = client
        self._instance_id = instance_id
        self._it = rollout
        self._moved = moved
        self._state = f"cd /tmp; export CHAOS_TAG={rollout.tag}"

    async def play(self) -> None:
        """Play from the start to the reward; failures are recorded, never raised."""
        it = self._it
        try:
            it.sid = await self._timed("start", lambda: self._client.start(self._instance_id))
            await self._work()
        except Gave as end:
            it.gave_up = str(end)
        except SandboxError as error:
            it.gave_up = f"{it.phase}: {type(error).__name__} {error.code}: {error.detail}"[:300]
        if it.sid:
            await self._end()
        it.phase, it.ended, it.since = "over", time.monotonic(), 0.0
        self._moved()

    async def _end(self) -> None:
        """End the session as a trainer does, also after a failed action."""
        it = self._it
        try:
            await self._timed("finish", lambda: self._client.finish(it.sid))
            for ask in range(_REWARD_ASKS):
                if ask:
                    await asyncio.sleep(_REWARD_PAUSE_S)
                got = await self._timed("reward", lambda: self._client.reward(it.sid))
                it.verdict, it.mask, it.reward, it.cause = got.verdict, got.mask, got.reward, got.cause
                if not got.mask or it.gave_up:
                    break
        except SandboxError as error:
            it.mask = True  # a trainer without an answer leaves the sample out
            it.gave_up = it.gave_up or f"{it.phase}: {type(error).__name__} {error.code}: {error.detail}"[:300]

    async def _work(self) -> None:
        it = self._it
        for number in range(1, LINES + 1):
            await self._line(number)
        if it.ending != "none":
            patch = (EXAMPLES / it.sample / f"{it.ending}.patch").read_text()
            # idempotent, in case it is interrupted half-way
            again = "git -C /testbed checkout -q -- . && git -C /testbed apply -"
            await self._until_done(
                f"{again} <<'END_OF_PATCH' && echo applied-$((3+4))\n{patch}END_OF_PATCH", "applied-7"
            )
        it.fixed = True
        seen = await self._until_done(f"cat {LOG} && echo end-$((5+6))", "end-11")
        if (found := without_repeats(numbers(seen, it.tag), it)) != it.lines:
            it.wrong.append(f"the file has lines {found}, but {it.lines} were acknowledged")
        if it.ending == "none":
            await self._until_done(f"rm -f {LOG} && echo gone-$((5+6))", "gone-11")

    async def _line(self, number: int) -> None:
        """Append line `number` exactly once: after an unacknowledged try, first check whether it is there."""
        it = self._it
        first = f"{self._state}; " if number == 1 else ""
        slow = "sleep 1; " if number == SLOW_LINE else ""
        mark = f"kept-{it.tag}-{number}-/tmp"
        say = f'echo "kept-$CHAOS_TAG-{number}-$PWD"'
        for attempt in range(_TRIES):
            if attempt:
                count = f'cat {LOG} 2>/dev/null | grep -cx "$CHAOS_TAG {number}"'
                look = f'{first}echo "found-$({count})-$PWD-$CHAOS_TAG" # look {attempt}'
                seen = await self._say(look, f"-/tmp-{it.tag}")
                if seen is None:
                    continue
                if f"found-0-/tmp-{it.tag}" not in seen:
                    if f"found-1-/tmp-{it.tag}" not in seen and not it.different:
                        it.wrong.append(f"line {number} after an action that was not acknowledged: {seen[-200:]!r}")
                    it.lines.append(number)
                    return
            it.slow = number == SLOW_LINE
            command = f'{first}{slow}echo "$CHAOS_TAG {number}" >> {LOG} && {say} # try {attempt}'
            seen = await self._say(command, mark)
            it.slow = False
            if seen is not None:
                it.lines.append(number)
                return
        raise Gave(f"line {number} was not acknowledged in {_TRIES} tries: {it.errors}")

    async def _until_done(self, command: str, mark: str) -> str:
        """Send `command`, which may run twice, until an observation has `mark`; return that observation."""
        for attempt in range(_TRIES):
            if (seen := await self._say(f": {attempt}; {command}", mark)) is not None:
                return seen
        raise Gave(f"an action was not acknowledged in {_TRIES} tries: {self._it.errors}")

    async def _say(self, command: str, mark: str) -> str | None:
        """The observation if it has `mark`; None if the action was reported as not, or possibly not, done.

        A response without `mark`, without an error and without an explanation is wrong.
        """
        it = self._it
        content = bash(f"{self._state}; {command}" if it.new_shell else command)
        it.new_shell = False
        got = await self._timed("act", lambda: self._client.act(it.sid, content))
        if _RESTORED in got.content:
            it.restored = True
            it.different = it.different or _DIFFERENT in got.content
        if got.error is not None:
            it.errors[got.error.code] = it.errors.get(got.error.code, 0) + 1
            if got.error.code in TERMINAL:
                it.terminal = True
                raise Gave(f"{got.error.code}: {got.content}"[:300])
            await asyncio.sleep(_PAUSE_S)
            return None
        it.acked.append(Acked(content, got.content, time.monotonic()))
        it.new_shell = _NEW_SHELL in got.content
        if mark in got.content:
            return got.content
        if any(words in got.content for words in _FULL):
            it.interrupted += 1
            await asyncio.sleep(_PAUSE_S)  # until somebody frees space
        elif it.new_shell or _INTERRUPTED in got.content:
            it.interrupted += 1
        else:
            it.wrong.append(f"{command[:120]!r} was answered {got.content[-300:]!r}")
        return None

    async def _timed(self, phase: Phase, call: Callable[[], Awaitable[T]]) -> T:
        it = self._it
        it.phase, it.since = phase, time.monotonic()
        self._moved()
        try:
            return await call()
        finally:
            it.longest_s = max(it.longest_s, time.monotonic() - it.since)
            self._moved()


def without_repeats(found: list[int], rollout: Rollout) -> list[int]:
    """`found` without repetitions, if the rollout was told that there may be some."""
    return list(dict.fromkeys(found)) if rollout.different else found


def numbers(text: str, tag: str) -> list[int]:
    """The numbered lines of `tag` in a file, an observation or a diff, in order."""
    return [int(number) for number in re.findall(rf"^\+?{tag} (\d+)\s*$", text, re.MULTILINE)]
