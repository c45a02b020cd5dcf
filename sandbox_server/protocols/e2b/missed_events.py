"""Names that came and went between two looks of a watch (listings of its folder), neither of which shows them.

The kernel reports them (`sandbox.inotify`) if this server runs on the engine's host as root. Otherwise, and for folders
behind a link, in a mount or beyond the bounds below, such names are not reported.
"""

import asyncio
import os
import posixpath
from collections.abc import Container, Iterable, Mapping
from contextlib import closing, suppress
from weakref import WeakKeyDictionary

from sandbox_server.errors import ServiceError
from sandbox_server.protocols.e2b.watches import Watch
from sandbox_server.sandbox.inotify import EventMask, Inotify
from sandbox_server.sandbox.inspector import ContainerInspector
from sandbox_server.sandbox.tree import HostAccessFailed, Tree

_FOLDERS, _ALL_FOLDERS = 1000, 16_384
"""Maximum number of followed folders of a watch, and of all watches. Each takes 1 KB of the kernel's memory, and all
programs of the host share the kernel's limit."""
_KEPT = 1000
"""Maximum number of events noted for a watch between two looks."""
_KINDS = {
    EventMask.CREATED: "CREATE",
    EventMask.MOVED_TO: "CREATE",
    EventMask.WRITTEN: "WRITE",
    EventMask.CHANGED: "CHMOD",
    EventMask.MOVED_FROM: "RENAME",
    EventMask.DELETED: "REMOVE",
}


class MissedWatchEvents:
    """Events in the folders of this process's watches; its references to the watches are weak."""

    def __init__(self) -> None:
        self._kernel = Inotify()
        self._watched: dict[int, WeakKeyDictionary[Watch, str]] = {}
        """The kernel's number of a folder -> watches that have it -> the folder's path relative to the watch's."""
        self._followed: WeakKeyDictionary[Watch, set[str]] = WeakKeyDictionary()
        self._told: WeakKeyDictionary[Watch, list[tuple[str, str]]] = WeakKeyDictionary()

    async def follow(
        self, watch: Watch, folders: Iterable[str], inspector: ContainerInspector, container_id: str
    ) -> None:
        """Follow these folders too; their paths are relative to the watch's."""
        followed = self._followed.setdefault(watch, set())
        new = [folder for folder in folders if folder not in followed][: _FOLDERS - len(followed)]
        if not new:
            return
        followed.update(new)
        for number in [number for number, watches in self._watched.items() if not watches]:
            self._kernel.remove(number)
            del self._watched[number]
        new = new[: max(0, _ALL_FOLDERS - len(self._watched))]
        with suppress(HostAccessFailed, ServiceError):
            tree = await inspector.tree(container_id)
            # the thread closes the tree: a caller that is cancelled must not close it under the thread
            added = await asyncio.shield(asyncio.to_thread(self._added, tree, watch.path, new))
            for folder, number in added.items():
                self._watched.setdefault(number, WeakKeyDictionary())[watch] = folder

    def _added(self, tree: Tree, path: str, folders: Iterable[str]) -> Mapping[str, int]:
        numbers = {}
        with closing(tree):
            for folder in folders:
                with suppress(OSError):
                    opened = tree.files.open(os.fsencode(f"{path}/{folder}".rstrip("/")))
                    numbers[folder] = self._kernel.add(opened)
        return numbers

    def read(self) -> None:
        """Note the kernel's new events. Call it before a look, so that later events are left for the next look."""
        for number, mask, name in self._kernel.events():
            if mask is EventMask.UNWATCHED:
                self._watched.pop(number, None)
            elif name and (kind := _KINDS.get(mask)):
                for watch, folder in self._watched.get(number, {}).items():
                    told = self._told.setdefault(watch, [])
                    event = (f"{folder}/{os.fsdecode(name)}".lstrip("/"), kind)
                    if len(told) < _KEPT and event not in told[-1:]:
                        told.append(event)

    def take(self, watch: Watch, *shown: Container[str]) -> list[tuple[str, str]]:
        """Return (name, kind) of the noted events with names that no listing in `shown` has, oldest first.

        Forgets all noted events. Leaves out events in a folder that no listing has: after a folder was moved away, the
        kernel still reports its events, here with its old path.
        """
        told = self._told.pop(watch, [])
        return [(name, kind) for name, kind in told if not _in(name, shown) and _in(posixpath.dirname(name), shown)]


def _in(name: str, listings: Iterable[Container[str]]) -> bool:
    return not name or any(name in listing for listing in listings)
