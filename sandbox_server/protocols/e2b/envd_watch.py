"""Watches of filesystem.Filesystem: they report the changes in a folder since the last look (listing) of it.

A watch lists its folder at intervals, because the images have no program that could wait for changes. So several
changes of one file between two looks are reported as one. Names that came and went between two looks are reported only
where the kernel tells them (`missed_events`).
"""

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import cast

from fastapi import APIRouter, Request, Response

from sandbox_server.errors import SandboxLost, SandboxPaused
from sandbox_server.protocols._parts import boxes_of
from sandbox_server.protocols.e2b import connect
from sandbox_server.protocols.e2b.connect import Code, ConnectError, Message
from sandbox_server.protocols.e2b.envd_call import Call, as_connect, streaming, unary
from sandbox_server.protocols.e2b.envd_filesystem import entry
from sandbox_server.protocols.e2b.missed_events import MissedWatchEvents
from sandbox_server.protocols.e2b.watches import Watch, Watches
from sandbox_server.sandbox.filesystem import FileInfo, FileKind

ROUTER = APIRouter(include_in_schema=False)

LOOK_EVERY_S = 0.5
"""Polling interval of a streamed watch."""

_SERVICE = "/filesystem.Filesystem"
_DEPTH = 1000  # for "recursive"
_FAILURES = (ConnectError, OSError, OverflowError, SandboxLost, SandboxPaused)


class WatchDir(Message):
    """WatchDir, CreateWatcher."""

    path: str = ""
    recursive: bool = False
    include_entry: bool = False


class WatcherId(Message):
    """GetWatcherEvents, RemoveWatcher."""

    watcher_id: str = ""


async def _events(call: Call, watch: Watch) -> list[dict[str, object]]:
    """The changes since the last look. Raises as `Watches.check`."""
    missed = missed_events_of(call.request)
    missed.read()
    now = await _look(call, watch.path, watch.depth)
    told = [*missed.take(watch, watch.entries, now), *changes(watch.entries, now)]
    events = [_event(watch, name, kind, now.get(name)) for name, kind in told]
    watch.entries = now
    await _follow(call, watch)
    watches_of(call.request).check(watch)
    return events


def _event(watch: Watch, name: str, kind: str, info: FileInfo | None) -> dict[str, object]:
    event: dict[str, object] = {"name": name, "type": f"EVENT_TYPE_{kind}"}
    if watch.include_entry and info is not None and kind in ("CREATE", "WRITE", "CHMOD"):
        event["entry"] = entry(info)
    return event


def changes(before: Mapping[str, FileInfo], after: Mapping[str, FileInfo]) -> Iterator[tuple[str, str]]:
    """Yield (name, CREATE | WRITE | CHMOD | RENAME | REMOVE) for each change, as inotify would report it."""
    lives_on = {_inode(info) for name, info in after.items() if name not in before}
    for name, info in before.items():
        if name not in after:
            yield name, "RENAME" if _inode(info) in lives_on else "REMOVE"
    moved = {_inode(info) for name, info in before.items() if name not in after}
    for name, info in after.items():
        old = before.get(name)
        if old is None:
            yield name, "CREATE"
            if info.kind is FileKind.FILE and _inode(info) not in moved:
                yield name, "CHMOD"
                yield name, "WRITE"
        elif old.changed == info.changed:
            continue
        elif info.kind is FileKind.FILE and (old.mtime_ns, old.size) != (info.mtime_ns, info.size):
            yield name, "WRITE"
        elif (old.mode, old.owner, old.group) != (info.mode, info.owner, info.group):
            yield name, "CHMOD"


def _inode(info: FileInfo) -> str:
    return info.changed.partition(":")[0]


@streaming(ROUTER, f"{_SERVICE}/WatchDir", WatchDir)
async def watch_dir(call: Call, asked: WatchDir) -> Response:
    """Stream changes until the client disconnects or the call's time is over."""
    timeout_s = connect.timeout_s(call.request.headers)
    watch = await _begin(call, asked)
    watches_of(call.request).stream(watch)
    return connect.stream(_frames(call, watch, timeout_s, connect.keepalive_s(call.request.headers)))


