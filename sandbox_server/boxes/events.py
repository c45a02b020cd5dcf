"""Events in this node's boxes, such as commands and pauses, for their clients; in memory until the box ends."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sandbox_server import clock

INFO, ERROR = "info", "error"
_MOST = 1000
"""Events kept per box."""
_MOST_TEXT = 500
"""Characters kept of each text."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event in a box."""

    at: float
    """Unix seconds."""
    logger: str
    """`process` for commands, `sandbox` for the box itself."""
    message: str
    fields: Mapping[str, str]
    level: str = INFO


class BoxEvents:
    """Keeps the newest events of each box."""

    def __init__(self) -> None:
        self._of: dict[str, deque[Event]] = {}

    def add(self, sid: str, logger: str, message: str, *, level: str = INFO, **fields: object) -> None:
        """Record an event that has just happened."""
        texts = {name: str(value)[:_MOST_TEXT] for name, value in fields.items()}
        events = self._of.get(sid)
        if events is None:
            events = self._of[sid] = deque(maxlen=_MOST)
        events.append(Event(clock.now(), logger, message, texts, level))

    def of(self, sid: str) -> Sequence[Event]:
        """The box's events, oldest first."""
        return list(self._of.get(sid, ()))

    def keep(self, sids: Iterable[str]) -> None:
        """Drop the events of all boxes but these."""
        kept = set(sids)
        self._of = {sid: events for sid, events in self._of.items() if sid in kept}
