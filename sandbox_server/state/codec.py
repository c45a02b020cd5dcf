"""Records as Redis keeps them: a session as a hash, actions as JSON in ASCII, which any text survives."""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import get_type_hints

from sandbox_server.records import ActionRecord, InFlight, SessionRecord

_READ = {name: kind for name, kind in get_type_hints(SessionRecord).items() if kind in (str, int, float)}
if len(_READ) != len(fields(SessionRecord)):  # a new field's type needs its reader here
    raise TypeError("SessionRecord has a field that is not str, int or float")


def session_fields(values: Mapping[str, object]) -> dict[str, str]:
    """Fields of a SessionRecord as texts.

    Raises:
        TypeError: a name that SessionRecord does not have, or a value of another type.

    """
    texts: dict[str, str] = {}
    for name, value in values.items():
        kind = _READ.get(name)
        if kind is None or not (isinstance(value, kind) or (kind is float and isinstance(value, int))):
            raise TypeError(f"SessionRecord has no {name} of type {type(value).__name__}")
        # records carry enum members where they say str: str() of a StrEnum is its value
        texts[name] = repr(float(value)) if kind is float and isinstance(value, (int, float)) else str(value)
    return texts


def flat(values: Mapping[str, object]) -> list[str]:
    """`session_fields` as name, value, name, value."""
    return [part for pair in session_fields(values).items() for part in pair]


def session_of(stored: Mapping[bytes, bytes]) -> SessionRecord | None:
    """The record of a hash; None for an empty one. Unknown fields (of a newer server) are left out."""
    if not stored:
        return None
    named = {name.decode(): text.decode("utf-8", "surrogatepass") for name, text in stored.items()}
    return SessionRecord(**{name: _READ[name](text) for name, text in named.items() if name in _READ})


def dump(record: ActionRecord | InFlight) -> str:
    """As JSON."""
    return json.dumps(asdict(record), separators=(",", ":"))


def action_of(text: bytes) -> ActionRecord:
    """The record of `dump`."""
    return ActionRecord(**json.loads(text))


def in_flight_of(text: bytes) -> InFlight:
    """The record of `dump`."""
    return InFlight(**json.loads(text))
