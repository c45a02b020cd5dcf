"""One-off commands beside the shell: a lane each, killed with all their children at their timeout."""

import asyncio
import itertools
import secrets
import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from sandbox_server.errors import SandboxExhausted, SandboxLost, ServiceError
from sandbox_server.sandbox.base import ExecResult, Output
from sandbox_server.sandbox.docker.engine import Engine
from sandbox_server.sandbox.docker.lane import Lane
from sandbox_server.sandbox.docker.output import Collector

_KILL_S = 10.0  # for the killer to start and end on a busy host
_EXIT_CODE_S = 2.0  # the daemon notes an exit shortly after the stream's end
_EXIT_CODE_PAUSES = (0.001, 0.002, 0.005, 0.01)  # then 20 ms each; mostly the first look finds it

_KILLED = 137
_NOT_STARTED = 126  # also what a command gives that may not be executed
_END_TRIES = 50  # x 20 ms: for the daemon to note a container's end
_ENGINE_SAYS = b"OCI runtime exec failed"
_KILL_TRIES = 20  # at the PID limit the engine cannot always start the killer, though mostly

# Keeps the moment from which the killer counts, then becomes the command. $0 is the exec's mark, $1 its slot: a file
# for each exec under way, used again, since a file for each exec would fill the tmpfs.
_BEGIN = (
    "{ read -r t _ < /proc/uptime; read -r _ _ _ _ l < /proc/loadavg; "
    'printf "%s %s %s\\n" "$0" "$t" "$l" > "/run/sandbox/lane-$1"; } 2>/dev/null; shift; exec -- "$@"'
)

# Waits for a text that ends in NUL, which tells it what to become; bash reads a pipe byte by byte, so the rest of its
# input is the command's. LC_ALL for `read` alone: the text may hold bytes that are no characters.
_STAND_BY = """IFS= LC_ALL=C read -r -d '' text || exit\neval "unset text; $text"\n""" + _BEGIN

# Kills what carries the mark in its environment, descends from such a process, or began since and was orphaned
# (setsid, double fork, `env -i`). The shell's own processes descend from the container's main process: spared.
_KILL = r"""
mark=$0
# the engine says that it started the process somewhat before the process is there
for ((i = 0; i < 60; i++)); do
  { read -r whose tick last < "/run/sandbox/lane-$1"; } 2>/dev/null
  [[ $whose == "$mark" ]] && break
  tick=999999999999
  read -r -t 0.05 <> <(:)
done
tick=${tick/./}
clean=0
for ((pass = 0; pass < 200; pass++)); do
  victims=()
  declare -A parent=() began=() marked=()
  for f in /proc/[0-9]*/stat; do
    # what ends while we look may have left a child that we did not see
    { read -r line < "$f"; } 2>/dev/null || { clean=-1; continue; }
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
    while [[ $f != 0 && $f != 1 && ! ${marked[$f]} ]]; do f=${parent[$f]:-0}; done
    if [[ ${marked[$f]} ]]; then victims+=("$pid"); continue; fi
    if [[ ${parent[$pid]} == 1 ]] && ((began[$pid] > tick || (began[$pid] == tick && pid > last))); then
      victims+=("$pid")
    fi
  done
  if ((! ${#victims[@]})); then
    ((++clean == 2)) && break
    continue
  fi
  clean=0
  kill -KILL "${victims[@]}" 2>/dev/null
done
exit 0
"""


@dataclass(frozen=True, slots=True)
class Begun:
    """A process on a lane of its own, by the mark in its environment and the slot that notes its beginning."""

    lane: Lane
    mark: str
    slot: int


async def stand_by(engine: Engine, container_id: str, slots: set[int]) -> Begun:
    """A process as root that waits to become a command: `run` with it saves starting one, some 60 ms.

    The engine answers before the process is there; what is written to it meanwhile waits.

    Raises:
        SandboxLost, SandboxExhausted, EngineUnavailable.
    """
    return await _begin(engine, container_id, slots, _STAND_BY, (), env={}, cwd="/", user="0")


async def run(
    engine: Engine,
    container_id: str,
    slots: set[int],
    argv: Sequence[str],
    *,
    timeout_s: float,
    stdin: bytes,
    cwd: str | None,
    env: Mapping[str, str],
    user: str,
    merge_streams: bool,
    keep_bytes: int,
    standing_by: Begun | None = None,
) -> ExecResult:
    """See `sandbox.base.Sandbox.exec`. `slots` are those of the execs under way in this container.

    With `standing_by` (its `user` is root then) that process becomes the command.
    """
    started = time.monotonic()
    if standing_by is None:
        script = _BEGIN + " 2>&1" if merge_streams else _BEGIN
        begun = await _begin(engine, container_id, slots, script, argv, env=env, cwd=cwd, user=user)
    else:
        begun = standing_by
        stdin = _orders(argv, cwd=cwd or "/", env=env, merge_streams=merge_streams) + stdin
    lane = begun.lane
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
            await _kill(engine, container_id, begun)
        code = None if timed_out else await _exit_code(engine, container_id, lane)
    except asyncio.CancelledError:
        await asyncio.shield(_kill(engine, container_id, begun))
        raise
    finally:
        slots.discard(begun.slot)
        feeding.cancel()
        lane.close()
    return _result(code, kept[1].take(), kept[2].take(), timed_out, started)