@unary(ROUTER, f"{_SERVICE}/CreateWatcher", WatchDir)
async def create_watcher(call: Call, asked: WatchDir) -> dict[str, object]:
    """Create a watch that the client polls."""
    name = f"w{secrets.token_hex(8)}"
    watches_of(call.request).poll(name, await _begin(call, asked))
    return {"watcherId": name}


@unary(ROUTER, f"{_SERVICE}/GetWatcherEvents", WatcherId)
async def get_watcher_events(call: Call, asked: WatcherId) -> dict[str, object]:
    """The changes since the last call."""
    return {"events": await _events(call, _find(call, asked.watcher_id))}


@unary(ROUTER, f"{_SERVICE}/RemoveWatcher", WatcherId)
async def remove_watcher(call: Call, asked: WatcherId) -> dict[str, object]:
    """End a watch."""
    watches_of(call.request).drop(_find(call, asked.watcher_id))
    return {}


def watches_of(request: Request) -> Watches:
    """The watches of this process."""
    state = request.app.state
    if not hasattr(state, "e2b_watches"):
        state.e2b_watches = Watches()
    return cast(Watches, state.e2b_watches)


def missed_events_of(request: Request) -> MissedWatchEvents:
    """The kernel's events in the folders of this process's watches."""
    state = request.app.state
    if not hasattr(state, "e2b_missed_events"):
        state.e2b_missed_events = MissedWatchEvents()
    return cast(MissedWatchEvents, state.e2b_missed_events)


def _find(call: Call, name: str) -> Watch:
    watch = watches_of(call.request).find(call.view.sid, name)
    if watch is None:
        raise ConnectError(Code.NOT_FOUND, f"watcher with id {name} not found")
    return watch


async def _begin(call: Call, asked: WatchDir) -> Watch:
    info = await call.sandbox.stat(asked.path, user=call.user)
    if info.kind is not FileKind.DIR:
        raise ConnectError(Code.INVALID_ARGUMENT, f"path {info.path} not a directory")
    watch = Watch(call.view.sid, info.path, _DEPTH if asked.recursive else 1, asked.include_entry, {})
    await _follow(call, watch)
    watch.entries = await _look(call, watch.path, watch.depth)
    await _follow(call, watch)
    return watch


async def _follow(call: Call, watch: Watch) -> None:
    """Have the kernel report events in the watch's folders."""
    folders = [name for name, info in watch.entries.items() if info.kind is FileKind.DIR] if watch.depth > 1 else []
    inspector = boxes_of(call.request).inspector
    await missed_events_of(call.request).follow(watch, ["", *folders], inspector, call.sandbox.container_id)


async def _look(call: Call, path: str, depth: int) -> dict[str, FileInfo]:
    found = await call.sandbox.listdir(path, user=call.user, depth=depth)
    return {info.path.removeprefix(path).lstrip("/"): info for info in found}


async def _frames(call: Call, watch: Watch, timeout_s: float | None, keepalive_s: float) -> AsyncGenerator[bytes, None]:
    yield connect.frame(b'{"start":{}}')
    spoke = time.monotonic()
    until = None if timeout_s is None else spoke + timeout_s
    try:
        while until is None or time.monotonic() < until:
            await asyncio.sleep(LOOK_EVERY_S)
            for event in await _events(call, watch):
                yield connect.frame(connect.dumped({"filesystem": event}))
                spoke = time.monotonic()
            if time.monotonic() - spoke >= keepalive_s:
                yield connect.frame(b'{"keepalive":{}}')
                spoke = time.monotonic()
    except _FAILURES as error:
        yield connect.last_frame(as_connect(error))
    else:
        yield connect.last_frame(ConnectError(Code.DEADLINE_EXCEEDED, "context deadline exceeded"))
    finally:
        watches_of(call.request).drop(watch)
