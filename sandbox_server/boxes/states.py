"""The files of boxes: captured as checkpoints, and restored in fresh containers of the same image.

A box has no shell state and no journal, so nothing else can restore its files. Its checkpoint is therefore permanent
until it is dropped by name. Its `sid` is the name; its `seq` is 0.
"""

import time
from collections.abc import Sequence

from sandbox_server import clock, telemetry
from sandbox_server.checkpoints.capture import capture_files, restore_files
from sandbox_server.checkpoints.checkpoint import Checkpoint
from sandbox_server.checkpoints.store import Checkpoints
from sandbox_server.sandbox.base import Runtime, Sandbox


class BoxStates:
    """The checkpoints of this node's boxes."""

    def __init__(self, runtime: Runtime, checkpoints: Checkpoints, *, timeout_s: float) -> None:
        """`timeout_s`: limit on one capture, and on one restore (SANDBOX_CHECKPOINT_TIMEOUT_S)."""
        self._runtime = runtime
        self._checkpoints = checkpoints
        self._timeout_s = timeout_s
        self._taking: set[str] = set()

    async def take(self, sandbox: Sandbox, name: str) -> Checkpoint:
        """Checkpoint the files of a box's container; replaces an earlier checkpoint called `name`.

        Programs may change files while they are read.

        Raises:
            NotForkable: the contents of the box prevent it, or there is no room. DataDiskFull. SandboxLost,
            EngineUnavailable.
        """
        began = time.monotonic()
        image = (await self._runtime.inspector.inspect(sandbox.container_id)).image
        self._taking.add(name)
        try:
            async with self._checkpoints.writer() as writer:
                left_out = await capture_files(sandbox, self._runtime.inspector, writer, timeout_s=self._timeout_s)
                made = Checkpoint(name, 0, image, clock.now(), left_out=left_out, stands=True)
                made = await self._checkpoints.keep(writer, made)
        finally:
            self._taking.discard(name)
        telemetry.CHECKPOINT_SECONDS.labels("take").observe(time.monotonic() - began)
        return made

    async def restore(self, checkpoint: Checkpoint, sandbox: Sandbox) -> None:
        """Restore the box's files in a fresh container of the checkpoint's image.

        Raises:
            CheckpointDamaged: the checkpoint is incomplete. NotForkable: the files cannot be restored. SandboxDiskFull,
            SandboxLost, EngineUnavailable.
        """
        began = time.monotonic()
        await restore_files(
            sandbox, checkpoint, self._checkpoints, timeout_s=self._timeout_s, inspector=self._runtime.inspector
        )
        telemetry.CHECKPOINT_SECONDS.labels("restore").observe(time.monotonic() - began)

    def find(self, name: str) -> Checkpoint | None:
        """The checkpoint with this name on this node, if any."""
        return self._checkpoints.find(name, 0)

    def drop(self, name: str) -> None:
        """Remove it. Idempotent."""
        if (found := self._checkpoints.find(name, 0)) is not None:
            self._checkpoints.drop(found)

    async def release(self, checkpoint: Checkpoint) -> None:
        """Allow its removal to make room, because it is stored elsewhere too."""
        await self._checkpoints.release(checkpoint)

    def size_bytes(self, checkpoint: Checkpoint) -> int:
        """Its size on disk in bytes."""
        return self._checkpoints.stored_bytes(checkpoint)

    def names(self) -> Sequence[str]:
        """Names of all permanent checkpoints of boxes here, without those in the making."""
        return [one.sid for one in self._checkpoints.permanent() if one.seq == 0 and one.sid not in self._taking]
