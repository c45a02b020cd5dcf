"""The watches of this process, and their bounds: each keeps the entries of its folder at the last look, 0.6 KB each."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from weakref import WeakSet

from sandbox_server.protocols.e2b.connect import Code, ConnectError
from sandbox_server.sandbox.filesystem import FileInfo

OF_BOX, ENTRIES_OF_BOX = 100, 50_000
"""Maximum number of polled watches of a box, and of entries in all its watches."""
_OF_NODE, _ENTRIES_OF_NODE = 1000, 500_000


@dataclass(eq=False, slots=True, weakref_slot=True)
class Watch:
    """A watched folder and its last seen state."""

    sid: str
    path: str
    """Absolute."""
    depth: int
    include_entry: bool
    entries: Mapping[str, FileInfo]


class Watches:
    """Polled watches by their ids, and streamed ones. They are lost when the server restarts."""

    def __init__(self) -> None:
        self._polled: OrderedDict[str, Watch] = OrderedDict()
        # weak references: if the client disconnects before the first frame, the stream's generator never starts, so
        # its `finally` never drops the watch
        self._streamed: WeakSet[Watch] = WeakSet()

    def find(self, sid: str, name: str) -> Watch | None:
        """The box's polled watch of this id, which becomes the most recently queried one; None: there is none."""
        watch = self._polled.get(name)
        if watch is None or watch.sid != sid:
            return None
        self._polled.move_to_end(name)
        return watch

    def poll(self, name: str, watch: Watch) -> None:
        """Keep a polled watch under this id. Raises as `check`."""
        self._polled[name] = watch
        self.check(watch)
        own = [name for name, other in self._polled.items() if other.sid == watch.sid]
        for name in own[:-OF_BOX]:
            del self._polled[name]
        entries = sum(len(other.entries) for other in self._polled.values())
        while len(self._polled) > _OF_NODE or entries > _ENTRIES_OF_NODE:  # nothing else removes those of ended boxes
            _, oldest = self._polled.popitem(last=False)
            entries -= len(oldest.entries)

    def stream(self, watch: Watch) -> None:
        """Count a streamed watch, until `drop`. Raises as `check`."""
        self._streamed.add(watch)
        self.check(watch)

    def check(self, watch: Watch) -> None:
        """Drop other polled watches of the box, least recently queried first, until its watches are within the bound.

        Raises:
            ConnectError: resource_exhausted: this watch and the streamed ones alone have too many; it is dropped.

        """
        entries = sum(len(other.entries) for other in self._streamed if other.sid == watch.sid and other is not watch)
        own = [(name, other) for name, other in self._polled.items() if other.sid == watch.sid and other is not watch]
        entries += sum(len(other.entries) for _, other in own) + len(watch.entries)
        for name, other in own:
            if entries <= ENTRIES_OF_BOX:
                return
            del self._polled[name]
            entries -= len(other.entries)
        if entries > ENTRIES_OF_BOX:
            self.drop(watch)
            raise ConnectError(
                Code.RESOURCE_EXHAUSTED,
                f"the watched folders of a sandbox hold at most {ENTRIES_OF_BOX} entries: watch a smaller folder",
            )

    def drop(self, watch: Watch) -> None:
        """Forget a watch."""
        self._streamed.discard(watch)
        for name in [name for name, other in self._polled.items() if other is watch]:
            del self._polled[name]
