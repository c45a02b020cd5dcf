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
    """Another server works on this data directory."""

    code = "already_served"


class NodeNameTaken(ServiceError):
    """Another server on the same Redis has this node's name."""

    code = "node_name_taken"


@contextmanager
def only_server(data_dir: Path) -> Iterator[None]:
    """Hold the directory for the length of the block.

    Raises:
        AlreadyServed: somebody else holds it. DataDiskFull: it cannot be made.
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
    """Two servers of one node name would end each other's sessions.

    Raises:
        NodeNameTaken: another server beats under this one's name. StateUnavailable.
    """
    there = await nodes.get(name)
    if there is None or there.url == url:
        return  # a former server of ours; this one has its address
    await asyncio.sleep(2 * beat_s)
    now = await nodes.get(name)
    if now is not None and (now.boot, now.beats) != (there.boot, there.beats):
        raise NodeNameTaken(f"another server, at {now.url}, is node {name} of this Redis; set another SANDBOX_NODE_ID")
