"""Records as Redis keeps them: a session as a hash, actions as JSON in ASCII, which any text survives."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, get_type_hints

from sandbox_server.records import ActionRecord, InFlight, SessionRecord

_JSON = json.JSONEncoder(separators=(",", ":"))
_FORMS: Mapping[object, tuple[type | tuple[type, ...], Callable[[Any], str], Callable[[str], object]]] = {
    # records carry enum members where they say str: str() of a StrEnum is its value
    str: (str, str, str),
    int: (int, str, int),
    float: ((float, int), lambda value: repr(float(value)), float),
    Mapping[str, float]: (Mapping, lambda value: _JSON.encode(dict(value)), json.loads),
}
"""Of a field's type: what it may hold, to text, from text."""
_FIELDS = {name: _FORMS[kind] for name, kind in get_type_hints(SessionRecord).items()}
_READERS = {name.encode(): (name, read) for name, (_, _, read) in _FIELDS.items()}
_ACTION = [field.name for field in fields(ActionRecord)]
_IN_FLIGHT = [field.name for field in fields(InFlight)]


def session_fields(values: Mapping[str, object]) -> dict[str, str]:
    """Fields of a SessionRecord as texts.

    Raises:
        TypeError: a name that SessionRecord does not have, or a value of another type.

    """
    texts: dict[str, str] = {}
    for name, value in values.items():
        kind, write, _ = _FIELDS.get(name, ((), str, str))
        if not isinstance(value, kind):
            raise TypeError(f"SessionRecord has no {name} of type {type(value).__name__}")
        texts[name] = write(value)
    return texts


def flat(values: Mapping[str, object]) -> list[str]:
    """`session_fields` as name, value, name, value."""
    return [part for pair in session_fields(values).items() for part in pair]


def session_of(stored: Sequence[bytes]) -> SessionRecord | None:
    """The record of a hash given as name, value, name, value; None for an empty one.

    Unknown fields (of a newer server) are left out.
    """
    if not stored:
        return None
    values: dict[str, Any] = {}
    parts = iter(stored)
    for name, text in zip(parts, parts, strict=True):
        if (reader := _READERS.get(name)) is not None:
            values[reader[0]] = reader[1](text.decode("utf-8", "surrogatepass"))
    return SessionRecord(**values)


def dump(record: ActionRecord | InFlight) -> str:
    """As JSON."""
    # not asdict(): it copies each value deeply, for six times what this costs
    names = _ACTION if isinstance(record, ActionRecord) else _IN_FLIGHT
    return _JSON.encode({name: getattr(record, name) for name in names})


def action_of(text: bytes) -> ActionRecord:
    """The record of `dump`."""
    return ActionRecord(**json.loads(text))


def in_flight_of(text: bytes) -> InFlight:
    """The record of `dump`; fields of a server of another version are left out."""
    values = json.loads(text)
    return InFlight(**{name: values[name] for name in _IN_FLIGHT if name in values})
