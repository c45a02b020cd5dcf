"""A batch in the journal: its commands as the action's content, its results as the observation.

Both are canonical JSON: sorted keys, no spaces, ASCII, default values left out of the commands.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields

from sandbox_server.actions.batch import Command, CommandResult

_DEFAULTS = {field.name: getattr(Command(""), field.name) for field in fields(Command) if field.name != "command"}


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """The outcome of a batch."""

    results: tuple[CommandResult, ...] | None
    """In the order of the commands; None: the service was interrupted, and the results are lost."""
    notice: str = ""
    """Message about the session: it was restored, or an earlier action was interrupted."""


def content_of(commands: Sequence[Command]) -> str:
    """The action's content for these commands."""
    given = [
        {name: value for name, value in asdict(command).items() if name not in _DEFAULTS or value != _DEFAULTS[name]}
        for command in commands
    ]
    return _dumps({"commands": given})


def commands_of(content: str) -> list[Command]:
    """The commands in a `content_of`."""
    return [Command(**given) for given in json.loads(content)["commands"]]


def observation_of(outcome: BatchOutcome) -> str:
    """The action's observation for this outcome."""
    return _dumps(asdict(outcome))


def outcome_of(observation: str) -> BatchOutcome | None:
    """The outcome in an `observation_of`; None for any other text."""
    try:
        value = json.loads(observation)
        results = value["results"]
        return BatchOutcome(
            None if results is None else tuple(CommandResult(**result) for result in results), value["notice"]
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _dumps(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
