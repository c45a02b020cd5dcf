"""Calling again what failed."""

import time

from patience.backoff import Backoff


class DeadlineExceeded(TimeoutError):
    """No try succeeded before the deadline."""


def retry(call, *, on=(Exception,), deadline_s=10.0, backoff=Backoff()):
    """Call until it returns; `DeadlineExceeded` from the last error after `deadline_s` seconds."""
    end = time.monotonic() + deadline_s
    for pause in backoff.pauses():
        try:
            return call()
        except on as error:
            if time.monotonic() > end:
                raise DeadlineExceeded(f"no success within {deadline_s} s") from error
        time.sleep(pause)
