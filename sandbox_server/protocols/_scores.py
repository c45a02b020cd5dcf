"""How a score reads on the wire. No plugin: its name begins with an underscore."""

from dataclasses import asdict

from pydantic import BaseModel, ConfigDict

from sandbox_server.records import Score


class _Shown(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)


class ShownItem(_Shown):
    """One item of a composed reward."""

    fn: str
    value: float
    """Before its weight."""
    weight: float
    parts: dict[str, float]
    """What the value was made of."""


class ShownAnswer(_Shown):
    """The answer as it was understood, in paths of the base tree."""

    format: str
    """files, file_list, fenced, structured, lines."""
    files: list[str]
    modules: list[str]
    entities: list[str]
    lines: dict[str, list[tuple[int, int]]]
    well_formed: bool
    """It is the message's only answer, complete, not empty, and all of it could be read."""
    problems: list[str]
    """What of it was left out."""


class ShownScore(_Shown):
    """What an answer, and the way to it, were worth."""

    items: list[ShownItem]
    answer: ShownAnswer | None
    """null: there was none."""
    steps: list[float]
    """With a discount, the total for each turn."""
    flags: list[str]
    """unanswerable, no_modules, no_entities."""


def score_fields(score: Score) -> dict[str, object]:
    """As `ShownScore`."""
    fields = asdict(score)
    return {name: fields[name] for name in ShownScore.model_fields}
