"""From a policy's text to an observation: dialect, then tool. Nothing is written down here."""

import time
from dataclasses import dataclass

from sandbox_server.actions.base import Dialect, Observation, Say, Tool, ToolContext
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.records import SessionRecord
from sandbox_server.sandbox.base import Sandbox
from sandbox_server.sessions.config import SessionConfig
from sandbox_server.state.store import Store


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of an action, before it is written down."""

    observation: Observation
    tool: str
    talk_turns: int


class Running:
    """Runs the text of one action in a sandbox whose session the caller holds."""

    def __init__(
        self, store: Store, config: SessionConfig, *, dialects: dict[str, Dialect], tools: dict[str, Tool]
    ) -> None:
        self._store = store
        self._config = config
        self._dialects = dialects
        self._tools = tools

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
        parsed = dialect.parse(content, talk_turns=record.talk_turns)
        parsed_at = time.monotonic()
        seconds["parse"] = parsed_at - clock
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
        )
        observation = await self._tools[parsed.tool].run(parsed, context)
        seconds["run"] = time.monotonic() - parsed_at
        return Ran(observation, parsed.tool, record.talk_turns)
