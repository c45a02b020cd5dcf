"""A server that takes jobs and never ends one, for tests to kill: job_worker.py URL PREFIX NODE LOST_AFTER_S."""

import asyncio
import sys

from sandbox_server.state.connection import Connection
from sandbox_server.state.jobs import GradingJobs
from sandbox_server.state.keys import Keys


async def main(url: str, prefix: str, node: str, lost_after_s: float) -> None:
    jobs = GradingJobs(url, Connection(url, timeout_s=5), Keys(prefix), node=node, lost_after_s=lost_after_s)

    async def work(sid: str, stream_of: str) -> bool:
        print("begun", sid, flush=True)
        await asyncio.sleep(600)
        return True

    await jobs.open(work, lambda: True)
    print("ready", flush=True)
    await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])))
