"""From what a policy writes to what it sees: dialect (text -> Call), tool (Call + Sandbox -> Observation), profile."""

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
    """Of a dialect that takes several calls in one turn they are together one Call, of `bash` or `calls`."""


@dataclass(frozen=True, slots=True)
class Say:
    """Nothing to run: the dialect answers the policy itself (a format error, a reminder)."""

    text: str
    code: str
    """One word for the journal: no_call, unknown_tool, bad_parameter, ..."""
    is_talk: bool = False
    """The policy spoke without calling a tool; counts towards `talk_turns`."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What a tool gives back, as text of the chosen profile."""

    text: str
    exit_code: int | None = None
    timed_out: bool = False
    outcome: str = "finished"


def observed(text: str, results: Sequence[CommandResult]) -> Observation:
    """The observation of a batch: the first exit code that is not 0, or None where a command has none."""
    timed_out = any(result.timed_out for result in results)
    codes = [result.exit_code for result in results]
    exit_code = None if None in codes else next((code for code in codes if code), 0)
    return Observation(text, exit_code, timed_out, "killed" if timed_out else "finished")


class Dialect(Protocol):
    """A way to write actions. Pure: no input raises, none costs more than linear time."""

    name: str
    default_profile: str

    def parse(self, content: str, *, talk_turns: int) -> Call | Say:
        """`talk_turns`: how often this session's policy has spoken without a call before."""
        ...


class EditorHistory(Protocol):
    """The editor's undo stacks, one a path, kept outside the sandbox and the process."""

    async def push(self, path: str, text: str) -> None:
        """Remember `text` as the state before an edit."""
        ...

    async def pop(self, path: str) -> str | None:
        """The newest remembered text, removed; None when there is none."""
        ...


@dataclass(frozen=True, slots=True)
class ToolContext:
    """All that a tool may use."""

    sandbox: Sandbox
    instance: TaskInstance
    history: EditorHistory
    profile: str
    """`openhands-0.17` or `plain`."""
    command_timeout_s: float
    """For the whole action."""
    soft_timeout_s: float | None
    """Set: a command is left running past this many seconds instead of being killed."""
    batches: Batches
    """Runs commands apart from the shell, several at a time."""
    calls_in_order: bool = False
    """A turn's calls of `bash` run in the persistent shell too, one after another."""


class Tool(Protocol):
    """Runs one kind of call. What the policy can cause is an Observation; only our own faults raise."""

    name: str

    async def run(self, call: Call, context: ToolContext) -> Observation:
        """Raises InfrastructureError only."""
        ...
