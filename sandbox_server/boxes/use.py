"""Records when the boxes of this node were last used, so that a box whose client has died ends before its timeout.

Kept in memory: the node of a box answers all requests into it, and writing to Redis would add an exchange to each.
After a restart, the start of the server counts as the last use.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from sandbox_server import clock


@dataclass(slots=True)
class _Request:
    """The boxes that the current request keeps in use. Later uses, by a task that outlives the request, do not."""

    held: set[str] = field(default_factory=set)
    over: bool = False


_REQUEST: ContextVar[_Request | None] = ContextVar("box_request", default=None)


class BoxUse:
    """Counts the requests into each box and keeps the time of the last one."""

    def __init__(self, *, idle_s: float) -> None:
        """`idle_s`: seconds without use after which a box is idle; 0: never."""
        self.idle_s = idle_s
        self._since = clock.now()
        self._under_way: Counter[str] = Counter()
        self._last: dict[str, float] = {}
        self._uses: Counter[str] = Counter()

    @contextmanager
    def request(self) -> Iterator[None]:
        """The context of a request, from its head to the last byte of its answer; boxes noted in it stay in use."""
        request = _Request()
        token = _REQUEST.set(request)
        try:
            yield
        finally:
            _REQUEST.reset(token)
            request.over = True
            for sid in request.held:
                self._last[sid] = clock.now()
                self._under_way[sid] -= 1
                if not self._under_way[sid]:
                    del self._under_way[sid]

    def note(self, sid: str) -> None:
        """The box is used now, and until the end of the current request if there is one."""
        self._last[sid] = clock.now()
        self._uses[sid] += 1
        request = _REQUEST.get()
        if request is not None and not request.over and sid not in request.held:
            request.held.add(sid)
            self._under_way[sid] += 1

    def count(self, sid: str) -> int:
        """Number of uses that this server has seen."""
        return self._uses[sid]

    def idle(self, sid: str, touched_at: float, now: float) -> bool:
        """Whether the box was unused for `idle_s`; `touched_at`: Unix seconds of the last use in its record."""
        return bool(self.idle_s) and self.idle_for(sid, touched_at, now) > self.idle_s

    def idle_for(self, sid: str, touched_at: float, now: float) -> float:
        """Seconds since its last use; 0.0 while a request uses it."""
        if sid in self._under_way:
            return 0.0
        return now - max(touched_at, self._since, self._last.get(sid, 0.0))

    def keep(self, sids: Iterable[str]) -> None:
        """Forget all other boxes."""
        kept = set(sids)
        self._last = {sid: at for sid, at in self._last.items() if sid in kept}
        self._uses = Counter({sid: count for sid, count in self._uses.items() if sid in kept})
