"""One-off commands beside the shell: a lane each, killed with all their children at their timeout."""

import asyncio
import secrets
import time
from collections.abc import Mapping, Sequence

from sandbox_server.errors import SandboxLost
from sandbox_server.sandbox.base import ExecResult
from sandbox_server.sandbox.docker.engine import Engine
from sandbox_server.sandbox.docker.failure import ExecRefused
from sandbox_server.sandbox.docker.lane import Lane
from sandbox_server.sandbox.docker.output import Collector

_KILL_S = 10.0  # for the killer to start and end on a busy host
_EXIT_CODE_TRIES = 50  # x 20 ms: the daemon notes an exit shortly after the stream's end

# Keeps the moment from which the killer counts, then becomes the command. $0 is the exec's mark.
_BEGIN = (
    "{ read -r t _ < /proc/uptime; read -r _ _ _ _ l < /proc/loadavg; "
    'printf "%s %s\\n" "$t" "$l" > "/run/sandbox/$0"; } 2>/dev/null; exec "$@"'
)

# Kills what carries the mark in its environment, descends from such a process, or began since and was orphaned
# (setsid, double fork, `env -i`). The shell's own processes descend from the container's main process: spared.
_KILL = r"""
mark=$0
{ read -r tick last < "/run/sandbox/$mark"; } 2>/dev/null || { tick=0; last=0; }
tick=${tick/./}
for ((pass = 0; pass < 200; pass++)); do
  victims=()
  declare -A parent=() began=() marked=()
  for f in /proc/[0-9]*/stat; do
    { read -r line < "$f"; } 2>/dev/null || continue
    pid=${line%% *}
    set -- ${line##*) }
    [[ $1 == [ZX] ]] && continue
    parent[$pid]=$2 began[$pid]=${20}
    while IFS= read -r -d '' var; do
      [[ $var == "SANDBOX_EXEC=$mark" ]] && marked[$pid]=1 && break
    done 2>/dev/null < "/proc/$pid/environ"
  done
  for pid in "${!parent[@]}"; do
    [[ $pid == 1 || $pid == $$ ]] && continue
    f=$pid
    while [[ $f && $f != 0 && $f != 1 && ! ${marked[$f]} ]]; do f=${parent[$f]}; done
    if [[ ${marked[$f]} ]]; then victims+=("$pid"); continue; fi
    if [[ ${parent[$pid]} == 1 ]] && ((began[$pid] > tick || (began[$pid] == tick && pid > last))); then
      victims+=("$pid")
    fi
  done
  ((${#victims[@]})) || break
  kill -KILL "${victims[@]}" 2>/dev/null
done
rm -f "/run/sandbox/$mark"
"""


async def run(
    engine: Engine,
    container_id: str,
    argv: Sequence[str],
    *,
    timeout_s: float,
    stdin: bytes,
    cwd: str | None,
    env: Mapping[str, str],
    user: str,
    merge_streams: bool,
    keep_bytes: int,
) -> ExecResult:
    """See `sandbox.base.Sandbox.exec`."""
    started = time.monotonic()
    mark = secrets.token_hex(8)
    begin = _BEGIN.replace('exec "$@"', 'exec "$@" 2>&1') if merge_streams else _BEGIN
    lane = await Lane.open(
        engine,
        container_id,
        ["bash", "--noprofile", "--norc", "-c", begin, mark, *argv],
        env={**env, "SANDBOX_EXEC": mark},
        cwd=cwd,
        user=user,
    )
    kept = {1: Collector(keep_bytes), 2: Collector(keep_bytes)}
    feeding = asyncio.create_task(_feed(lane, stdin))
    timed_out = False
    try:
        try:
            async with asyncio.timeout(timeout_s):
                async for stream, data in lane.frames():
                    kept[stream].add(data)
        except TimeoutError:
            timed_out = True
            await _kill(engine, container_id, mark)
        code = None if timed_out else await _exit_code(lane)
    except asyncio.CancelledError:
        await asyncio.shield(_kill(engine, container_id, mark))
        raise
    finally:
        feeding.cancel()
        lane.close()
    return ExecResult(code, kept[1].take(), kept[2].take(), timed_out, time.monotonic() - started)


async def _feed(lane: Lane, stdin: bytes) -> None:
    if stdin:
        await lane.write(stdin)
    lane.end_input()


async def _exit_code(lane: Lane) -> int:
    for _ in range(_EXIT_CODE_TRIES):
        code = await lane.exit_code()
        if code is not None:
            return code
        await asyncio.sleep(0.02)
    raise SandboxLost("a command's output ended but its process did not; the container is not sound")


async def _kill(engine: Engine, container_id: str, mark: str) -> None:
    try:
        lane = await Lane.open(
            engine, container_id, ["bash", "--noprofile", "--norc", "-c", _KILL, mark], env={}, cwd="/", user="root"
        )
    except (SandboxLost, ExecRefused):
        return  # nothing lives there, or nothing more can: the owner removes the container
    try:
        async with asyncio.timeout(_KILL_S):
            async for _ in lane.frames():
                pass
    except TimeoutError:
        return
    finally:
        lane.close()
