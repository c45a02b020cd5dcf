"""Why a process of a sandbox was killed, as the kernel counted it: its own limit, or the host's memory.

The cgroup's counters are read inside the container: /sys/fs/cgroup there is the kernel's, mounted read-only.
"""

import re

from sandbox_server.errors import InfrastructureError, ServiceError
from sandbox_server.sandbox.base import Sandbox

# Version 1 counts failures too, but not on every kernel; how near the limit the usage came does as well.
_READ = """
if [ -f /sys/fs/cgroup/memory.events ]; then
    cat /sys/fs/cgroup/memory.events
else
    cd /sys/fs/cgroup/memory && cat memory.oom_control
    echo "oom $(($(< memory.max_usage_in_bytes) >= $(< memory.limit_in_bytes) / 100 * 95))"
fi
"""


async def killed_at_limit(sandbox: Sandbox) -> bool:
    """Whether the container's memory limit had a process of it killed; False also where the kernel does not say.

    Raises:
        InfrastructureError: a process was killed although the container was within its limit: the host ran
            out of memory, and what the tests said tells nothing.
        SandboxLost, EngineUnavailable.

    """
    try:
        result = await sandbox.exec(["bash", "-c", _READ], timeout_s=10.0)
    except InfrastructureError:
        raise
    except ServiceError:
        return False  # the tests left no room for one more process, which is not a matter of memory
    return limit_was_hit(result.stdout.text())


def limit_was_hit(counters: str) -> bool:
    """Read `oom_kill N` (processes killed) and `oom N` (not 0: the limit was hit) of cgroup v1 or v2.

    Raises:
        InfrastructureError: killed without the limit having been hit.

    """
    counts = {name: int(number) for name, number in re.findall(r"^(oom_kill|oom) (\d{1,18})$", counters, re.MULTILINE)}
    if not counts.get("oom_kill"):
        return False
    if not counts.get("oom"):
        raise InfrastructureError("the host ran out of memory while the tests ran")
    return True
