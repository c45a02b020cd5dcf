"""Two nodes with one object store: a session goes on elsewhere from its checkpoint, not by running actions again."""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.s3 import Bucket, bucket

from .fleet import fleet, on
from .serving import Server, until

COPIED = 'sandbox_checkpoint_copies_total{result="ok",way="out"}'


@pytest.fixture(scope="module")
def s3(missing: Callable[[str], None]) -> Iterator[Bucket]:
    """The store, whose start takes 6 s of CPU; the last test stops it."""
    with bucket(missing) as made, pytest.MonkeyPatch.context() as patch:
        for name, value in made.environment.items():
            patch.setenv(name, value)
        yield made


@pytest.fixture(scope="module")
def two(s3: Bucket, rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    folder = tmp_path_factory.mktemp("shared")
    with fleet(folder, rows, 2, checkpoints_url=s3.url, checkpoint_timeout_s=20, checkpoint_every=1) as (servers, _):
        yield servers


def copied(server: Server) -> float:
    """Checkpoints that the server has copied out."""
    lines = (line for line in httpx.get(f"{server.url}/metrics").text.splitlines() if line.startswith(COPIED))
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def test_chance_and_time_come_back_as_they_were(two: list[Server]) -> None:
    """After the loss of a host a session has other random numbers than its policy saw; a copy likewise."""
    a, b = two
    sid = on(b)
    a.run(sid, "cd /tmp; echo $RANDOM$RANDOM > chance; date +%s%N > when; KEPT=7")
    until(lambda: copied(b) >= 1, what="a copy of the checkpoint")
    seen = a.run(sid, "cat chance when")
    until(lambda: copied(b) >= 2, what="a copy of the second one")
    b.kill()
    said = a.run(sid, "cat chance when; echo $KEPT $PWD")
    assert said.startswith("[The host of this session's sandbox died. The sandbox was restored on another one with the")
    assert "state after action 2.]" in said and "7 /tmp" in said
    numbers = re.findall(r"(?m)^\d{2,}", seen)
    assert len(numbers) == 2 and all(number in said for number in numbers)
    copies = a.post(f"/v1/sessions/{sid}/fork", {"n": 2, "at": 1}).json()["sids"]
    for copy in copies:
        text = a.run(copy, "cat chance when")
        assert all(number in text for number in numbers), "the checkpoint was the dead node's"
    assert [a.reward(s)["verdict"] for s in (sid, *copies) if a.finish(s)] == ["empty_patch"] * 3


def test_without_the_store_actions_run_again(s3: Bucket, two: list[Server]) -> None:
    """A store that is away stops actions or restores."""
    a, b = two
    b.ensure_started()
    sid = on(b)
    a.run(sid, "echo one > /tmp/f")
    s3.stop()
    began = time.monotonic()
    a.run(sid, "echo two >> /tmp/f")
    assert time.monotonic() - began < 15, "an action waited for the store"
    b.kill()
    said = a.run(sid, "cat /tmp/f")
    assert "one\r\ntwo" in said and "by running its 2 actions again" in said
