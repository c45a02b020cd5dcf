"""Allows one server per data directory, by a lock that the kernel frees when its holder dies, and one per node name."""

import asyncio
import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sandbox_server.app.data_folder import make_private
from sandbox_server.errors import ServiceError
from sandbox_server.state.nodes import Nodes

_CLAIMED = 4
"""Duration of a claim of a name, in periods of the heartbeat; the first heartbeat comes after a second or two."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
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


def place_of(data_dir: Path) -> str:
    """Identifies this directory and the boot of its host. Who holds its lock knows that the former server is dead."""
    folder = data_dir.stat()
    with suppress(OSError):
        return f"{_BOOT_ID.read_text().strip()}/{folder.st_dev}/{folder.st_ino}"
    return secrets.token_hex(8)  # the boot is unknown: equals the place of no former server


async def take_name(name: str, nodes: Nodes, *, place: str, beat_s: float) -> None:
    """Take the node's name, which no other server may use: both would end each other's sessions.

    If several servers start at once, one of them gets the name. If the former server ran in another place (`place_of`),
    this waits until the next heartbeat of that server is overdue. URLs are not compared, because cloned hosts, or
    replicas behind one address, have the same URL.

    Raises:
        NodeNameTaken: another server uses this name, or others keep starting with it. StateUnavailable.
    """
    lasts_s = _CLAIMED * beat_s
    until = time.monotonic() + 2 * lasts_s
    while not await nodes.claim(place, lasts_s):
        if time.monotonic() > until:
            raise NodeNameTaken(f"another server starts as node {name} of this Redis; set another SANDBOX_NODE_ID")
        await asyncio.sleep(_LOOK_S)
    there = await nodes.get(name)
    if there is None or there.place == place:
        return
    await asyncio.sleep(max(0.0, 2 * beat_s - await nodes.silent_s(name)))
    now = await nodes.get(name)
    if now is not None and (now.boot, now.beats) != (there.boot, there.beats):
        await nodes.disclaim(place)
        raise NodeNameTaken(f"another server, at {now.url}, is node {name} of this Redis; set another SANDBOX_NODE_ID")
