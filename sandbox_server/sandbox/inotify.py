"""Watches folders that are open in this process, by the kernel's inotify.

The process has one queue for all watches, because the kernel allows a user only a few (128 by default). The queue is
read only on demand, so a container that causes events as fast as it can costs little; events that do not fit are lost.
"""

import ctypes
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import IntFlag
from typing import NamedTuple

_LIBC = ctypes.CDLL(None, use_errno=True)
_HEAD = struct.Struct("iIII")  # of struct inotify_event: watch, mask, cookie, length of the name
_READ_BYTES = 64 << 10
_MOST_BYTES = 128 << 10
"""Limit on the bytes that one call of `events` reads, some 4,000 events."""


class EventMask(IntFlag):
    """IN_*: one of them is in each event."""

    WRITTEN = 0x2
    CHANGED = 0x4
    MOVED_FROM = 0x40
    MOVED_TO = 0x80
    CREATED = 0x100
    DELETED = 0x200
    UNWATCHED = 0x8000


_FOLDER_EVENTS = 0x3C6
_ONLY_FOLDERS = 0x01000000
_TOLD = _FOLDER_EVENTS | EventMask.UNWATCHED


class Event(NamedTuple):
    """Something that happened to `name` in a watched folder."""

    watch: int
    mask: EventMask
    name: bytes


class Inotify:
    """The kernel's queue of events."""

    def __init__(self) -> None:
        self._fd = -1
        with suppress(OSError):  # without a queue, every `add` fails
            self._fd = _called(_LIBC.inotify_init1, os.O_NONBLOCK | os.O_CLOEXEC)

    def add(self, folder: int) -> int:
        """Watch an open folder; returns the watch's number, one per folder. Raises OSError: the kernel has no room."""
        path = f"/proc/self/fd/{folder}".encode()
        return _called(_LIBC.inotify_add_watch, self._fd, path, _FOLDER_EVENTS | _ONLY_FOLDERS)

    def remove(self, watch: int) -> None:
        """End a watch; no error if it has ended already, for example because its folder was deleted."""
        with suppress(OSError):
            _called(_LIBC.inotify_rm_watch, self._fd, watch)

    def events(self) -> Iterator[Event]:
        """Events since the last call, oldest first; the next call returns those beyond the limit of this one."""
        read = 0
        while self._fd >= 0 and read < _MOST_BYTES:
            try:
                data = os.read(self._fd, _READ_BYTES)
            except BlockingIOError:
                return
            read += len(data)
            at = 0
            while at < len(data):
                watch, mask, _, length = _HEAD.unpack_from(data, at)
                at += _HEAD.size + length
                yield Event(watch, EventMask(mask & _TOLD), data[at - length : at].rstrip(b"\0"))


def _called(function: Callable[..., int], *arguments: object) -> int:
    result = function(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "inotify")
    return result
