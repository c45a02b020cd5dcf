"""Interfaces from the policy's text to its observation: dialect (text -> Call), tool (Call -> Observation), profile."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sandbox_server.actions.batch import Batches, CommandResult
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.sandbox.base import Sandbox


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call, parsed and type-checked by the dialect."""

    tool: str
    arguments: Mapping[str, object]
    """A dialect with several calls per turn combines them into one Call, of `bash` or `calls`."""


@dataclass(frozen=True, slots=True)
class Say:
    """A reply of the dialect itself, such as a format error or a reminder; nothing is run."""

    text: str
    code: str
    """One word for the journal: no_call, unknown_tool, bad_parameter, ..."""
    is_talk: bool = False
    """Whether the policy wrote text without a tool call; counts towards `talk_turns`."""


@dataclass(frozen=True, slots=True)
class Observation:
    """A tool's result, as text in the chosen profile."""

    text: str
    exit_code: int | None = None
    timed_out: bool = False
    outcome: str = "finished"


def observed(text: str, results: Sequence[CommandResult]) -> Observation:
    """The observation of a batch. Exit code: the first that is not 0, or None if a command has none."""
    timed_out = any(result.timed_out for result in results)
    codes = [result.exit_code for result in results]
    exit_code = None if None in codes else next((code for code in codes if code), 0)
    return Observation(text, exit_code, timed_out, "killed" if timed_out else "finished")


class Dialect(Protocol):
    """A format for actions. Pure: no input raises an error or takes more than linear time."""

    name: str
    default_profile: str

    def parse(self, content: str, *, talk_turns: int) -> Call | Say:
        """Parse an action. `talk_turns`: number of earlier turns in this session without a call."""
        ...


class EditorHistory(Protocol):
    """The editor's undo stacks, one per path, stored outside the sandbox and the process."""

    async def push(self, path: str, text: str) -> None:
        """Push `text`, the state before an edit."""
        ...

    async def pop(self, path: str) -> str | None:
        """Remove and return the newest text; None if there is none."""
        ...


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Everything a tool may use."""

    sandbox: Sandbox
    instance: TaskInstance
    history: EditorHistory
    profile: str
    """`openhands-0.17` or `plain`."""
    command_timeout_s: float
    """Limit on the whole action."""
    soft_timeout_s: float | None
    """If set, a command running longer than this many seconds is left running instead of killed."""
    batches: Batches
    """Runs commands outside the shell, several at a time."""
    calls_in_order: bool = False
    """Run a turn's `bash` calls in the persistent shell too, one after another."""


class Tool(Protocol):
    """Runs one kind of call. What a policy can cause is an Observation; only the service's own faults raise."""

    name: str

    async def run(self, call: Call, context: ToolContext) -> Observation:
        """Run the call. Raises InfrastructureError only."""
        ...
