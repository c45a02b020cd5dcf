"""Checkpoints of all nodes in an object store: each node uploads its own, and downloads those of other nodes.

Layout: blocks `blocks/xx/NAME`, and `checkpoints/SID/SEQ.json`, which is written last and names them. The service
removes only damaged objects; a lifecycle rule of the bucket removes old ones. A block that a new checkpoint shares is
uploaded again, so that the rule can go by age alone.
"""

import asyncio
import json
import time
from collections.abc import Sequence
from contextlib import suppress

from sandbox_server import telemetry
from sandbox_server.checkpoints.checkpoint import Checkpoint, fits
from sandbox_server.checkpoints.objects import Objects, ObjectsUnavailable
from sandbox_server.checkpoints.packing import MOST_PACKED, unpack
from sandbox_server.checkpoints.store import CheckpointDamaged, Checkpoints
from sandbox_server.errors import ServiceError
from sandbox_server.tasks import TaskSet

log = telemetry.logger(__name__)

_AT_ONCE = 8  # concurrent requests
_UPLOADS = 2  # concurrent uploads of checkpoints
_MOST_WAITING = 64  # queued uploads; further checkpoints are not uploaded
_AGAIN_S = 3600.0  # a block is not uploaded again within this time
_AWAY_S = 30.0  # pause of lookups after a failed one
_CLOSE_S = 3.0
_MOST_LISTED = 4 << 20  # bytes of a SEQ.json


class SharedCheckpoints:
    """The object store behind a node's own checkpoints."""

    def __init__(self, local: Checkpoints, objects: Objects, *, timeout_s: float) -> None:
        """`timeout_s`: limit on one upload, and on one lookup with its download."""
        self._local = local
        self._objects = objects
        self._timeout_s = timeout_s
        self._uploads = TaskSet("copies of checkpoints")
        self._turn = asyncio.Semaphore(_UPLOADS)
        self._requests = asyncio.Semaphore(_AT_ONCE)
        self._sent: dict[str, float] = {}
        """Block -> monotonic time of this process's last upload of it."""
        self._away_until = 0.0

    def save(self, checkpoint: Checkpoint) -> None:
        """Upload the checkpoint in the background. Returns at once."""
        if len(self._uploads) >= _MOST_WAITING:
            telemetry.CHECKPOINT_COPIES.labels("out", "skipped").inc()
            return
        self._uploads.start(self._save(checkpoint))

    async def close(self) -> None:
        """Wait a moment for running uploads, then cancel them."""
        await self._uploads.settle(_CLOSE_S)
        await self._uploads.cancel()

    async def fetch(
        self, sid: str, seq: int, image: str, *, above: int, undone: Sequence[tuple[int, int]], whole: bool
    ) -> Checkpoint | None:
        """Download the session's last fitting checkpoint into the node's own store; None if there is none.

        `above`: only checkpoints after this action; -1: any. For the other arguments see `checkpoint.fits`. An object
        store that does not answer also gives None, because checkpoints only save time.
        """
        if time.monotonic() < self._away_until:
            return None
        result, found = "none", None
        try:
            async with asyncio.timeout(self._timeout_s):
                for at in await self._listed(sid, above, seq):
                    checkpoint = await self._described(sid, at)
                    if checkpoint is None or not fits(checkpoint, seq, image, undone=undone, whole=whole):
                        continue
                    try:
                        result, found = "ok", await self._take(checkpoint)
                        break
                    except CheckpointDamaged as error:
                        result = "damaged"
                        log.error("checkpoint in the object store damaged", sid=sid, seq=at, error=str(error))
                        await self._objects.remove(_key(sid, at))
        except (ObjectsUnavailable, TimeoutError) as error:
            result, self._away_until = "failed", time.monotonic() + _AWAY_S
            log.warning("checkpoints of other nodes not looked up", sid=sid, error=str(error) or "timeout")
        except ServiceError as error:  # no room for it here
            result = error.code
            log.warning("checkpoint of another node not taken", sid=sid, code=error.code, error=error.detail)
        telemetry.CHECKPOINT_COPIES.labels("in", result).inc()
        return found

    # ---- out

    async def _save(self, checkpoint: Checkpoint) -> None:
        result = "ok"
        try:
            with self._local.held(checkpoint) as names:
                async with self._turn, asyncio.timeout(self._timeout_s):
                    now = time.monotonic()
                    self._sent = {name: at for name, at in self._sent.items() if now - at < _AGAIN_S}
                    async with asyncio.TaskGroup() as tasks:
                        for name in set(names) - self._sent.keys():
                            tasks.create_task(self._put(name))
                    described = json.dumps(checkpoint.to_json()).encode()
                    await self._objects.put(_key(checkpoint.sid, checkpoint.seq), described)
        except* (ObjectsUnavailable, TimeoutError, OSError) as group:
            result = "failed"
            error = str(group.exceptions[0]) or f"not done within {self._timeout_s:g} s (SANDBOX_CHECKPOINT_TIMEOUT_S)"
            log.warning("checkpoint not copied", sid=checkpoint.sid, seq=checkpoint.seq, error=error)
        telemetry.CHECKPOINT_COPIES.labels("out", result).inc()

    async def _put(self, name: str) -> None:
        async with self._requests:
            packed = await asyncio.to_thread(self._local.packed, name)
            await self._objects.put(_block(name), packed)
        self._sent[name] = time.monotonic()

    # ---- in

    async def _listed(self, sid: str, above: int, most: int) -> list[int]:
        """The actions after which the session's checkpoints were taken, last first."""
        leaves = [
            key.rpartition("/")[2].removesuffix(".json") for key in await self._objects.keys(f"checkpoints/{sid}")
        ]
        return sorted((int(leaf) for leaf in leaves if leaf.isdecimal() and above < int(leaf) <= most), reverse=True)

    async def _described(self, sid: str, seq: int) -> Checkpoint | None:
        described = await self._objects.get(_key(sid, seq), _MOST_LISTED)
        with suppress(ValueError, KeyError, TypeError):
            checkpoint = Checkpoint.from_json(json.loads(described or b""))
            if (checkpoint.sid, checkpoint.seq) == (sid, seq):
                return checkpoint
        return None  # removed meanwhile, or not a checkpoint

    async def _take(self, checkpoint: Checkpoint) -> Checkpoint:
        """Download a checkpoint. Raises CheckpointDamaged, ObjectsUnavailable; NotForkable, DataDiskFull: no room."""
        async with self._local.writer() as writer:
            for part, names in checkpoint.blocks.items():
                for first in range(0, len(names), _AT_ONCE):
                    some = names[first : first + _AT_ONCE]
                    for block in await asyncio.gather(*map(self._get, some)):
                        await writer.add_block(part, block)
            return await self._local.keep(writer, checkpoint)

    async def _get(self, name: str) -> bytes:
        async with self._requests:
            packed = await self._objects.get(_block(name), MOST_PACKED)
        try:
            return await asyncio.to_thread(unpack, name, packed or b"")
        except (OSError, ValueError) as error:
            raise CheckpointDamaged(str(error)) from error


def _key(sid: str, seq: int) -> str:
    return f"checkpoints/{sid}/{seq}.json"


def _block(name: str) -> str:
    return f"blocks/{name[:2]}/{name}"
