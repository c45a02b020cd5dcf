"""How long to pause before the next try."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Backoff:
    """Pauses of `first`, `first * factor`, ... seconds, at most `longest`."""

    first: float = 0.1
    factor: float = 2.0
    longest: float = 5.0

    def pauses(self):
        pause = self.first
        while True:
            yield min(pause, self.longest)
            pause *= self.factor
