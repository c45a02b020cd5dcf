"""A server ends, or its store of checkpoints fails, while sessions are copied; the copies are played to their end."""

import asyncio
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx
from sandbox_client.client import SandboxClient
from sandbox_client.errors import RequestRejected

from bench.trainer import bash
from chaos.fault import Fault, FaultContext
from chaos.mounts import Filler, tmpfs
from chaos.processes import ChaosFailed
from chaos.rollout import LOG, Rollout, numbers
from chaos.trainer import TIMEOUTS

_COPIES = 3
_FIND_S = 60.0
_LOOK_S = 0.001
_STORE_MB = 4
_SLEEPS_S = "1"


async def in_checkpoint(context: FaultContext) -> str:
    """Killed when the first block of a checkpoint is written."""
    return await _killed(context, lambda store, sid: any(store.glob("blocks/*/*")), "at its first block")


async def in_fork(context: FaultContext) -> str:
    """Killed when the checkpoint is complete, so that the copies are being filled."""
    return await _killed(context, lambda store, sid: any(store.glob(f"{sid}-*.json")), "with the checkpoint complete")


async def in_wake(context: FaultContext) -> str:
    """Killed while the action that wakes a sleeping copy is answered."""
    server = context.victim.server
    before = server.environment or {}
    try:
        server.environment = before | {"SANDBOX_HIBERNATE_S": _SLEEPS_S}
        await _restart(context)
        async with SandboxClient(context.fleet.url, timeouts=TIMEOUTS) as client:
            rollout = await context.under_way(lambda one: one.phase == "act" and len(one.acked) > 1, after_s=0.0)
            (sid,) = await _fork(client, rollout.sid, 1)
            await context.until(lambda: _is_asleep(context, sid), _FIND_S, "the copy sleeps")
            action = asyncio.create_task(client.act(sid, bash("echo woken >> /tmp/woken")))
            await asyncio.sleep(0.03)
            context.effect(not action.done(), "the action was answered before the kill")
            await context.kill_server()
            await context.ready_again()
            told = await action
            # interrupted, it is not repeated, and that is told
            most = "" if "was interrupted" in told.content else "1"
            seen = await client.act(sid, bash('echo "woken-$(grep -c woken /tmp/woken)"'))
            if not re.search(rf"woken-{most or '[01]?'}\b", seen.content):
                raise ChaosFailed(f"the action that woke the copy: {told.content!r}, then {seen.content!r}")
            await _played(client, rollout, sid)
    finally:
        server.environment = before
        await _restart(context)
    return "killed 30 ms into the action that wakes a copy; the copy was played to its reward"


async def store_full(context: FaultContext) -> str:
    """The folder of checkpoints has no free byte."""
    store = context.victim.data / "checkpoints"
    await context.kill_server()
    filler = Filler(store)
    try:
        with tmpfs(store, _STORE_MB):
            await context.ready_again()
            rollout = await context.under_way(lambda one: one.phase == "act" and len(one.acked) > 1, after_s=0.0)
            async with SandboxClient(context.fleet.url, timeouts=TIMEOUTS) as client:
                await asyncio.to_thread(filler.fill)
                refused = await _refused(context, rollout.sid)
                filler.empty()
                for sid in await _fork(client, rollout.sid, _COPIES):
                    await _played(client, rollout, sid)
            await context.kill_server()
    finally:
        if not context.victim.server.runs:
            await context.ready_again()
    return f"a fork was refused with {refused}; with room again {_COPIES} copies were played to their rewards"


async def blocks_damaged(context: FaultContext) -> str:
    """A byte of each stored block is another one."""
    async with SandboxClient(context.fleet.url, timeouts=TIMEOUTS) as client:
        rollout = await context.under_way(lambda one: one.phase == "act" and len(one.acked) > 1, after_s=0.0)
        first = await _fork(client, rollout.sid, 1)
        at = (await _session(context, first[0]))["forked_at"]
        await context.kill_server()  # which has the blocks in memory
        blocks = [path for path in (context.victim.data / "checkpoints").glob("blocks/*/*") if path.is_file()]
        for path in blocks:
            _damage(path)
        context.effect(blocks, "there was no block")
        await context.ready_again()
        for sid in [*first, *await _fork(client, rollout.sid, _COPIES, at=at)]:
            await _played(client, rollout, sid)
    return f"{len(blocks)} blocks damaged; {_COPIES} copies, by running actions again, were played to their rewards"


# ---- steps


async def _killed(context: FaultContext, seen: Callable[[Path, str], bool], when: str) -> str:
    """Fork a running rollout, kill its server once `seen(store, sid)`, and play what there is then."""
    store = context.victim.data / "checkpoints"
    await _emptied(context, store)
    async with SandboxClient(context.fleet.url, timeouts=TIMEOUTS) as client:
        rollout = await context.under_way(lambda one: one.phase == "act" and len(one.acked) > 1, after_s=0.0)
        forking = asyncio.create_task(_fork(client, rollout.sid, _COPIES))
        end = time.monotonic() + _FIND_S
        while not seen(store, rollout.sid):
            context.effect(not forking.done() and time.monotonic() < end, "the fork was answered, or wrote nothing")
            await asyncio.sleep(_LOOK_S)
        context.effect(not forking.done(), "the fork was answered before the kill")
        await context.kill_server()
        await context.ready_again()
        sids = await forking  # sent again by the client, with the same key
        # copies of the killed request whose sids nobody got are sessions too
        family = await _get(context, f"/v1/sessions/{rollout.sid}/tree")
        known = {one["sid"] for one in family if one["parent"] == rollout.sid and one["state"] == "live"} | set(sids)
        for sid in sorted(known):
            await _played(client, rollout, sid)
    return f"killed {when}; {len(sids)} copies after the retry, {len(known)} in all, played to their rewards"


