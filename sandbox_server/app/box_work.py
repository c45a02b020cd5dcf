"""Opens the parts that run commands and hold files in boxes, and in sessions by the API of boxes."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from sandbox_server.app.data_disk import DataDisk
from sandbox_server.app.foundation import Foundation
from sandbox_server.app.limits import command_bounds
from sandbox_server.boxes.blobs import Blobs
from sandbox_server.boxes.commands import Commands
from sandbox_server.boxes.events import BoxEvents
from sandbox_server.boxes.processes import Processes
from sandbox_server.settings import Settings


@dataclass(frozen=True, slots=True)
class BoxWork:
    """Commands and files in boxes, and in sessions by the API of boxes."""

    data_disk: DataDisk
    blobs: Blobs
    processes: Processes
    commands: Commands
    events: BoxEvents


@asynccontextmanager
async def open_work(settings: Settings, base: Foundation) -> AsyncIterator[BoxWork]:
    """Open the parts. Commands run on in their boxes when the parts close."""
    data_disk = DataDisk(settings.data_dir, base.faults, min_free_mb=settings.data_min_free_mb)
    blobs = Blobs(settings.data_dir / "blobs", most_bytes=int(settings.blobs_mb * 2**20), room=data_disk.room)
    async with AsyncExitStack() as stack:
        events = BoxEvents()
        processes = Processes(notes=base.state.boxes, events=events)
        stack.push_async_callback(processes.close)
        commands = Commands(processes, base.state.commands, command_bounds(settings))
        stack.push_async_callback(commands.close)
        yield BoxWork(data_disk, blobs, processes, commands, events)
