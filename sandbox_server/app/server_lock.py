"""One server per data directory, by a lock that the kernel frees however its holder dies; and one per node name."""

import asyncio
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox_server.app.data_folder import make_private
from sandbox_server.errors import ServiceError
from sandbox_server.state.nodes import Nodes

_CLAIMED = 4
"""Heartbeats that a claim of a name lasts; the first one takes a second or two to come. What a server that was killed
in between has claimed holds up the next one for so long."""
_LOOK_S = 0.1  # between two looks whether another server has started, or given up


class AlreadyServed(ServiceError):
    """Another server uses this data directory."""

    code = "already_served"


class NodeNameTaken(ServiceError):
    """Another server on the same Redis uses this node's name."""

    code = "node_name_taken"


@contextmanager
def only_server(data_dir: Path) -> Iterator[None]:
    """Hold the directory's lock for the duration of the block.

    Raises:
        AlreadyServed: another server holds it. DataDiskFull: the directory cannot be created.
    """
    make_private(data_dir)
    handle = os.open(data_dir / "server.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyServed(
                f"another server works on {data_dir}; stop it, or set another SANDBOX_DATA_DIR and SANDBOX_NODE_ID"
            ) from None
        yield
    finally:
        os.close(handle)


async def take_name(name: str, nodes: Nodes, *, beat_s: float) -> None:
    """Take the node's name, which no other server may use: both would end each other's sessions.

    Of several servers that start at once one gets it. After a restart it waits until the former server's next heartbeat
    is overdue. The URL is no evidence: hosts that were cloned, or replicas behind one address, have the same.

    Raises:
        NodeNameTaken: another server uses this name, or others keep starting with it. StateUnavailable.
    """
    lasts_s = _CLAIMED * beat_s
    until = time.monotonic() + 2 * lasts_s
    while not await nodes.claim(lasts_s):
        if time.monotonic() > until:
            raise NodeNameTaken(f"another server starts as node {name} of this Redis; set another SANDBOX_NODE_ID")
        await asyncio.sleep(_LOOK_S)
    try:
        await _check_name_is_free(name, nodes, beat_s=beat_s)
    except NodeNameTaken:
        await nodes.disclaim()
        raise


async def _check_name_is_free(name: str, nodes: Nodes, *, beat_s: float) -> None:
    there = await nodes.get(name)
    if there is None:
        return
    await asyncio.sleep(max(0.0, 2 * beat_s - await nodes.silent_s(name)))
    now = await nodes.get(name)
    if now is not None and (now.boot, now.beats) != (there.boot, there.beats):
        raise NodeNameTaken(f"another server, at {now.url}, is node {name} of this Redis; set another SANDBOX_NODE_ID")
