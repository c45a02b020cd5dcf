"""Boxes outlive their server, and any node answers for them."""

import os
import shutil
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from .e2b import TEMPLATES, Control, ends_at, sdk
from .fleet import fleet
from .serving import Server, until


@pytest.mark.parametrize("forgets", [False, True], ids=["", "redis emptied"])
def test_boxes_live_on_over_a_restart(serve: Callable[..., Server], forgets: bool) -> None:
    """After kill -9: slots are counted again, tokens still work, lifetimes still end boxes."""
    server = serve(box_templates=TEMPLATES, max_sessions=2, reaper_period_s=0.5, pool_size=0, box_create_wait_s=10)
    control = Control(server)
    made, brief = control.create(metadata={"k": "v"}, timeout=300), control.create(timeout=300)["sandboxID"]
    until(lambda: all(server.in_sql("sessions", sid) for sid in (made["sandboxID"], brief)), what="both in SQL")
    server.kill(signal.SIGKILL)
    if forgets:
        os.kill(server.redis(), signal.SIGKILL)
        for path in (server.folder / "data" / "redis").iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    server.start()
    sid = made["sandboxID"]
    assert set(control.ids()) == {sid, brief}
    again = control.call("POST", f"/sandboxes/{sid}/connect", {"timeout": 60})
    assert again.status_code == 200 and again.json()["envdAccessToken"] == made["envdAccessToken"]
    assert control.call("GET", f"/sandboxes/{sid}").json()["metadata"] == {"k": "v"}
    agents = [control, Control(server, **{"User-Agent": "curl/8"})]
    with ThreadPoolExecutor(2) as pool:
        full, polite = pool.map(lambda agent: agent.call("POST", "/sandboxes", {"templateID": "base"}), agents)
    assert full.status_code == 500 and "no capacity, retry" in full.json()["message"]
    assert polite.status_code == 503 and int(polite.headers["retry-after"]) > 0
    assert control.call("POST", f"/sandboxes/{brief}/timeout", {"timeout": 1}).status_code == 204
    until(lambda: not server.containers(f"sid={brief}"), 20, "the brief one over")
    assert control.ids() == [sid]
    control.kill(sid)
    until(lambda: not server.containers(), 20, "no container left")


def test_any_node_answers_for_any_box(rows: Path, tmp_path: Path) -> None:
    """Creates are spread, any node can kill a box, and boxes of a dead node are reported as lost."""
    with fleet(tmp_path, rows, 2, box_templates=TEMPLATES, pool_size=0, max_sessions=4) as ((a, b), _):
        one, two = Control(a), Control(b)
        with ThreadPoolExecutor(4) as pool:
            made = [box["sandboxID"] for box in pool.map(lambda _: one.create(timeout=300), range(6))]
        nodes = {sid: a.session(sid)["node"] for sid in made}
        assert set(nodes.values()) == {a.node, b.node}
        mine, theirs = ([sid for sid in made if nodes[sid] == node] for node in (a.node, b.node))
        assert set(two.ids()) == set(made)
        two.kill(mine.pop())
        one.kill(theirs.pop())
        assert two.call("POST", f"/sandboxes/{mine[0]}/pause").status_code == 204  # the SDK's connect resumes it
        assert two.ids(state="paused") == one.ids(state="paused") == [mine[0]]
        flowed = sdk(
            b,
            "newest",
            f"""
import hashlib, io
from e2b import Sandbox
there = Sandbox.connect("{mine[0]}")
sent = bytes(range(256)) * 160_000
there.files.write("/tmp/sent", io.BytesIO(sent), use_octet_stream=True)
said = []
done = there.commands.run("sha256sum < /tmp/sent; seq 100000", on_stdout=said.append)
read = there.files.read("/tmp/sent", format="bytes")
result = [done.stdout.split()[0] == hashlib.sha256(sent).hexdigest(), len(done.stdout.split()), len(said) > 1,
          bytes(read) == sent, there.is_running()]
""",
        )
        assert flowed == [True, 100_002, True, True, True]
        assert 200 < ends_at(two, mine[0]) - time.time() < 300
        b.kill()
        lost = theirs[0]
        until(lambda: one.call("DELETE", f"/sandboxes/{lost}").status_code == 204, 30, "ended for its dead node")
        assert a.session(lost)["state"] == "lost" and "died" in a.session(lost)["cause"]
        b.start()
        until(lambda: not b.containers(f"sid={lost}"), 20, "what was left of it removed")
        one.kill(*one.ids())
        until(lambda: not a.containers() and not b.containers(), 20, "no container left")
