"""Ensures one server per data directory by a lock, which the kernel releases however the holder dies."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox_server.app.data_folder import make_private
from sandbox_server.errors import ServiceError


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
