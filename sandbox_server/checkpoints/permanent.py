"""Permanent checkpoints in an object store: those of snapshots, from which any node may start boxes.

Layout: `snapshots/NODE/NAME/blocks/BLOCK`, then `snapshots/NODE/NAME/checkpoint.json`, which is written last. Each
snapshot has its own copy of its blocks, so that it can be removed as a whole. The bucket must not expire these objects
by age.
"""

import asyncio
import json
from collections.abc import Collection, Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from sandbox_server import telemetry
from sandbox_server.checkpoints.checkpoint import Checkpoint
from sandbox_server.checkpoints.objects import Objects, ObjectsUnavailable
from sandbox_server.checkpoints.packing import MOST_PACKED, unpack
from sandbox_server.checkpoints.store import CheckpointDamaged, Checkpoints
from sandbox_server.errors import InfrastructureError

log = telemetry.logger(__name__)

T = TypeVar("T")

_FOLDER = "snapshots"
_AT_ONCE = 8  # concurrent requests
_MOST_LISTED = 4 << 20  # bytes of a checkpoint.json


class PermanentCheckpoints:
    """The object store for the snapshots of all nodes. All methods raise InfrastructureError if it does not answer."""

    def __init__(self, local: Checkpoints, objects: Objects, *, node: str, timeout_s: float) -> None:
        """`timeout_s`: limit on each call."""
        self._local = local
        self._objects = objects
        self._node = node
        self._timeout_s = timeout_s

    async def save(self, checkpoint: Checkpoint) -> None:
        """Copy a checkpoint of this node to the object store."""
        folder = _folder(self._node, checkpoint.sid)
        with self._local.held(checkpoint) as names:
            await self._bounded(self._save(folder, checkpoint, sorted(set(names))), "out")

    async def fetch(self, node: str, name: str) -> Checkpoint | None:
        """Download the checkpoint that `node` uploaded into this node's store, where it may be removed to make room.

        Returns None if it is missing or damaged.

        Raises:
            NotForkable, DataDiskFull: no room for it on this node.
        """
        return await self._bounded(self._fetch(_folder(node, name), name), "in")

    async def remove(self, node: str, name: str) -> None:
        """Remove what `save` of that node wrote. Idempotent."""
        await self._bounded(self._remove(_folder(node, name)), "removed")

    async def tidy(self, names: Collection[str]) -> None:
        """Remove everything that this node uploaded except these."""
        await self._bounded(self._tidy(names), "removed")

    async def _bounded(self, work: Coroutine[Any, Any, T], way: str) -> T:
        result = "ok"
        try:
            async with asyncio.timeout(self._timeout_s):
                return await work
        except (ObjectsUnavailable, TimeoutError) as error:
            result = "failed"
            why = str(error) or f"no answer within {self._timeout_s:g} s (SANDBOX_CHECKPOINT_TIMEOUT_S)"
            raise InfrastructureError(f"the object store of SANDBOX_CHECKPOINTS_URL is away: {why}") from error
        finally:
            telemetry.CHECKPOINT_COPIES.labels(way, result).inc()

    async def _save(self, folder: str, checkpoint: Checkpoint, names: list[str]) -> None:
        for first in range(0, len(names), _AT_ONCE):
            await asyncio.gather(*(self._put(folder, name) for name in names[first : first + _AT_ONCE]))
        described = json.dumps(replace(checkpoint, stands=False).to_json()).encode()
        await self._objects.put(f"{folder}/checkpoint.json", described)

    async def _put(self, folder: str, name: str) -> None:
        try:
            packed = await asyncio.to_thread(self._local.packed, name)
        except OSError as error:
            raise InfrastructureError(f"a block of the checkpoint is gone: {error}") from error
        await self._objects.put(f"{folder}/blocks/{name}", packed)

    async def _fetch(self, folder: str, name: str) -> Checkpoint | None:
        described = await self._objects.get(f"{folder}/checkpoint.json", _MOST_LISTED)
        try:
            checkpoint = Checkpoint.from_json(json.loads(described or b""))
            if checkpoint.sid != name:
                raise ValueError(f"it is of {checkpoint.sid}")
            async with self._local.writer() as writer:
                for part, names in checkpoint.blocks.items():
                    for first in range(0, len(names), _AT_ONCE):
                        some = names[first : first + _AT_ONCE]
                        for block in await asyncio.gather(*(self._block(folder, one) for one in some)):
                            await writer.add_block(part, block)
                return await self._local.keep(writer, checkpoint)
        except (ValueError, KeyError, TypeError, CheckpointDamaged) as error:
            log.error("snapshot in the object store missing or damaged", folder=folder, error=str(error))
            return None

    async def _block(self, folder: str, name: str) -> bytes:
        packed = await self._objects.get(f"{folder}/blocks/{name}", MOST_PACKED)
        try:
            return await asyncio.to_thread(unpack, name, packed or b"")
        except (OSError, ValueError) as error:
            raise CheckpointDamaged(str(error)) from error

    async def _remove(self, folder: str) -> None:
        await self._objects.remove(f"{folder}/checkpoint.json")  # first: without it the blocks are not used
        keys = await self._objects.keys(folder)
        for first in range(0, len(keys), _AT_ONCE):
            await asyncio.gather(*(self._objects.remove(key) for key in keys[first : first + _AT_ONCE]))

    async def _tidy(self, names: Collection[str]) -> None:
        found = set()
        for key in await self._objects.keys(f"{_FOLDER}/{self._node}"):
            with suppress(IndexError):
                found.add(key.split(f"{_FOLDER}/{self._node}/", 1)[1].split("/", 1)[0])
        for name in found - set(names):
            log.info("snapshot without an owner removed from the object store", name=name)
            await self._remove(_folder(self._node, name))


def _folder(node: str, name: str) -> str:
    return f"{_FOLDER}/{node}/{name}"
