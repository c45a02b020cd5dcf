"""No concurrent work of rollouts blocks the event loop, for which all other sessions would wait."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from .serving import Server, bash, editor

LOAD_S = 10.0
BUSY_S, MOST_BUSY_S = 0.05, 0.25
"""CPU time of the loop's thread: for nearly all beats, and for all. It does not matter how busy the machine is, but it
does how long a page fault takes: on a slow virtual machine 2.5 % of the beats took up to 0.13 s (large texts)."""
BLOCKED_S, MOST_BLOCKED_S = 0.25, 0.5
"""Wall time without a CPU to wait for, likewise. Waits for the GIL are in it, and its holder may be without a CPU."""
NEARLY_ALL = 0.95

LARGE = "/tmp/large.txt"
MAKE_LARGE = f"seq -f 'line %010.0f of a file that takes the editor a while' 1 60000 > {LARGE}; wc -c {LARGE}"  # 3.4 MB


class Policy:
    """Plays one session at a time, repeatedly until the time is over."""

    def __init__(self, client: httpx.AsyncClient, until: float) -> None:
        self.client = client
        self.until = until
        self.done = 0

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = await self.client.post(path, json=body)
        assert answer.status_code == 200, (path, answer.text)
        return dict(answer.json())

    async def begin(self) -> str:
        return str((await self.post("/start_instance", {"instance_hash": "samples__ledger-12"}))["sid"])

    async def act(self, sid: str, content: str) -> str:
        reply = await self.post("/process_action", {"sid": sid, "content": content})
        assert "error" not in reply, reply
        return str(reply["content"])

    async def again(self, work: Callable[[], Awaitable[object]]) -> None:
        while time.monotonic() < self.until:
            await work()
            self.done += 1

    # ---- what they do

    async def talks(self) -> None:
        sid = await self.begin()
        await self.again(lambda: self.act(sid, bash("true")))

    async def prints(self) -> None:
        sid = await self.begin()
        await self.again(lambda: self.act(sid, bash("seq 1 300000")))

    async def writes_long(self) -> None:
        sid = await self.begin()
        long = "\n".join(f"echo {number} > /dev/null" for number in range(20_000))  # 400 KB: more than any policy's
        await self.again(lambda: self.act(sid, bash(long)))

    async def edits(self) -> None:
        sid = await self.begin()
        assert LARGE in await self.act(sid, bash(MAKE_LARGE))
        line = "line 0000030000 of a file that takes the editor a while"

        async def round_of_edits() -> None:
            await self.act(sid, editor(command="view", path=LARGE, view_range=[30_000, 30_010]))
            edited = await self.act(sid, editor(command="str_replace", path=LARGE, old_str=line, new_str="another"))
            assert "has been edited" in edited, edited[:300]
            await self.act(sid, editor(command="insert", path=LARGE, insert_line=5, new_str="inserted"))
            await self.act(sid, editor(command="view", path=LARGE))
            for _ in range(2):
                await self.act(sid, editor(command="undo_edit", path=LARGE))

        await self.again(round_of_edits)

    async def ends(self) -> None:
        async def rollout() -> None:
            sid = await self.begin()
            await self.act(sid, bash("head -c 4000000 /dev/urandom | base64 > big.txt; wc -c big.txt"))
            await self.post("/postprocess", {"sid": sid})
            patch = await self.client.get(f"/v1/sessions/{sid}/patch")
            assert len(patch.content) > 4_000_000
            await self.post("/compute_reward", {"sid": sid})

        await self.again(rollout)

    async def looks(self) -> None:
        async def look() -> None:
            for path in ("/metrics", "/v1/sessions", "/v1/instances"):
                answer = await self.client.get(path)
                assert answer.is_success, (path, answer.text)
            ready = (await self.client.get("/readyz")).json()  # 503 where another part is slow; the loop is not one
            assert set(ready["parts"].values()) <= {"ok", "no answer within 3 s"}, ready
            await asyncio.sleep(0.1)

        await self.again(look)


async def test_the_loop_never_stands_still(serve: Callable[..., Server]) -> None:
    """A blocking call or a long computation in the loop's thread determines the p99 of all other sessions."""
    server = serve(max_sessions=40, memory_mb=512, pool_size=16)
    async with httpx.AsyncClient(base_url=server.url, timeout=300, limits=httpx.Limits(max_connections=None)) as client:
        policies = [Policy(client, time.monotonic() + LOAD_S) for _ in range(14)]
        kinds = [Policy.talks] * 4 + [Policy.prints] * 3 + [Policy.edits] * 2 + [Policy.ends] * 3
        kinds += [Policy.writes_long, Policy.looks]
        await asyncio.gather(*(kind(policy) for kind, policy in zip(kinds, policies, strict=True)))
        assert all(policy.done for policy in policies)
        stalls = await _stalls(client)
    said = [entry for entry in server.entries() if entry["event"] == "event loop stood still"]
    told = "\n".join(f"busy {entry['busy_s']} s, blocked {entry['blocked_s']} s\n{entry['stack']}" for entry in said)
    assert stalls["busy", "+Inf"] > 100
    for cause, bound, most in (("busy", BUSY_S, MOST_BUSY_S), ("blocked", BLOCKED_S, MOST_BLOCKED_S)):
        beats = stalls[cause, "+Inf"]
        assert stalls[cause, str(bound)] >= NEARLY_ALL * beats and stalls[cause, str(most)] == beats, told


async def _stalls(client: httpx.AsyncClient) -> dict[tuple[str, str], float]:
    """(cause, bucket) -> how many timers came at most that late."""
    text = (await client.get("/metrics")).text
    return {
        (sample.labels["cause"], sample.labels["le"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "sandbox_loop_stall_seconds_bucket"
    }


async def test_greps_of_many_sessions_do_not_hold_the_loop(serve: Callable[..., Server]) -> None:
    """Batches of code search, 12 sessions with 8 greps each over 400 files: `bench --only search` has the full size."""
    server = serve(max_sessions=20, memory_mb=512, pool_size=16)
    make = "mkdir -p t; for n in {1..400}; do cp ledger/journal.py t/m$n.py; done"
    greps = [f"grep -rn {word} t" for word in ("import", "class", "def", "return", "self", "raise", "for", "nothing")]
    async with httpx.AsyncClient(base_url=server.url, timeout=300, limits=httpx.Limits(max_connections=None)) as client:

        async def search(policy: Policy) -> None:
            path = f"/v1/sessions/{await policy.begin()}/exec"
            await policy.post(path, {"command": make})
            for _ in range(2):
                results = (await policy.post(path, {"commands": greps}))["results"]
                assert [one["exit_code"] for one in results] == [0] * 7 + [1], results
                assert results[0]["truncated"] and not any(one["error"] or one["timed_out"] for one in results)

        await asyncio.gather(*(search(Policy(client, 0)) for _ in range(12)))
        stalls = await _stalls(client)
    said = [entry for entry in server.entries() if entry["event"] == "event loop stood still"]
    assert stalls["busy", "+Inf"] == stalls["busy", str(BUSY_S)], said
    assert stalls["blocked", "+Inf"] == stalls["blocked", str(BLOCKED_S)], said
