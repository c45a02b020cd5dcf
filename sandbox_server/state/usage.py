"""Sums what accounts used within a time window, over all nodes, in Redis.

The window has 60 slices, by Redis's clock; a slice that is too old leaves the sum as a whole.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from sandbox_server.state.connection import Connection, Script
from sandbox_server.state.keys import Keys

_SLICES = 60

# A meter may be lower than before: its container was started again after all its processes had been killed.
# KEYS: of each reading its meter, then the account's sum. ARGV: width of a slice and the window in s, then what each
# meter shows
_COUNT = Script("""
local width, window = tonumber(ARGV[1]), tonumber(ARGV[2])
local slice = math.floor(tonumber(redis.call('TIME')[1]) / width)
for i = 1, #ARGV - 2 do
  local meter, sum, shows = KEYS[2 * i - 1], KEYS[2 * i], tonumber(ARGV[i + 2])
  local before = tonumber(redis.call('GET', meter) or '0')
  local more = shows >= before and shows - before or shows
  redis.call('SET', meter, ARGV[i + 2], 'EX', math.ceil(2 * window))
  if more > 0 then
    redis.call('HINCRBYFLOAT', sum, slice, string.format('%.6f', more))
    for _, old in ipairs(redis.call('HKEYS', sum)) do
      if tonumber(old) <= slice - 60 then redis.call('HDEL', sum, old) end
    end
    redis.call('EXPIRE', sum, math.ceil(window + width))
  end
end
return 1
""")
# KEYS: sums. ARGV: width of a slice in s -> now in units of a slice, then for each sum its slices and amounts in turn
_SPENT = Script("""
local time = redis.call('TIME')
local answer = {tostring((time[1] + time[2] / 1000000) / tonumber(ARGV[1]))}
for i = 1, #KEYS do answer[i + 1] = redis.call('HGETALL', KEYS[i]) end
return answer
""")


class Kind(StrEnum):
    """The resource that is used."""

    CPU = "cpu"
    """CPU seconds of sessions and boxes."""
    GRADING = "grading"
    """Seconds for which gradings held a slot."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The state of a meter."""

    meter: str
    """Unique name of the meter."""
    account: str
    kind: Kind
    shows_s: float
    """Seconds since the meter began; a lower value than before means that it began anew."""


@dataclass(frozen=True, slots=True)
class Spent:
    """An account's use of one resource within the window."""

    slices: Sequence[tuple[float, float]]
    """(seconds until it no longer counts, amount), in any order."""

    @property
    def total_s(self) -> float:
        """The sum."""
        return sum(amount for _, amount in self.slices)

    def wait_s(self, bound_s: float) -> float:
        """Seconds until the sum is below `bound_s`; 0 if it is now."""
        left = self.total_s
        wait_s = 0.0
        for leaves_s, amount in sorted(self.slices):
            if left < bound_s:
                break
            left -= amount
            wait_s = leaves_s
        return wait_s


class Usage:
    """Sums by account. Methods raise StateUnavailable if Redis does not answer."""

    def __init__(self, connection: Connection, keys: Keys, *, window_s: float) -> None:
        self._connection = connection
        self._keys = keys
        self._window_s = window_s
        self._width_s = window_s / _SLICES

    async def count(self, readings: Sequence[Reading]) -> None:
        """Add what each meter shows beyond its previous reading; the same reading twice counts once."""
        if readings:
            keys = [key for one in readings for key in (self._keys.meter(one.meter), self._sum(one.account, one.kind))]
            shown = [f"{one.shows_s:.6f}" for one in readings]
            await self._connection.script(_COUNT, keys, [repr(self._width_s), repr(self._window_s), *shown])

    async def spent(self, account: str, kinds: Sequence[Kind]) -> dict[Kind, Spent]:
        """The account's use of each kind within the window."""
        keys = [self._sum(account, kind) for kind in kinds]
        now, *sums = await self._connection.script(_SPENT, keys, [repr(self._width_s)])
        return {kind: self._read(float(now), words) for kind, words in zip(kinds, sums, strict=True)}

    def _read(self, now: float, words: Sequence[bytes]) -> Spent:
        slices = zip(words[::2], words[1::2], strict=True)
        left = (((int(slice_) + _SLICES - now) * self._width_s, float(amount)) for slice_, amount in slices)
        return Spent([(leaves_s, amount) for leaves_s, amount in left if leaves_s > 0])

    def _sum(self, account: str, kind: Kind) -> str:
        digest = hashlib.sha256(account.encode("utf-8", "surrogatepass")).hexdigest()
        return self._keys.used(kind.value, digest)
