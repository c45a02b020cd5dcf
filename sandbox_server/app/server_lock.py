"""One server per data directory, by a lock that the kernel frees however its holder dies; and one per node name."""

import asyncio
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox_server.app.data_folder import make_private
from sandbox_server.errors import ServiceError
from sandbox_server.state.nodes import Nodes


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


async def check_name_is_free(name: str, url: str, nodes: Nodes, *, beat_s: float) -> None:
    """Check that no other server uses this node's name, because both would end each other's sessions.

    Raises:
        NodeNameTaken: another server sends heartbeats under this name. StateUnavailable.
    """
    there = await nodes.get(name)
    if there is None or there.url == url:
        return  # the record of this node's previous server, which had the same URL
    await asyncio.sleep(2 * beat_s)
    now = await nodes.get(name)
    if now is not None and (now.boot, now.beats) != (there.boot, there.beats):
        raise NodeNameTaken(f"another server, at {now.url}, is node {name} of this Redis; set another SANDBOX_NODE_ID")
