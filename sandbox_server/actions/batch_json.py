"""A batch as the journal keeps it: its commands as the action's content, its results as the observation.

Both are canonical: keys sorted, no spaces, ASCII, nothing that is as if it were not given.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields

from sandbox_server.actions.batch import Command, CommandResult

_DEFAULTS = {field.name: getattr(Command("-"), field.name) for field in fields(Command)}


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """What came of a batch."""

    results: tuple[CommandResult, ...] | None
    """In the order of its commands; None: the service was interrupted while it ran, they are lost."""
    notice: str = ""
    """What the service has to tell of the session: it was restored, or an action before this one was interrupted."""


def content_of(commands: Sequence[Command]) -> str:
    """The action's content."""
    given = [
        {name: value for name, value in asdict(command).items() if value != _DEFAULTS[name]} for command in commands
    ]
    return _dumps({"commands": given})


def commands_of(content: str) -> list[Command]:
    """The commands of a `content_of`."""
    return [Command(**given) for given in json.loads(content)["commands"]]


def observation_of(outcome: BatchOutcome) -> str:
    """The action's observation."""
    return _dumps(asdict(outcome))


def outcome_of(observation: str) -> BatchOutcome | None:
    """The outcome of an `observation_of`; None for any other text."""
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
