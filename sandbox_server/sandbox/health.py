"""Waits until a container's health check succeeds, by the rules of Docker's HEALTHCHECK, which Harbor follows too."""

import asyncio
from shlex import join

from sandbox_server.errors import ImageUnavailable
from sandbox_server.sandbox.base import Sandbox
from sandbox_server.sandbox.services import HealthCheck

_SAID = 300  # characters of the check and of its output in an error


async def until_healthy(sandbox: Sandbox, check: HealthCheck, *, within_s: float) -> None:
    """Run `check` as root in the container's folder until it succeeds.

    Raises:
        ImageUnavailable: it failed `check.retries` times in a row after its start period, or did not succeed within
            `within_s` (SANDBOX_SERVICE_START_S). As `Sandbox.exec`.
    """
    failures, last = 0, "it has not ended yet"
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        async with asyncio.timeout(within_s):
            while True:
                starting = loop.time() < began + check.start_period_s
                run = await sandbox.exec(
                    check.test, timeout_s=check.timeout_s, user="root", merge_streams=True, keep_bytes=1 << 14
                )
                if run.exit_code == 0 and not run.timed_out:
                    return
                how = f"took over {check.timeout_s:g} s" if run.timed_out else f"ended with {run.exit_code}"
                last = f"it {how} and said {run.stdout.text().strip()[-_SAID:]!r}"
                failures += not starting
                if not starting and failures == check.retries:
                    raise _sick(f"failed {failures} times in a row", check, last)
                await asyncio.sleep(check.start_interval_s if starting else check.interval_s)
    except TimeoutError:
        raise _sick(f"did not succeed within {within_s:g} s (SANDBOX_SERVICE_START_S)", check, last) from None


def _sick(what: str, check: HealthCheck, last: str) -> ImageUnavailable:
    return ImageUnavailable(
        f"the task's health check {what}: {join(check.test)[:_SAID]}: {last}; mend [environment.healthcheck] in its"
        " task.toml, or what that asks"
    )
