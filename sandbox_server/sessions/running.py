"""Runs an action: a policy's text by its dialect and tool, a batch directly. Does not write to the journal."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field

from sandbox_server.actions import batch_json
from sandbox_server.actions.base import Dialect, Observation, Say, Tool, ToolContext, observed
from sandbox_server.actions.batch import Batches
from sandbox_server.actions.batch_json import BatchOutcome
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.records import SessionRecord
from sandbox_server.sandbox.base import Sandbox
from sandbox_server.scoring.answering import answer_reply, may_answer
from sandbox_server.scoring.journals import EXEC
from sandbox_server.scoring.localizing import Localizing
from sandbox_server.sessions.config import DialectConfig
from sandbox_server.state.store import Store

_AT_ONCE = 1 << 17  # characters of an action; a longer one is parsed in a thread
_READ_AT_ONCE = 1 << 14  # characters of an answer, which takes a microsecond each


@dataclass(frozen=True, slots=True)
class ActionOutcome:
    """The result of an action, before it is journaled."""

    observation: Observation
    """Without text if there is a `batch`."""
    tool: str
    talk_turns: int
    batch: BatchOutcome | None = None
    """For EXEC."""
    reply: Mapping[str, object] | None = None
    """For FILE, COMMAND and COMMAND_END, in place of a text."""
    duration_s: float | None = None
    """Set if it differs from the measured run time."""
    changes: Mapping[str, object] = field(default_factory=dict)
    """Further fields of the session's record that change when the action is acknowledged."""


@dataclass(frozen=True, slots=True)
class ActionRun:
    """One run of an action: the first one, or its repetition in a replay."""

    sandbox: Sandbox
    record: SessionRecord
    """The session before the action."""
    instance: TaskInstance
    content: str
    """The policy's text, or the JSON of a batch, file or command."""
    timeout_s: float
    seconds: dict[str, float] = field(default_factory=dict)
    """Stage -> its duration; each runner adds its own stages."""


Runner = Callable[[ActionRun], Coroutine[None, None, ActionOutcome]]


class Running:
    """Runs one action in a sandbox; the caller holds the session's turn."""

    def __init__(
        self,
        store: Store,
        config: DialectConfig,
        batches: Batches,
        localizing: Localizing,
        *,
        dialects: dict[str, Dialect],
        tools: dict[str, Tool],
        runners: Mapping[str, Runner] | None = None,
    ) -> None:
        """`runners`: tool -> runner, for actions that are neither a policy's text nor a batch."""
        self._runners: dict[str, Runner] = {**(runners or {}), EXEC: self.run_batch}
        self._store = store
        self._localizing = localizing
        self._config = config
        self.batches = batches
        self._dialects = dialects
        self._tools = tools

    def serve(self, tool: str, runner: Runner) -> None:
        """Register the runner for actions of this tool, for runners that are built later than this object."""
        self._runners[tool] = runner

    def runner(self, tool: str) -> Runner:
        """The runner for actions of this tool."""
        return self._runners.get(tool, self.run)

    async def run(self, action: ActionRun) -> ActionOutcome:
        """Run a policy's text by its dialect and tool.

        Raises:
            SandboxLost, EngineUnavailable, StateUnavailable.
            CatalogueUnavailable: the allowed format of the policy's answer could not be read; nothing ran.
        """
        record, instance, content = action.record, action.instance, action.content
        dialect = self._dialects[instance.dialect or self._config.dialect]
        clock = time.monotonic()
        if len(content) <= _AT_ONCE:
            parsed = dialect.parse(content, talk_turns=record.talk_turns)
        else:
            parsed = await asyncio.to_thread(dialect.parse, content, talk_turns=record.talk_turns)
        parsed_at = time.monotonic()
        action.seconds["parse"] = parsed_at - clock
        if may_answer(parsed, instance):
            asked = await self._localizing.as_asked(record.sid, instance)
            if len(content) <= _READ_AT_ONCE:
                parsed = answer_reply(parsed, content, asked)
            else:
                parsed = await asyncio.to_thread(answer_reply, parsed, content, asked)
        if isinstance(parsed, Say):
            said = Observation(parsed.text, outcome=parsed.code)
            return ActionOutcome(said, "none", record.talk_turns + parsed.is_talk)
        context = ToolContext(
            sandbox=action.sandbox,
            instance=instance,
            history=self._store.history(record.sid, action.sandbox.container_id),
            profile=instance.profile or self._config.profile or dialect.default_profile,
            command_timeout_s=action.timeout_s,
            soft_timeout_s=self._config.soft_timeout_s,
            batches=self.batches,
            calls_in_order=self._config.calls_in_order,
        )
        observation = await self._tools[parsed.tool].run(parsed, context)
        action.seconds["run"] = time.monotonic() - parsed_at
        return ActionOutcome(observation, parsed.tool, record.talk_turns)

    async def run_batch(self, action: ActionRun) -> ActionOutcome:
        """As `run`, for a batch (its content by `batch_json.content_of`)."""
        began = time.monotonic()
        commands = batch_json.commands_of(action.content)
        results = await self.batches.run(action.sandbox, action.instance, commands, timeout_s=action.timeout_s)
        action.seconds["run"] = time.monotonic() - began
        return ActionOutcome(observed("", results), EXEC, action.record.talk_turns, BatchOutcome(tuple(results)))
