"""Counts the files in the writable layers of containers, which the engine's sizes hardly tell.

The engine adds up the lengths of files. A file of one byte takes a block of the disk all the same, a folder takes one
and has no length, an empty file takes an inode: a policy could fill its host's disk within any limit of bytes.
"""

import asyncio
import subprocess
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress

from sandbox_server.errors import ServiceError
from sandbox_server.sandbox.docker.engine import Engine

ENTRY_BYTES = 4096
"""What a file or folder counts beside the file's length: a block is the most that it takes unseen."""

_KNOWN = 4096  # containers, most of them gone; more than a node has at a time


class LayerFiles:
    """Counts by `du`, where the engine is on this host and overlayfs keeps a layer in a folder of it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._uppers: dict[str, str] = {}
        """Container id -> its layer's folder; "" if there is none."""

    async def of(self, container_ids: Collection[str], *, timeout_s: float) -> Mapping[str, int]:
        """Files and folders by container id; a layer that cannot be counted within `timeout_s` is left out."""
        if not self._engine.local:
            return {}
        uppers = {await self._upper(container_id): container_id for container_id in container_ids}
        uppers.pop("", None)
        if not uppers:
            return {}
        said = await asyncio.to_thread(_count, uppers, timeout_s)
        lines = (line.split("\t", 1) for line in said.splitlines() if "\t" in line)
        return {uppers[folder]: int(count) for count, folder in lines if folder in uppers}

    async def _upper(self, container_id: str) -> str:
        if (known := self._uppers.get(container_id)) is not None:
            return known
        if len(self._uppers) >= _KNOWN:
            self._uppers.clear()
        with suppress(ServiceError):  # it is gone
            driver = (await self._engine.call(lambda api: api.inspect_container(container_id))).get("GraphDriver") or {}
            overlay = driver.get("Name") in ("overlay2", "overlay")
            upper = str((driver.get("Data") or {}).get("UpperDir", "")) if overlay else ""
            self._uppers[container_id] = upper
            return upper
        return ""


def _count(folders: Iterable[str], timeout_s: float) -> str:
    """What `du` says of the folders; it follows paths of any length. "" if it does not end, or is not there."""
    try:
        words = ["nice", "du", "--inodes", "-s", "--", *folders]
        done = subprocess.run(words, capture_output=True, timeout=timeout_s, check=False)
        return done.stdout.decode(errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        return ""
