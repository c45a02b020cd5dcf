"""Reads what the sandboxes of this node have used of the CPU, and counts it for their runs."""

from sandbox_server import telemetry
from sandbox_server.records import SessionRecord
from sandbox_server.sandbox.base import CpuTime, Runtime
from sandbox_server.state.store import Store
from sandbox_server.state.usage import Kind, Reading, Usage

log = telemetry.logger(__name__)


class Metering:
    """Reads live containers once a period, and those that are removed just before their removal."""

    def __init__(self, runtime: Runtime, store: Store, usage: Usage, *, node: str) -> None:
        self._runtime = runtime
        self._store = store
        self._usage = usage
        self._node = node
        self._removed: dict[str, CpuTime] = {}
        """Container -> its last reading, until that is written."""

    async def look(self) -> None:
        """Count what was used since the last look.

        Raises:
            StateUnavailable, EngineUnavailable: not counted; the next look makes up for it.
        """
        for last in self._runtime.take_last_cpu_times():
            self._removed[last.container_id] = last
        live = {record.container_id: record for record in await self._store.live(self._node) if record.container_id}
        readings = [
            _reading(live[container_id], container_id, cpu_s)
            for container_id, cpu_s in (await self._runtime.cpu_times(live)).items()
        ]
        for last in self._removed.values():
            record = await self._store.session(last.sid)
            if record is not None:  # else the container was parked, and belonged to no session
                readings.append(_reading(record, last.container_id, last.cpu_s))
        done = list(self._removed)
        await self._usage.count(readings)
        for container_id in done:
            del self._removed[container_id]


def _reading(record: SessionRecord, container_id: str, cpu_s: float) -> Reading:
    return Reading(container_id, record.owner or record.run, Kind.CPU, cpu_s)