async def _begin(
    engine: Engine,
    container_id: str,
    slots: set[int],
    script: str,
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | None,
    user: str,
) -> Begun:
    """Start `script` with `argv`; nothing runs and no slot is held when this raises."""
    mark = secrets.token_hex(8)
    slot = next(number for number in itertools.count() if number not in slots)
    slots.add(slot)
    opening = asyncio.ensure_future(
        Lane.open(
            engine,
            container_id,
            ["bash", "--noprofile", "--norc", "-p", "-c", script, mark, str(slot), *argv],
            env={**env, "SANDBOX_EXEC": mark},
            cwd=cwd,
            user=user,
        )
    )
    try:
        return Begun(await asyncio.shield(opening), mark, slot)
    except asyncio.CancelledError:
        await asyncio.shield(_undo(engine, container_id, opening, mark, slot))
        slots.discard(slot)
        raise
    except BaseException:
        slots.discard(slot)
        raise


def _orders(argv: Sequence[str], *, cwd: str, env: Mapping[str, str], merge_streams: bool) -> bytes:
    """What a process that stands by is told, so that its command finds what `docker exec` would have given it."""
    lines = [f"cd -P -- {shlex.quote(cwd)} || exit {_NOT_STARTED}", "unset OLDPWD"]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in env.items()]
    lines.append(f'set -- "$1" {shlex.join(argv)}')
    if merge_streams:
        lines.append("exec 2>&1")
    return "\n".join(lines).encode("utf-8", "surrogateescape") + b"\0"


async def _feed(lane: Lane, stdin: bytes) -> None:
    if stdin:
        await lane.write(stdin)
    lane.end_input()


async def _exit_code(engine: Engine, container_id: str, lane: Lane) -> int:
    pauses = itertools.chain(_EXIT_CODE_PAUSES, itertools.repeat(0.02))
    deadline = time.monotonic() + _EXIT_CODE_S
    while time.monotonic() < deadline:
        code = await lane.exit_code()
        if code in (_KILLED, _NOT_STARTED):
            await _still_sound(engine, container_id, code)
        if code is not None:
            return code
        await asyncio.sleep(next(pauses))
    raise SandboxLost("a command's output ended but its process did not; the container is not sound")


async def _still_sound(engine: Engine, container_id: str, code: int) -> None:
    """Tell a command's own answer from the engine's: it was killed with its container, or never started.

    The engine writes its refusal into the command's output, so the container is asked, not the text. It notes a
    container's end some time after the ends of its processes; nothing can be started in it then.

    Raises:
        SandboxLost: the container has ended. SandboxExhausted: it runs and takes no further process.
    """
    probe = await Lane.open(engine, container_id, ["true"], env={}, cwd="/", user="0")
    try:
        async for _ in probe.frames():
            pass
        if await probe.exit_code() == 0:
            return
    finally:
        probe.close()
    for _ in range(_END_TRIES):
        found = await engine.call(lambda api: api.inspect_container(container_id))
        if not found["State"]["Running"]:
            raise SandboxLost("the container ended while a command ran in it")
        await asyncio.sleep(0.02)
    if code == _NOT_STARTED:
        raise SandboxExhausted("the container takes no further process; it is at its limit of processes or memory")


def _result(code: int | None, stdout: Output, stderr: Output, timed_out: bool, started: float) -> ExecResult:
    """The engine tells a process that it could not start on the stream of its output: not the command's words."""
    if code in (_NOT_STARTED, _NOT_STARTED + 1) and stdout.head.startswith(_ENGINE_SAYS):
        stdout, stderr = Output(b""), Output(b"the command could not be started: no such folder or user, or no room\n")
    return ExecResult(code, stdout, stderr, timed_out, time.monotonic() - started)


async def _undo(engine: Engine, container_id: str, opening: asyncio.Future[Lane], mark: str, slot: int) -> None:
    """Only what has begun can be killed: wait for the daemon's answer first."""
    with suppress(ServiceError):
        lane = await opening
        await _kill(engine, container_id, Begun(lane, mark, slot))
        lane.close()


async def _kill(engine: Engine, container_id: str, begun: Begun) -> None:
    for _ in range(_KILL_TRIES):
        if await _killed(engine, container_id, begun.mark, begun.slot):
            return
        await asyncio.sleep(0.1)


async def _killed(engine: Engine, container_id: str, mark: str, slot: int) -> bool:
    """One try; False when the killer could not be started."""
    try:
        lane = await Lane.open(
            engine,
            container_id,
            ["bash", "--noprofile", "--norc", "-p", "-c", _KILL, mark, str(slot)],
            env={},
            cwd="/",
            user="0",
        )
    except SandboxLost:
        return True  # nothing lives there
    except SandboxExhausted:
        return False
    try:
        async with asyncio.timeout(_KILL_S):
            async for _ in lane.frames():
                pass
        return await lane.exit_code() in (0, None)
    except TimeoutError:
        return True
    finally:
        lane.close()
