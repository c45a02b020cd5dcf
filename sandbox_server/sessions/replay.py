"""Runs a session's acknowledged actions again in a fresh container, and reports which of them ended differently."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.records import ActionRecord, SessionRecord
from sandbox_server.sandbox.base import Sandbox
from sandbox_server.sessions.running import ActionRun, Running

_SHOWN = 5  # differences named in a notice


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The result of a replay."""

    count: int
    differences: Sequence[str]
    """One text for each action that ended differently."""
    talk_turns: int
    """`SessionRecord.talk_turns` after the last action."""


class Replay:
    """Runs actions again."""

    def __init__(self, running: Running, *, command_timeout_s: float) -> None:
        self._running = running
        self._timeout_s = command_timeout_s

    async def run(
        self, sandbox: Sandbox, record: SessionRecord, instance: TaskInstance, actions: Sequence[ActionRecord]
    ) -> ReplayResult:
        """Run `actions`, which follow the state of `record`; edits are added to the undo history of its sid.

        Raises as `Running.run`.
        """
        differences = []
        talked = record
        for action in actions:
            run = self._running.runner(action.tool)
            ran = await run(ActionRun(sandbox, talked, instance, action.content, self._timeout_s))
            talked = replace(talked, talk_turns=ran.talk_turns)
            now = ran.observation
            if (now.outcome, now.exit_code) != (action.outcome, action.exit_code):
                before, after = (_end(end.outcome, end.exit_code) for end in (action, now))
                differences.append(f"action {action.seq}: {after} instead of {before}")
        return ReplayResult(len(actions), differences, talked.talk_turns)


def how_they_ended(differences: Sequence[str]) -> str:
    """The part of a notice about how the repeated actions ended."""
    if not differences:
        return "all ended as before"
    more = f" and {len(differences) - _SHOWN} more" if len(differences) > _SHOWN else ""
    which = "; ".join(differences[:_SHOWN])
    return f"but not all ended as before ({which}{more}): look before you rely on its state"


def _end(outcome: str, exit_code: int | None) -> str:
    return outcome if exit_code is None else f"{outcome}, exit code {exit_code}"
