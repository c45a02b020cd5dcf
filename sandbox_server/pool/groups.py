"""Estimates how many more starts of an instance follow the current one.

Trainers start the same instance n times in a row (a GRPO group). At the first start, n is estimated as the size of the
instance's last group, else as the median of recent groups. Does no I/O; times are monotonic seconds.
"""

from collections import OrderedDict, deque
from dataclasses import dataclass
from math import ceil
from statistics import median_high

_REMEMBERED = 100_000  # instances whose last group size is remembered; more than a data set has
_RECENT = 16  # groups; with fewer, one odd group would dominate; with more, a change of n would show late


@dataclass(slots=True)
class _Group:
    size: int = 0
    announced: int = 0
    last: float = 0.0


class Groups:
    """Counts each instance's starts, as one group while the gap between two is less than `window_s` seconds."""

    def __init__(self, *, first_guess: int, window_s: float) -> None:
        """`first_guess`: the expected size of a group before any was seen."""
        self._first_guess = first_guess
        self._window_s = window_s
        self._open: OrderedDict[str, _Group] = OrderedDict()
        """Current groups by instance; the one that grew last is last."""
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._recent: deque[int] = deque(maxlen=_RECENT)

    def announce(self, instance_id: str, n: int, now: float) -> None:
        """Expect a group of `n` starts; earlier starts of the instance belong to another group."""
        self._close(instance_id)
        self._at(instance_id, now).announced = n

    def arrived(self, instance_id: str, now: float) -> None:
        """Count one start."""
        self._at(instance_id, now).size += 1

    def remaining(self, instance_id: str) -> int:
        """Expected number of further starts in the current group."""
        group = self._open.get(instance_id)
        if group is None:
            return 0
        expected = group.announced or self.expected(instance_id)
        # a group larger than expected counts as several groups of the expected size
        return expected * max(1, ceil(group.size / expected)) - group.size

    def expected(self, instance_id: str) -> int:
        """Expected size of the instance's next group."""
        if known := self._sizes.get(instance_id):
            return known
        return median_high(self._recent) if self._recent else self._first_guess

    def _at(self, instance_id: str, now: float) -> _Group:
        while self._open:
            oldest, group = next(iter(self._open.items()))
            if now - group.last < self._window_s:
                break
            self._close(oldest)
        group = self._open.setdefault(instance_id, _Group())
        group.last = now
        self._open.move_to_end(instance_id)
        return group

    def _close(self, instance_id: str) -> None:
        group = self._open.pop(instance_id, None)
        if group is None or not group.size:
            return
        self._recent.append(group.size)
        self._sizes[instance_id] = group.size
        self._sizes.move_to_end(instance_id)
        if len(self._sizes) > _REMEMBERED:
            self._sizes.popitem(last=False)
