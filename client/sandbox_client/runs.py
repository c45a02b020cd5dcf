"""The drop-in's settings that concern a run as a whole: heartbeat, and cleanup at the start.

SANDBOX_RUN_LEASE_S: every trainer process that uses the drop-in renews the run's lease; when none has for this long,
the service ends the run's sessions. SANDBOX_END_RUN_AT_START: the trainer's first process ends the sessions that an
earlier trainer of the same run left behind, before it starts its own.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys

from sandbox_client import environment
from sandbox_client.background import background
from sandbox_client.errors import SandboxError, SettingsError

_LOGGER = logging.getLogger(__name__)
_BEGUN = "SANDBOX_RUN_BEGUN"
"""Environment variable inherited by the trainer's processes: the run's old sessions have already been ended."""
_WORKER = ("default_worker.py", "ray::")
"""In argv[0] of processes that Ray starts: they may not inherit the driver's environment, but are never the first."""


def end_at_start() -> None:
    """End the run's old sessions if SANDBOX_END_RUN_AT_START is on; once per trainer. Blocks; never raises."""
    try:
        if not environment.end_run_at_start() or os.environ.get(_BEGUN) or _is_worker():
            return
        os.environ[_BEGUN] = "1"
        run = environment.run()
        if not run:
            raise SettingsError("SANDBOX_END_RUN_AT_START needs SANDBOX_RUN, the name of the run")
        home, urls = background(), ",".join(environment.base_urls())

        async def end() -> int:
            return await home.client(urls, None, run).end_run()

        ended = home.submit(end()).result()
    except SandboxError as error:
        _LOGGER.error("the old sessions of this run could not be ended, they may hold slots: %s", error)
    else:
        _LOGGER.warning("%d sessions of a former trainer of run %s were ended", ended, run)


def keep_alive() -> None:
    """Start the heartbeat if SANDBOX_RUN_LEASE_S is set; once per process."""
    ttl_s = environment.run_lease_s()
    if not ttl_s:
        return
    run = environment.run()
    if not run:
        raise SettingsError("SANDBOX_RUN_LEASE_S needs SANDBOX_RUN, the name of the run")
    home, urls = background(), ",".join(environment.base_urls())

    async def beat() -> None:
        path = f"/v1/runs/{run}/lease"
        while True:
            try:
                await home.transport(urls.split(",")).post(
                    path, {"ttl_s": ttl_s}, method="PUT", timeout_s=ttl_s, retry_s=ttl_s, attempt_s=max(1.0, ttl_s / 4)
                )
            except SandboxError as error:
                _LOGGER.error("the lease of run %s could not be renewed, its sessions may end: %s", run, error)
            await asyncio.sleep(ttl_s / 4)

    home.stay(beat)


def _is_worker() -> bool:
    return any(mark in word for word in sys.argv[:1] for mark in _WORKER)
