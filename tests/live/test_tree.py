"""A tree of copies over two nodes, each leaf graded: whatever was done along its way counts, and nothing else."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from redis import Redis

from sandbox_server.state.keys import Keys

from .fleet import fleet
from .serving import Server, until

WIDTH = int(os.environ.get("SANDBOX_TEST_TREE", "2"))
"""Copies of each session; the long form has 8, which are 64 leaves."""
FILE = "/testbed/ledger/money.py"
FIRST = (
    r"/return \[Money(self.minor/i\        sign = -1 if self.minor < 0 else 1",
    r"/return \[Money(self.minor/i\        parts = [abs(self.minor) * weight // total for weight in weights]",
)
NEEDED = r"s/return \[Money(self.minor .*/return [Money(sign * part, self.currency) for part in parts]/"
LAST = (
    r"/return \[Money(/i\        left = abs(self.minor) - sum(parts)",
    r"/return \[Money(/i\        for index, weight in enumerate(weights):\n            if left and weight:",
    r"/return \[Money(/i\                parts[index] += 1\n                left -= 1",
)
HARM = r"s/left = abs/left = 1 + abs/"


def edits(*scripts: str) -> str:
    """The command that does these edits."""
    return "sed -i " + " ".join(f"-e '{script}'" for script in scripts) + f" {FILE}"


def leaf(child: int, number: int) -> tuple[str, bool]:
    """What a leaf does, and whether its way then has all edits and no harm."""
    own = f"echo '# {child} {number}' >> {FILE}"  # so that each leaf is graded by itself
    if number % 4 == 0:
        return f"{edits(NEEDED, *LAST)}; {own}", True
    if number % 4 == 1:
        return f"{edits(*LAST)}; {own}", child % 2 == 0
    if number % 4 == 2:
        return f"{edits(NEEDED, *LAST)}; {edits(HARM)}; {own}", False  # (sed does not edit what it inserts)
    return own, False


@pytest.mark.timeout(120 + 30 * WIDTH * WIDTH)
def test_every_leaf_is_graded_by_its_own_way(rows: Path, tmp_path: Path) -> None:
    """A copy has what another branch did, lacks what its own did, or gets another leaf's verdict."""
    bounds = {"max_sessions": 1 + WIDTH + WIDTH * WIDTH, "start_timeout_s": 240, "pool_size": 0}
    with fleet(tmp_path, rows, 2, **bounds) as ((a, b), redis), ThreadPoolExecutor(4) as threads:
        root = a.begin()
        a.run(root, edits(*FIRST))
        with Redis(unix_socket_path=str(redis.socket), decode_responses=True) as client:
            # copies go where the image is known to be prepared; each node tells that every 10 s
            told = Keys().holders("prepared:sandbox-samples/ledger:latest")
            until(lambda: client.smembers(told) == {a.node, b.node}, 60, "both nodes' reports of the image")
        a.run(root, "false")  # what the copies of an earlier action do not have
        children = [fork(a, root, 1, at=1)[0] for _ in range(WIDTH)]

        def grown(child: int) -> list[tuple[str, int, int]]:
            sid = children[child]
            if child % 2 == 0:
                b.run(sid, edits(NEEDED))
            sids = fork(b, sid, WIDTH)
            b.finish(sid)
            return [(copy, child, number) for number, copy in enumerate(sids)]

        leaves = [one for some in threads.map(grown, range(WIDTH)) for one in some]
        nodes = {a.session(sid)["node"] for sid, _, _ in leaves}
        a.finish(root)

        def graded(one: tuple[str, int, int]) -> tuple[str, bool]:
            sid, child, number = one
            command, well = leaf(child, number)
            a.run(sid, command)
            a.finish(sid)
            answer = a.reward(sid)
            assert not answer["mask"], answer
            return answer["verdict"], well

        verdicts = list(threads.map(graded, leaves))
        seen = httpx.get(f"{a.url}/v1/sessions/{root}/tree", timeout=30).raise_for_status().json()
    assert verdicts == [("resolved" if well else "unresolved", well) for _, well in verdicts]
    assert len(verdicts) == WIDTH**2 and sum(well for _, well in verdicts) >= WIDTH
    assert nodes == {a.node, b.node}, "the leaves are on one node"
    told = {one["sid"]: one["parent"] for one in seen}
    assert all(told[sid] == children[child] and told[children[child]] == root for sid, child, _ in leaves)


def fork(server: Server, sid: str, n: int, at: int | None = None) -> list[str]:
    """The sids of n copies."""
    answer = server.post(f"/v1/sessions/{sid}/fork", {"n": n} | ({} if at is None else {"at": at}))
    assert answer.status_code == 200 and not answer.json()["failed"], answer.text
    return list(answer.json()["sids"])