async def _fork(client: SandboxClient, sid: str, n: int, *, at: int | None = None) -> list[str]:
    """The sids of copies; asks again while an action that was interrupted has to be settled by the next one."""
    end = time.monotonic() + _FIND_S
    while True:
        try:
            return await client.fork(sid, n, at=at)
        except RequestRejected as error:
            if error.code != "session_busy" or time.monotonic() > end:
                raise
            await asyncio.sleep(0.5)


async def _played(client: SandboxClient, rollout: Rollout, sid: str) -> None:
    """Compare a copy's file with its own journal, then end it and check its reward. Raises ChaosFailed."""
    seen = await client.act(sid, bash(f"cat {LOG}; echo read-$((5+6))"))
    if "read-11" not in seen.content:
        seen = await client.act(sid, bash(f"cat {LOG}; echo again-$((5+6))"))  # the first one told of an interruption
    lines = numbers(seen.content, rollout.tag)
    acked = [one for one in rollout.acked if f"kept-{rollout.tag}-" in one.observation]
    told = [int(number) for one in acked for number in re.findall(rf"kept-{rollout.tag}-(\d+)-/tmp", one.observation)]
    # it is at or behind its original, and nothing of it is missing within, or there twice
    if lines != list(range(1, len(lines) + 1)) or len(lines) > max([*told, *rollout.lines, 0]) + 1:
        raise ChaosFailed(f"copy {sid} has lines {lines}; acknowledged were {told}: {seen.content[-300:]!r}")
    status = await client.act(sid, bash("git -C /testbed diff --stat; echo status-$((5+6))"))
    changed = re.search(r"\d+ files? changed", status.content) is not None
    await client.finish(sid)
    got = await client.reward(sid)
    if got.mask:
        raise ChaosFailed(f"copy {sid} has no reward: {got.verdict}, {got.cause}")
    solved = changed and rollout.ending == "gold"
    if (got.verdict == "resolved", got.reward == 1.0) != (solved, solved):
        raise ChaosFailed(f"copy {sid} of a rollout ({rollout.ending}) has {got.verdict}, {got.reward}: {got.cause}")


async def _refused(context: FaultContext, sid: str) -> str:
    """The code with which a fork is refused. Raises ChaosFailed: it is not."""
    async with httpx.AsyncClient(base_url=context.victim.url, timeout=60) as http:
        answer = await http.post(f"/v1/sessions/{sid}/fork", json={"n": _COPIES})
    if answer.is_success:
        raise ChaosFailed(f"copies from a full store: {answer.text[:300]}")
    return f"{answer.status_code} {answer.json()['code']}"


async def _get(context: FaultContext, path: str) -> list[dict[str, str]]:
    async with httpx.AsyncClient(base_url=context.victim.url, timeout=60) as http:
        found: list[dict[str, str]] = (await http.get(path)).raise_for_status().json()
        return found


async def _session(context: FaultContext, sid: str) -> dict[str, int]:
    async with httpx.AsyncClient(base_url=context.victim.url, timeout=60) as http:
        found: dict[str, int] = (await http.get(f"/v1/sessions/{sid}")).raise_for_status().json()
        return found


def _is_asleep(context: FaultContext, sid: str) -> bool:
    with suppress(httpx.HTTPError):
        return bool(context.victim.get(f"/v1/sessions/{sid}")["asleep"])
    return False


async def _emptied(context: FaultContext, store: Path) -> None:
    """Remove the checkpoints of former faults, without which a new one cannot be told from them."""
    await context.kill_server()
    await context.off(lambda: _empty(store))
    await context.ready_again()


def _empty(store: Path) -> None:
    for path in [*store.glob("blocks/*/*"), *store.glob("*.json")]:
        path.unlink()


async def _restart(context: FaultContext) -> None:
    await context.kill_server()
    await context.ready_again()


def _damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


FAULTS = (
    Fault(
        "server_killed_in_checkpoint",
        "kill -9 of a server as it writes the checkpoint of a session that is copied",
        "The retried request makes the copies from a new checkpoint; the session continues",
        in_checkpoint,
    ),
    Fault(
        "server_killed_in_fork",
        "kill -9 of a server as it fills the copies of a session",
        "The retried request makes new copies; copies whose sids no client got end after SANDBOX_SESSION_IDLE_S",
        in_fork,
    ),
    Fault(
        "server_killed_in_wake",
        "kill -9 of a server while an action wakes a sleeping session",
        "The retry runs the action, or says that it was interrupted",
        in_wake,
    ),
    Fault(
        "checkpoints_full",
        "the folder of a node's checkpoints is full",
        "The node refuses copies; its sessions continue",
        store_full,
    ),
    Fault(
        "checkpoints_damaged",
        "a byte changed in each block of a node's checkpoints",
        "A damaged checkpoint is not used: the actions are run again",
        blocks_damaged,
    ),
)
