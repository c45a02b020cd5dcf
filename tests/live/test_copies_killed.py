"""A server killed while it takes a checkpoint, makes copies or wakes a session: nothing is lost, doubled or left."""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep

import httpx
import pytest

from .serving import Server, bash, until

BUSY_S = (0.02, 0.15, 0.5)
"""Seconds after the request at which the server is killed."""
FILL = "dd if=/dev/urandom of=/tmp/large bs=1M count=16 status=none; echo once >> /tmp/n"
LOOK = "cksum < /tmp/large; wc -l < /tmp/n"


def cut(server: Server, after_s: float, request: Callable[[], object]) -> None:
    """Send a request, kill the server meanwhile, and start it again."""
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(request)
        sleep(after_s)
        server.kill()
        sent.exception(60)  # cut off, or answered just before
    server.start()


def nothing_left(server: Server, folder: Path, sids: set[str]) -> None:
    """Each container is a live session's, and each stored block is whole and some checkpoint's."""
    until(lambda: len(server.containers()) <= len(sids), 30, "no container without a session")
    stored = folder / "data" / "checkpoints"
    assert not list(stored.rglob("*.part"))
    named = "".join(path.read_text() for path in stored.glob("*.json"))
    assert all(path.name in named for path in stored.glob("blocks/*/*"))


def live(server: Server, sid: str) -> set[str]:
    """The session and its copies, as far as they live."""
    tree = httpx.get(f"{server.url}/v1/sessions/{sid}/tree").json()
    return {one["sid"] for one in tree if one["state"] == "live"}


def seen(server: Server, sid: str) -> str:
    """Checksum and lines of the two files."""
    return server.run(sid, LOOK).split("[Python")[0]


def test_during_a_fork(serve: Callable[..., Server]) -> None:
    """A copy is half filled, its container stays, or the original suffers."""
    server = serve(reaper_period_s=1)
    sid = server.begin()
    server.run(sid, FILL)
    state = seen(server, sid)
    for after_s in BUSY_S:
        cut(server, after_s, lambda: server.post(f"/v1/sessions/{sid}/fork", {"n": 3}))
        for one in live(server, sid):
            assert seen(server, one) == state
        nothing_left(server, server.folder, live(server, sid))
    copies = server.post(f"/v1/sessions/{sid}/fork", {"n": 2}).json()
    assert copies["failed"] == [] and all(seen(server, copy) == state for copy in copies["sids"])


def test_during_a_checkpoint(serve: Callable[..., Server]) -> None:
    """A half written checkpoint is used, or an acknowledged action is lost."""
    server = serve(reaper_period_s=1, checkpoint_every=1)
    sid = server.begin()
    for number, after_s in enumerate(BUSY_S, 1):
        server.run(sid, FILL)
        cut(server, after_s, lambda: None)  # the checkpoint follows the answer
        state = seen(server, sid)
        assert f"\r\n{number}" in state
        (copy,) = server.post(f"/v1/sessions/{sid}/fork", {"n": 1}).json()["sids"]
        assert seen(server, copy) == state
        server.finish(copy)
    nothing_left(server, server.folder, live(server, sid))


@pytest.mark.parametrize("after_s", BUSY_S)
def test_during_a_wake(serve: Callable[..., Server], after_s: float) -> None:
    """The action that wakes a session runs twice or never, or the session is another one."""
    server = serve(hibernate_s=0.6, reaper_period_s=0.5)
    sid = server.begin()
    server.run(sid, FILL)
    state = seen(server, sid)
    until(lambda: server.session(sid)["asleep"], 10, "asleep")
    again = bash("echo again >> /tmp/n")
    cut(server, after_s, lambda: server.say(sid, again, key="wakes"))
    told = server.say(sid, again, key="wakes")["content"]
    lines = (
        "2" if "was interrupted" not in told else "[12]"
    )  # killed while it ran: that is told, and it is not repeated
    assert re.fullmatch(re.escape(state[:-1]) + lines, seen(server, sid))
    nothing_left(server, server.folder, {sid})
