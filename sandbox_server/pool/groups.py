"""How many starts of an instance follow the one that has just come.

Trainers ask for the same instance n times in a row (a GRPO group). The first start of it announces the group; n is
the size of that instance's last group, else of other groups lately. Pure; times are monotonic seconds.
"""

from collections import OrderedDict, deque
from dataclasses import dataclass
from math import ceil
from statistics import median_high

_REMEMBERED = 100_000  # instances whose last group is known; more than a data set has
_RECENT = 16  # groups; fewer would follow one odd group, more would be slow to see that n was changed


@dataclass(slots=True)
class _Group:
    size: int = 0
    announced: int = 0
    last: float = 0.0


class Groups:
    """Counts the starts of each instance that follow each other within `window_s` seconds."""

    def __init__(self, *, first_guess: int, window_s: float) -> None:
        """`first_guess`: the size of a group while nothing was learned."""
        self._first_guess = first_guess
        self._window_s = window_s
        self._open: OrderedDict[str, _Group] = OrderedDict()
        """The one that grew last at the end."""
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._recent: deque[int] = deque(maxlen=_RECENT)

    def announce(self, instance_id: str, n: int, now: float) -> None:
        """A group of `n` is about to come; what came of the instance before was another group."""
        self._close(instance_id)
        self._at(instance_id, now).announced = n

    def arrived(self, instance_id: str, now: float) -> None:
        """One start has come."""
        self._at(instance_id, now).size += 1

    def remaining(self, instance_id: str) -> int:
        """How many more of the present group are to be expected."""
        group = self._open.get(instance_id)
        if group is None:
            return 0
        expected = group.announced or self.expected(instance_id)
        # larger than thought: as many again are believed in, and so on
        return expected * max(1, ceil(group.size / expected)) - group.size

    def expected(self, instance_id: str) -> int:
        """The size of the instance's next group."""
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
