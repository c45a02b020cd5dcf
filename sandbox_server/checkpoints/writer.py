"""Writes a checkpoint: its streams are cut into blocks, which are stored once complete."""

import asyncio
import json
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox_server.checkpoints.blocks import Cutter
from sandbox_server.checkpoints.checkpoint import Checkpoint, Part
from sandbox_server.checkpoints.packing import name_of
from sandbox_server.errors import NotForkable

if TYPE_CHECKING:
    from sandbox_server.checkpoints.store import Checkpoints

_AT_ONCE = 1 << 16  # bytes hashed on the event loop; more are hashed on a thread


class CheckpointWriter:
    """Writes one checkpoint."""

    def __init__(self, store: "Checkpoints") -> None:
        self._store = store
        self._cutters: dict[Part, Cutter] = {}
        self._blocks: dict[Part, list[str]] = {}
        self._sizes: Counter[Part] = Counter()
        self._written = 0

    async def add(self, part: Part, data: bytes) -> None:
        """Append `data` to a part. Raises NotForkable: it is too large. DataDiskFull. InfrastructureError."""
        await self.add_cut(part, len(data), [(None, block) for block in self._cutter(part).feed(data)])

    def cut(self, part: Part, data: bytes | bytearray) -> list[tuple[str | None, bytes]]:
        """Names and contents of the blocks that `data` completes in a part, for `add_cut`. For use on a thread."""
        return [(name_of(block), block) for block in self._cutter(part).feed(data)]

    async def add_cut(self, part: Part, size: int, blocks: Sequence[tuple[str | None, bytes]]) -> None:
        """Append blocks that `size` more bytes of a part completed, with their names if known. Raises as `add`."""
        self._sizes[part] += size
        await self._keep([part] * len(blocks), blocks)

    async def add_block(self, part: Part, block: bytes) -> None:
        """Append a block of another store to a part, unchanged. Raises as `add`."""
        self._sizes[part] += len(block)
        await self._keep([part], [(None, block)])

    async def end(self, checkpoint: Checkpoint, path: Path) -> Checkpoint:
        """Write the remaining blocks and the description of the checkpoint; return the checkpoint. Raises as `add`."""
        rests = [(part, rest) for part, cutter in self._cutters.items() if (rest := cutter.rest())]
        names = await named([rest for _, rest in rests])
        whole = [(name, rest) for name, (_, rest) in zip(names, rests, strict=True)]
        blocks = {part: tuple(names) for part, names in self._blocks.items()}
        for (part, _), name in zip(rests, names, strict=True):
            blocks[part] = (*blocks.get(part, ()), name)
        made = replace(checkpoint, blocks=blocks, sizes=dict(self._sizes))
        description = json.dumps(made.to_json()).encode()

        def describe(written: int) -> None:
            if self._fits(written):
                write(path, description)

        await self._keep([part for part, _ in rests], whole, describe)
        return made

    def _cutter(self, part: Part) -> Cutter:
        return self._cutters.setdefault(part, Cutter())

    def _fits(self, more: int) -> bool:
        return self._written + more <= self._store.most_bytes

    async def _keep(
        self,
        parts: Sequence[Part],
        blocks: Sequence[tuple[str | None, bytes]],
        then: Callable[[int], None] | None = None,
    ) -> None:
        """Append blocks to their parts in one call, since each call takes a thread. `then`: as in `Checkpoints.put`."""
        if not blocks and then is None:
            return
        names, written = await self._store.put(blocks, then)
        for part, name in zip(parts, names, strict=True):
            self._blocks.setdefault(part, []).append(name)
        fits = self._fits(written)
        self._written += written
        if not fits:
            raise NotForkable(
                f"its changed files take more than {self._store.most_bytes >> 20} MiB (SANDBOX_CHECKPOINTS_MB)"
            )


def write(path: Path, data: bytes) -> None:
    """Write a file atomically. Blocks. Raises OSError."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    part = path.with_name(f"{secrets.token_hex(8)}.part")
    try:
        part.write_bytes(data)
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise


async def named(blocks: Sequence[bytes]) -> list[str]:
    """The names of blocks."""
    if sum(map(len, blocks)) < _AT_ONCE:
        return list(map(name_of, blocks))
    return await asyncio.to_thread(lambda: list(map(name_of, blocks)))
