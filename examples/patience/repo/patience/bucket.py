"""A token bucket."""

import threading
import time


class Bucket:
    """At most `size` tokens at once, `rate` new ones a second."""

    def __init__(self, size, rate):
        self.size, self.rate = size, rate
        self._tokens, self._seen = float(size), time.monotonic()
        self._lock = threading.Lock()

    def take(self):
        """Take one token if there is one."""
        with self._lock:
            now = time.monotonic()
            self._tokens = min(self.size, self._tokens + (now - self._seen) * self.rate)
            self._seen = now
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True
