"""A server that ends itself with SIGKILL at a named point of its work, so that a test stages the order of events."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from signal import SIGKILL

import httpx

from .serving import Server

_PROGRAM = """
import importlib, os, re, signal, sys
module, kind, method, moment, number, about = sys.argv[1:]
owner = getattr(importlib.import_module(module), kind)
was, seen = getattr(owner, method), {"before": 0, "after": 0}

def count(now):
    seen[now] += 1
    if (now, seen[now]) == (moment, int(number)):
        os.kill(os.getpid(), signal.SIGKILL)

async def staged(*words, **named):
    if not re.search(about, repr(words[1:])):
        return await was(*words, **named)
    count("before")
    result = await was(*words, **named)
    count("after")
    return result

setattr(owner, method, staged)
sys.argv = ["sandbox-server", "serve"]
importlib.import_module("sandbox_server.cli").main()
"""


@dataclass(frozen=True, slots=True)
class Point:
    """The begin or end of a call of an `async` method."""

    module: str
    """Below `sandbox_server`."""
    method: str
    """`Class.method`."""
    moment: str = "before"
    """`before` or `after` the call."""
    number: int = 1
    """Of the calls since the start of the server, the one that begins or ends as this one."""
    about: str = ""
    """Regular expression: only calls with arguments whose repr it finds count."""


def start(server: Server, point: Point) -> None:
    """Start the server; it ends at `point`."""
    words = [f"sandbox_server.{point.module}", *point.method.split("."), point.moment, str(point.number), point.about]
    server.start(["-c", _PROGRAM, *words])


def ends(server: Server, request: Callable[[], object] = lambda: None) -> None:
    """Send a request, and wait until the server has ended at its point."""
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(request)
        assert server.ended() == -SIGKILL, server.log.read_text()[-2000:]
        error = sent.exception(60)  # the answer may have come just before
    assert error is None or isinstance(error, httpx.TransportError), error
