"""The folders of FIFOs of one node's containers: made for each, and removed once no container mounts them."""

import secrets
import shutil
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from sandbox_server import telemetry

log = telemetry.logger(__name__)

_LEFT_S = 600.0  # a folder older than this without a container is removed; a creation takes less


class FifoFolders:
    """The folders of one node's containers, in a folder of their own."""

    def __init__(self, base: Path | None, node: str) -> None:
        """`base`: None if FIFOs are not wanted."""
        self._base = base
        self._node = node
        self.unused = "" if base else "SANDBOX_FIFO_DIR=off"
        """Why no folders are made; "" while they are."""

    def make(self) -> Path | None:
        """Make a folder with a random name for a container; None if FIFOs are not used."""
        if self._base is None or self.unused:
            return None
        folder = self._base / self._node / secrets.token_hex(8)
        try:
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir()
            folder.chmod(0o711)  # any user of the container may open a FIFO whose name it knows
        except OSError as e:
            self.give_up(f"no folder can be made: {e}; see SANDBOX_FIFO_DIR")
            return None
        return folder

    def give_up(self, why: str) -> None:
        """Make no folders from now on."""
        if not self.unused:
            self.unused = why
            log.info("the engine carries the bytes of shells, which costs an action some 2 ms of CPU", why=why)

    def remove_left(self, used: Collection[str]) -> None:
        """Remove folders without a container, which killed servers or commands of this node left behind.

        `used`: paths of the folders that the engine's containers mount.
        """
        before = time.time() - _LEFT_S
        for folder in self._folders():
            with suppress(OSError):
                if str(folder) not in used and folder.stat().st_mtime < before:
                    shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """Remove this node's own folder if it is empty."""
        if self._base is not None:
            with suppress(OSError):
                (self._base / self._node).rmdir()

    def _folders(self) -> Iterator[Path]:
        if self._base is None:
            return
        with suppress(OSError):
            for node in list(self._base.iterdir()):
                if node.name == self._node or node.name.startswith(f"{self._node}+"):
                    yield from list(node.iterdir())
