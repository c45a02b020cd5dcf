import time
from itertools import islice

import pytest

from patience import Backoff, Bucket, DeadlineExceeded, retry


class Flaky:
    def __init__(self, failures, error=OSError):
        self.calls, self.failures, self.error = 0, failures, error

    def __call__(self):
        self.calls += 1
        if self.calls <= self.failures:
            raise self.error(f"call {self.calls}")
        return self.calls


def test_pauses_grow_up_to_the_longest():
    assert list(islice(Backoff(1, 3, 10).pauses(), 4)) == [1, 3, 9, 10]


def test_third_call_succeeds():
    begin = time.monotonic()
    assert retry(Flaky(2), backoff=Backoff(0.3)) == 3
    assert 0.8 < time.monotonic() - begin < 5


def test_other_errors_pass_through():
    with pytest.raises(KeyError):
        retry(Flaky(1, KeyError), on=(OSError,))


def test_it_gives_up():
    with pytest.raises(DeadlineExceeded) as caught:
        retry(Flaky(999), deadline_s=0.5, backoff=Backoff(0.2))
    assert isinstance(caught.value.__cause__, OSError)


def test_the_bucket_refills():
    bucket = Bucket(2, 4)
    assert [bucket.take() for _ in range(3)] == [True, True, False]
    time.sleep(0.6)
    assert [bucket.take() for _ in range(3)] == [True, True, False]
