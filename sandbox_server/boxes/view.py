"""A box as it stands: what its session and its facts say together. Pure, but for the clock."""

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
        """Its name."""
        return self.record.sid

    @property
    def ends_at(self) -> float:
        """Unix seconds; set_timeout moves it. Of a paused one: when it goes."""
        return self.record.deadline

    @property
    def live(self) -> bool:
        """It runs or is paused; past its end it does neither, also when the reaper has not come yet."""
        return self.record.state == SessionState.LIVE and (clock.now() < self.ends_at or self.due)

    @property
    def paused(self) -> bool:
        """Nothing runs in it until it is resumed."""
        return self.live and (self.box.paused_at > 0 or self.due)

    @property
    def due(self) -> bool:
        """Its end has come and is to be a pause, though the reaper has not come yet.

        Not at the end of the longest life of a box: it could never run again.
        """
        late_s = clock.now() - self.ends_at
        wanted = self.box.on_timeout == OnTimeout.PAUSE and not self.box.paused_at
        return wanted and 0 <= late_s < self.box.pausable_s and self.ends_at < self.box.last_s

    @property
    def paused_from(self) -> float:
        """Unix seconds: when the present pause began."""
        return self.box.paused_at or self.ends_at

    def order(self) -> tuple[float, str]:
        """By age."""
        return self.record.created_at, self.sid
