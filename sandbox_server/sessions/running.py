"""From what was asked to an observation: a policy's text by dialect and tool, a batch as it is. Writes nothing down."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass

from sandbox_server.actions import batch_json
from sandbox_server.actions.base import Dialect, Observation, Say, Tool, ToolContext, observed
from sandbox_server.actions.batch import Batches
from sandbox_server.actions.batch_json import BatchOutcome
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.records import SessionRecord
from sandbox_server.sandbox.base import Sandbox
from sandbox_server.scoring.answering import recorded
from sandbox_server.scoring.journals import EXEC
from sandbox_server.sessions.config import DialectConfig
from sandbox_server.state.store import Store

_AT_ONCE = 1 << 17  # characters of an action; a longer one is read in a thread


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of an action, before it is written down."""

    observation: Observation
    """Without text where there is a `batch`."""
    tool: str
    talk_turns: int
    batch: BatchOutcome | None = None
    """Of EXEC."""
    reply: Mapping[str, object] | None = None
    """Of FILE, COMMAND and COMMAND_END, in place of a text."""
    duration_s: float | None = None
    """Where it is not what running it took."""


Runner = Callable[[Sandbox, SessionRecord, TaskInstance, str, float, dict[str, float]], Coroutine[None, None, Ran]]
"""As `Running.run`."""


class Running:
    """Runs one action in a sandbox whose session the caller holds."""

    def __init__(
        self,
        store: Store,
        config: DialectConfig,
        batches: Batches,
        *,
        dialects: dict[str, Dialect],
        tools: dict[str, Tool],
        runners: Mapping[str, Runner] | None = None,
    ) -> None:
        """`runners`: of actions that are no policy's text, beside batches, by their tool."""
        self._runners: Mapping[str, Runner] = {**(runners or {}), EXEC: self.run_batch}
        self._store = store
        self._config = config
        self.batches = batches
        self._dialects = dialects
        self._tools = tools

    def runner(self, tool: str) -> Runner:
        """What runs the content of an action of this tool."""
        return self._runners.get(tool, self.run)

    async def run(
        self,
        sandbox: Sandbox,
        record: SessionRecord,
        instance: TaskInstance,
        content: str,
        timeout_s: float,
        seconds: dict[str, float],
    ) -> Ran:
        """The observation of `content`; what its stages took goes into `seconds`.

        Raises:
            SandboxLost, EngineUnavailable, StateUnavailable.
        """
        dialect = self._dialects[instance.dialect or self._config.dialect]
        clock = time.monotonic()
        if len(content) <= _AT_ONCE:
            parsed = dialect.parse(content, talk_turns=record.talk_turns)
        else:
            parsed = await asyncio.to_thread(dialect.parse, content, talk_turns=record.talk_turns)
        parsed_at = time.monotonic()
        seconds["parse"] = parsed_at - clock
        parsed = recorded(parsed, content, instance)
        if isinstance(parsed, Say):
            said = Observation(parsed.text, outcome=parsed.code)
            return Ran(said, "none", record.talk_turns + parsed.is_talk)
        context = ToolContext(
            sandbox=sandbox,
            instance=instance,
            history=self._store.history(record.sid),
            profile=instance.profile or self._config.profile or dialect.default_profile,
            command_timeout_s=timeout_s,
            soft_timeout_s=self._config.soft_timeout_s,
            batches=self.batches,
            calls_in_order=self._config.calls_in_order,
        )
        observation = await self._tools[parsed.tool].run(parsed, context)
        seconds["run"] = time.monotonic() - parsed_at
        return Ran(observation, parsed.tool, record.talk_turns)

    async def run_batch(
        self,
        sandbox: Sandbox,
        record: SessionRecord,
        instance: TaskInstance,
        content: str,
        timeout_s: float,
        seconds: dict[str, float],
    ) -> Ran:
        """As `run`, of a `content` that is a batch (`batch_json.content_of`)."""
        began = time.monotonic()
        commands = batch_json.commands_of(content)
        results = await self.batches.run(sandbox, instance, commands, timeout_s=timeout_s)
        seconds["run"] = time.monotonic() - began
        return Ran(observed("", results), EXEC, record.talk_turns, BatchOutcome(tuple(results)))
