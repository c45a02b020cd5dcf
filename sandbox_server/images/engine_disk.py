"""Keeps room on the engine's disk: removes images before it is full, and refuses new work if that does not help.

From the high mark on, images are removed until usage is below the low mark, least recently used first: prepared
images, which can be made again, then task images that can be pulled again. Images that are in use by a container or
another image, pinned, or not in the catalogue are never removed. From the third mark on, starts and gradings are
refused and parked containers are removed, while there is still room for live sessions.
"""

import os
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from sandbox_server import clock, telemetry
from sandbox_server.sandbox.base import Runtime, StoredImage
from sandbox_server.sandbox.faults import Faults
from sandbox_server.state.image_uses import ImageUses

log = telemetry.logger(__name__)


@dataclass(frozen=True, slots=True)
class DiskMarks:
    """Thresholds of disk usage in per cent."""

    high: float
    low: float
    refuse: float


@dataclass(frozen=True, slots=True)
class ImageRules:
    """Which images may be removed."""

    prepared: str
    """Repository of the images that this service makes, and makes again when needed."""
    pinned: Sequence[str]
    """Patterns of names of images that are never removed."""
    pull: bool
    """Whether task images from a registry may be removed, because they can be pulled again."""
    boxes: Sequence[str] = ()
    """Patterns of images that boxes may run; these are pulled and removed like task images."""

    def is_prepared(self, image: StoredImage) -> bool:
        """Whether this service made the image."""
        return any(name.rpartition(":")[0] == self.prepared for name in image.names)

    def is_pinned(self, image: StoredImage) -> bool:
        """Whether one of its names is pinned."""
        return any(fnmatchcase(name, pattern) for name in image.names for pattern in self.pinned)

    def may_go(self, image: StoredImage, catalogue: Collection[str]) -> bool:
        """Whether the image may be removed; `catalogue`: names of all task images."""
        if image.used or not image.names or self.is_pinned(image):
            return False
        if self.is_prepared(image):
            return True
        return (
            self.pull
            and image.pulled
            and all(
                name in catalogue or any(fnmatchcase(name, pattern) for pattern in self.boxes) for name in image.names
            )
        )


def used_pct(path: Path) -> float:
    """Usage in per cent of the disk with `path`, of its bytes or of its inodes, whichever is more.

    As df computes it: blocks reserved for root count as used. Many empty files take all inodes and hardly any byte.
    """
    stat = os.statvfs(path)
    used, inodes = stat.f_blocks - stat.f_bfree, stat.f_files - stat.f_ffree
    return 100.0 * max(used / max(1, used + stat.f_bavail), inodes / max(1, inodes + stat.f_favail))


def last_use(image: StoredImage, uses: dict[str, float]) -> float:
    """Unix time of the image's last use; of its creation if it was never used."""
    return max((uses[name] for name in image.names if name in uses), default=image.created_at)


class EngineDisk:
    """Watches one disk."""

    def __init__(
        self,
        runtime: Runtime,
        uses: ImageUses,
        catalogue: Callable[[], Awaitable[Collection[str]]],
        faults: Faults,
        *,
        path: Path,
        marks: DiskMarks,
        rules: ImageRules,
    ) -> None:
        """`catalogue()` returns the names of all task images; called only before images are removed."""
        self._runtime = runtime
        self._uses = uses
        self._catalogue = catalogue
        self._faults = faults
        self._path = path
        self._marks = marks
        self._rules = rules

    async def look(self) -> None:
        """Check the disk once: report whether it is full, remove images if necessary, report again."""
        self._tell()
        await self._uses.note(self._runtime.images.take_uses())
        if used_pct(self._path) >= self._marks.high:
            await self._clear()
            self._tell()

    def _tell(self) -> None:
        used = used_pct(self._path)
        telemetry.DISK_USED.set(used / 100)
        text = (
            f"the engine's disk ({self._path}) is {used:.0f} % full (bytes or inodes), and nothing new begins from"
            f" SANDBOX_DISK_REFUSE_PCT={self._marks.refuse:g} on; free some: `docker system df`,"
            " `sandbox-server images list`"
        )
        self._faults.tell("disk", text if used >= self._marks.refuse else "")

    async def _clear(self) -> None:
        """Remove images, one by one, until usage is below the low mark or no image may be removed."""
        catalogue = await self._catalogue()
        kept: set[str] = set()  # digests of images that could not be removed: they have come into use
        while used_pct(self._path) >= self._marks.low:
            uses = await self._uses.all()
            images = [i for i in await self._runtime.images.stored() if i.digest not in kept]
            images = [image for image in images if self._rules.may_go(image, catalogue)]
            if not images:
                log.warning("no image may go", path=str(self._path), used_pct=round(used_pct(self._path), 1))
                return
            image = min(images, key=lambda image: (not self._rules.is_prepared(image), last_use(image, uses)))
            gone = [name for name in image.names if await self._runtime.images.remove(name)]
            await self._uses.forget(gone)
            if len(gone) < len(image.names):
                kept.add(image.digest)
                continue
            telemetry.IMAGES_REMOVED.inc()
            log.info(
                "image removed for room",
                image=image.names[0],
                mb=image.size_bytes >> 20,
                unused_s=round(clock.now() - last_use(image, uses)),
            )
