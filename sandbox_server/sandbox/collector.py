"""Bounded collection of a stream: the first and the last bytes, and the number between."""

from sandbox_server.sandbox.base import Output


class Collector:
    """Keeps the first `keep`/2 and the last `keep`/2 bytes of what is added; memory stays below 2 x `keep`."""

    def __init__(self, keep: int) -> None:
        self._half = keep // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def add(self, data: bytes | bytearray | memoryview) -> None:
        """Take the next bytes of the stream."""
        self._total += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail += data
            if len(self._tail) > 2 * self._half:
                del self._tail[: -self._half]

    def take(self) -> Output:
        """Return what was collected since the last take, and start anew."""
        if len(self._tail) > self._half:
            del self._tail[: -self._half]
        kept = len(self._head) + len(self._tail)
        out = Output(bytes(self._head), bytes(self._tail), self._total - kept)
        self._head.clear()
        self._tail.clear()
        self._total = 0
        return out
