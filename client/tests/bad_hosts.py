"""Hosts that are bad, each in its own way; all on the loopback."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

_HELD: list[socket.socket] = []


@contextlib.contextmanager
def frozen() -> Iterator[str]:
    """Takes connections and never answers, as a stopped process does."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@contextlib.contextmanager
def cut_off() -> Iterator[str]:
    """Does not even answer a SYN: its queue of connections is full, so the kernel drops them."""
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(3):
            filling = stack.enter_context(socket.socket())
            filling.setblocking(False)
            filling.connect_ex(listening.getsockname())
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def dead() -> str:
    """Refuses connections. Nobody gets its port by chance; a server that sets SO_REUSEADDR can take it."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    _HELD.append(held)
    return f"http://127.0.0.1:{held.getsockname()[1]}"
