"""Checks the service's state afterwards against the responses that the rollouts got: nothing lost, nothing wrong."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import httpx

from chaos.fleet import Fleet
from chaos.node import Node
from chaos.processes import ChaosFailed
from chaos.rollout import EXPECTED, LINES, Rollout, numbers, without_repeats

_ANSWERS_S = 60.0
_REAPED_S = 60.0
"""For running gradings and removals to end, and one pass of the reaper, whose period is 2 s. A leak stays for ever; a
removal takes tens of seconds where the engine of a busy host has many to do."""


async def lost_actions(fleet: Fleet, rollouts: Sequence[Rollout], gap: tuple[float, float]) -> list[str]:
    """One sentence per acknowledged action that is missing, and per action that is there twice.

    `gap`: actions acknowledged between these (monotonic) times may be missing from the journal, but not their effect.
    """
    turns = asyncio.Semaphore(4)
    async with httpx.AsyncClient(base_url=fleet.url, timeout=_ANSWERS_S) as http:

        async def one(rollout: Rollout) -> list[str]:
            async with turns:
                journal = (await http.get(f"/v1/sessions/{rollout.sid}/actions")).raise_for_status().json()
                found = in_journal(rollout, journal, gap)
                if rollout.finished and rollout.ending != "none":
                    patch = (await http.get(f"/v1/sessions/{rollout.sid}/patch")).raise_for_status().text
                    found += in_patch(rollout, patch)
                return [
                    f"rollout {rollout.number} (session {rollout.sid}): {text}" for text in (*found, *rollout.wrong)
                ]

        found = await asyncio.gather(*(one(rollout) for rollout in rollouts if rollout.sid))
    return [sentence for sentences in found for sentence in sentences]


def in_journal(rollout: Rollout, journal: Sequence[dict[str, Any]], gap: tuple[float, float]) -> list[str]:
    """Check that each acknowledged action is there once, with the returned observation, and no action twice."""
    entries: dict[str, list[str]] = {}
    for entry in journal:
        entries.setdefault(entry["content"], []).append(entry["observation"])
    faults = [
        f"{len(found)} times in the journal: {content[:200]!r}" for content, found in entries.items() if found[1:]
    ]
    for acked in rollout.acked:
        found = entries.get(acked.content)
        if found is None:
            if not gap[0] <= acked.at <= gap[1]:
                faults.append(f"acknowledged but not in the journal: {acked.content[:200]!r}")
        elif acked.observation not in found:
            faults.append(
                f"the journal holds another observation: {found[0][-200:]!r}, given {acked.observation[-200:]!r}"
            )
    return faults


def in_patch(rollout: Rollout, patch: str) -> list[str]:
    """Check that every line is in the file that the patch adds, once and in order."""
    found = without_repeats(numbers(patch, rollout.tag), rollout)
    expected = list(range(1, LINES + 1))
    if found == expected:
        return []
    twice = [number for number, n in Counter(found).items() if n > 1]
    missing = sorted(set(expected) - set(found))
    return [f"the patch has lines {found}: missing {missing}, twice {twice}"]


def wrong_rewards(rollouts: Sequence[Rollout]) -> list[str]:
    """One sentence per unmasked verdict that does not match the rollout's work."""
    faults = []
    for one in rollouts:
        if not one.over or not one.verdict or one.mask:
            continue
        expected = EXPECTED[one.ending]
        right = one.verdict == expected and (one.reward == 1.0) == (expected == "resolved")
        where = f"rollout {one.number} (session {one.sid}, {one.sample}, {one.ending})"
        if one.terminal:
            # its session ended before its work was done, which must not count as the policy's fault
            faults.append(f"{where}: unmasked {one.verdict} after the rollout gave up: {one.gave_up}")
        elif not right and not one.gave_up:  # a trainer that gives up leaves the sample out itself
            faults.append(f"{where}: unmasked {one.verdict}, reward {one.reward}, expected {expected}; {one.cause}")
    return faults


async def leaks(fleet: Fleet) -> list[str]:
    """Containers without an owner after one pass of the reaper, once sessions without a client were closed."""
    return [text for node in fleet.nodes for text in await asyncio.to_thread(_leaks_of, node)]


def _leaks_of(node: Node) -> list[str]:
    for session in node.get("/v1/sessions?state=live&limit=1000"):
        # its client disconnected or got no response to its start: it would end by SANDBOX_SESSION_IDLE_S
        httpx.delete(f"{node.url}/v1/sessions/{session['sid']}", timeout=_ANSWERS_S)
    end = time.monotonic() + _REAPED_S
    while left := node.without_owner():
        if time.monotonic() > end:
            node.engine.docker("rm", "-f", *(one.container for one in left))  # otherwise the next fault would be blamed
            return [f"{node.name}: {one.role} {one.container[:12]} of session {one.sid or '-'}" for one in left]
        time.sleep(0.5)
    return []


def unexpected_end(fleet: Fleet) -> None:
    """Raises ChaosFailed if a server that nobody killed has ended."""
    for node in fleet.nodes:
        if not node.server.runs:
            raise ChaosFailed(f"{node.server.name} ended by itself\n{node.server.tail()}")
