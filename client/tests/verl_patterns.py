"""How the generations of veRL call the swedev module, by the pattern of their call sites.

G1: a thread pool starts, actions are plain calls on the loop. G2: the same, with a plain call at the end. G3: a list of
starts built without a loop and gathered, actions by the caller's own httpx, an awaited end. G4: awaited starts, an
action that is subscripted without an await, an end through to_thread. The reward manager, with its own aiohttp, is the
same in all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import aiohttp
import httpx

from sandbox_client import swedev_utils


class Scalar:
    """What veRL takes from a tensor of ids, on a machine without torch."""

    def __init__(self, value: int) -> None:
        self._value = value

    def item(self) -> int:
        return self._value


class Tokenizer:
    """A token a character."""

    def encode(self, text: str) -> list[int]:
        return [ord(character) for character in text]

    def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
        assert skip_special_tokens is False
        return "".join(map(chr, ids))


def bash(command: str) -> str:
    return f"<function=execute_bash>\n<parameter=command>{command}</parameter>\n</function><|im_end|>"


FINISH = "Done.\n<function=finish>\n</function><|im_end|>"
Turn = Callable[[str, Any], Awaitable[str]]


async def loop(sid: Any, actions: list[str], turn: Turn) -> list[str]:
    """A rollout's turns up to its finish, as observations."""
    seen = []
    for action in [*actions, FINISH]:
        await asyncio.sleep(0)  # the policy generates
        if swedev_utils.is_stop(action):
            break
        seen.append(await turn(action, sid))
    return seen


async def subscripted_turn(action: str, sid: Any) -> str:
    """G1, G2, G4: no await between the call and the subscript, and any failure is the text "Error"."""
    result = swedev_utils.call_observation_api(sid, action)
    try:
        return str(result["content"])
    except Exception:  # noqa: BLE001  # the pattern's own
        return "Error"


async def own_httpx_turn(action: str, sid: Any) -> str:
    """G3: the caller's own request to get_api's address."""
    text = swedev_utils.clear_suffix(action + "<|im_end|>\n<|im_start|>user\n")
    async with httpx.AsyncClient() as client:
        answer = await client.post(swedev_utils.get_api("action"), json={"sid": sid, "content": text}, timeout=120)
        answer.raise_for_status()
        return str(answer.json()["content"])


def run(rollouts: list[Awaitable[list[str]]]) -> list[list[str]]:
    """All rollouts of a batch on one loop, as generate_sequences runs them."""

    async def gathered() -> list[list[str]]:
        return list(await asyncio.gather(*rollouts))

    return asyncio.run(gathered())


def started_by_a_pool(instances: list[Any]) -> list[int | None]:
    sids: list[int | None] = [None] * len(instances)
    with ThreadPoolExecutor(max_workers=min(len(instances), 10)) as executor:
        starts = [executor.submit(swedev_utils.initialize_runtime, i, each.item()) for i, each in enumerate(instances)]
        for start in as_completed(starts):
            index, result = start.result()
            if result:
                sids[index] = int(result["sid"])
    return sids


def generation_1(instances: list[Any], actions: list[str]) -> tuple[list[int], list[list[str]]]:
    sids = started_by_a_pool(instances)
    seen = run([loop(sid, actions, subscripted_turn) for sid in sids])
    return [sid or 0 for sid in sids], seen


def generation_2(instances: list[Any], actions: list[str]) -> tuple[list[int], list[list[str]]]:
    sids = started_by_a_pool(instances)

    async def rollout(sid: int | None) -> list[str]:
        seen = await loop(sid, actions, subscripted_turn)
        if sid:
            swedev_utils.call_postprocess_api(sid)
        return seen

    return [sid or 0 for sid in sids], run([rollout(sid) for sid in sids])


def generation_3(instances: list[Any], actions: list[str]) -> tuple[list[int], list[list[str]]]:
    event_loop = asyncio.new_event_loop()
    asyncio.set_event_loop(event_loop)
    try:
        starts = [swedev_utils.initialize_runtime(i, each.item()) for i, each in enumerate(instances)]
        sids: list[int | None] = [None] * len(instances)
        for index, result in event_loop.run_until_complete(asyncio.gather(*starts)):
            if result:
                sids[index] = int(result["sid"])

        async def rollout(sid: int | None) -> list[str]:
            seen = await loop(sid, actions, own_httpx_turn)
            if sid:
                await swedev_utils.call_postprocess_api(sid)
            return seen

        seen = event_loop.run_until_complete(asyncio.gather(*map(rollout, sids)))
    finally:
        asyncio.set_event_loop(None)
        event_loop.close()
    return [sid or 0 for sid in sids], seen


def generation_4(
    instances: list[Any], actions: list[str], turn: Turn = subscripted_turn
) -> tuple[list[int], list[list[str]]]:
    sids = [0] * len(instances)

    async def rollout(index: int) -> list[str]:
        result = await swedev_utils.initialize_runtime(instances[index].item())
        sid, sids[index] = result["sid"], int(result["sid"])
        seen = await loop(sid, actions, turn)
        await asyncio.to_thread(swedev_utils.call_postprocess_api, sid)
        return seen

    return sids, run([rollout(index) for index in range(len(instances))])


class SWEDevRewardManager:
    """A fresh session for each reward, one post to one host, 0.0 for whatever fails."""

    async def fetch_reward(self, sid: Any, session: aiohttp.ClientSession) -> float:
        try:
            async with session.post(
                swedev_utils.get_api(type="reward"),
                json={"sid": sid.item()},
                timeout=aiohttp.ClientTimeout(total=300),
            ) as answer:
                if answer.status == 200:
                    return float(swedev_utils.calc_reward(await answer.json()))
        except Exception as error:  # noqa: BLE001  # the pattern's own
            print(f"no reward: {error}")
        return 0.0

    async def compute_reward(self, sid: Any) -> float:
        async with aiohttp.ClientSession() as session:
            return await self.fetch_reward(sid, session)


def rewards(sids: list[Any], manager: type[SWEDevRewardManager] = SWEDevRewardManager) -> list[float]:
    """All rewards of a batch at once, as the manager's call does it."""

    async def gathered() -> list[float]:
        return list(await asyncio.gather(*map(manager().compute_reward, sids)))

    return asyncio.run(gathered())
