"""Figures and events of this node's boxes, for the boxes' clients."""

from collections.abc import Iterable
from dataclasses import dataclass

from sandbox_server.boxes.events import BoxEvents
from sandbox_server.boxes.measures import Measures


@dataclass(frozen=True, slots=True)
class BoxMonitoring:
    """Figures and events of the boxes of this node; both in memory, so a restart forgets them."""

    measures: Measures
    events: BoxEvents

    def keep(self, sids: Iterable[str]) -> None:
        """Forget all other boxes."""
        kept = set(sids)
        self.measures.keep(kept)
        self.events.keep(kept)
