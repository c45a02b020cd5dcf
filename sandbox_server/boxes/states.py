"""The files of boxes: taken as checkpoints, and put into fresh containers of the same image.

A box has no shell and no journal: its files are all that there is of it, and nothing else can bring them back. So such
a checkpoint stands until it is dropped by name. Its `sid` is the name; its `seq` is 0.
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
        """`timeout_s`: limit on taking one, and on restoring one (SANDBOX_CHECKPOINT_TIMEOUT_S)."""
        self._runtime = runtime
        self._checkpoints = checkpoints
        self._timeout_s = timeout_s
        self._taking: set[str] = set()

    async def take(self, sandbox: Sandbox, name: str) -> Checkpoint:
        """A checkpoint of the box's container as it is now, stored under `name` in place of a former one.

        Files that programs change meanwhile are as they are when they are read.

        Raises:
            NotForkable: what is in the box prevents it, or there is no room. DataDiskFull. SandboxLost,
            EngineUnavailable.
        """
        began = time.monotonic()
        image = (await self._runtime.outside.see(sandbox.container_id)).image
        self._taking.add(name)
        try:
            async with self._checkpoints.writing() as writing:
                left_out = await capture_files(sandbox, self._runtime.outside, writing, timeout_s=self._timeout_s)
                made = Checkpoint(name, 0, image, clock.now(), left_out=left_out, stands=True)
                made = await self._checkpoints.keep(writing, made)
        finally:
            self._taking.discard(name)
        telemetry.CHECKPOINT_SECONDS.labels("take").observe(time.monotonic() - began)
        return made

    async def fill(self, checkpoint: Checkpoint, sandbox: Sandbox) -> None:
        """Give a fresh container of the checkpoint's image the box's files.

        Raises:
            Damaged: the checkpoint is not whole. NotForkable: they cannot be restored. SandboxLost, EngineUnavailable.
        """
        began = time.monotonic()
        await restore_files(
            sandbox, checkpoint, self._checkpoints, timeout_s=self._timeout_s, outside=self._runtime.outside
        )
        telemetry.CHECKPOINT_SECONDS.labels("restore").observe(time.monotonic() - began)

    def find(self, name: str) -> Checkpoint | None:
        """The checkpoint of this name; None: this node has none, or not any more."""
        return self._checkpoints.find(name, 0)

    def drop(self, name: str) -> None:
        """Remove it; no error if there is none."""
        if (found := self._checkpoints.find(name, 0)) is not None:
            self._checkpoints.drop(found)

    async def release(self, checkpoint: Checkpoint) -> None:
        """Let it be removed to make room: it can be had elsewhere."""
        await self._checkpoints.release(checkpoint)

    def size_bytes(self, checkpoint: Checkpoint) -> int:
        """What it takes on the disk."""
        return self._checkpoints.stored_bytes(checkpoint)

    def names(self) -> Sequence[str]:
        """Those of all that stand here, without those that are being taken."""
        return [one.sid for one in self._checkpoints.standing() if one.seq == 0 and one.sid not in self._taking]
