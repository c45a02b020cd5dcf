"""Records as Redis keeps them: a session as a hash, actions as JSON in ASCII, which any text survives."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, get_type_hints

from sandbox_server.records import ActionRecord, InFlight, SessionRecord

_FORMS: Mapping[object, tuple[type | tuple[type, ...], Callable[[Any], str], Callable[[str], object]]] = {
    # records carry enum members where they say str: str() of a StrEnum is its value
    str: (str, str, str),
    int: (int, str, int),
    float: ((float, int), lambda value: repr(float(value)), float),
    Mapping[str, float]: (Mapping, lambda value: json.dumps(dict(value), separators=(",", ":")), json.loads),
}
"""Of a field's type: what it may hold, to text, from text."""
_FIELDS = {name: _FORMS[kind] for name, kind in get_type_hints(SessionRecord).items()}


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


def session_of(stored: Mapping[bytes, bytes]) -> SessionRecord | None:
    """The record of a hash; None for an empty one. Unknown fields (of a newer server) are left out."""
    if not stored:
        return None
    named = {name.decode(): text.decode("utf-8", "surrogatepass") for name, text in stored.items()}
    read: dict[str, Any] = {name: _FIELDS[name][2](text) for name, text in named.items() if name in _FIELDS}
    return SessionRecord(**read)


def dump(record: ActionRecord | InFlight) -> str:
    """As JSON."""
    return json.dumps(asdict(record), separators=(",", ":"))


def action_of(text: bytes) -> ActionRecord:
    """The record of `dump`."""
    return ActionRecord(**json.loads(text))


def in_flight_of(text: bytes) -> InFlight:
    """The record of `dump`."""
    return InFlight(**json.loads(text))
