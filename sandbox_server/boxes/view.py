"""State of a box, derived from its session and its BoxRecord. Pure except for the clock."""

from dataclasses import dataclass

from sandbox_server import clock
from sandbox_server.lifecycle import SessionState
from sandbox_server.records import BoxRecord, OnTimeout, SessionRecord


@dataclass(frozen=True, slots=True)
class BoxView:
    """A box with its session."""

    record: SessionRecord
    box: BoxRecord

    @property
    def sid(self) -> str:
        """The session's id."""
        return self.record.sid

    @property
    def ends_at(self) -> float:
        """Unix seconds; set_timeout moves it. For a paused box: when it is removed."""
        return self.record.deadline

    @property
    def live(self) -> bool:
        """Running or paused; False past its end, even before the reaper removes it, unless it is due for a pause."""
        return self.record.state == SessionState.LIVE and (clock.now() < self.ends_at or self.due)

    @property
    def paused(self) -> bool:
        """Paused, or due for a pause."""
        return self.live and (self.box.paused_at > 0 or self.due)

    @property
    def due(self) -> bool:
        """Its deadline has passed and it must be paused, but the reaper has not done so yet.

        False at the end of its longest lifetime: it could never run again.
        """
        late_s = clock.now() - self.ends_at
        wanted = self.box.on_timeout == OnTimeout.PAUSE and not self.box.paused_at
        return wanted and 0 <= late_s < self.box.pausable_s and self.ends_at < self.box.last_s

    @property
    def paused_from(self) -> float:
        """Start of the current pause, Unix seconds."""
        return self.box.paused_at or self.ends_at

    def order(self) -> tuple[float, str]:
        """Sort key: by creation time."""
        return self.record.created_at, self.sid
