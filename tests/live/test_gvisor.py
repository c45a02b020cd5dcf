"""gVisor (SANDBOX_RUNTIME=runsc): a rollout, its copy, a box and the gradings are as with the engine's own runtime."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.conftest import ROOT

from .serving import Server, engine, serving, until

LEDGER = "samples__ledger-12"
IMAGE = "sandbox-samples/ledger:latest"


@pytest.fixture(scope="module")
def server(
    rows: Path, sample_images: dict[str, str], missing: Callable[[str], None], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A server whose every container runs on gVisor."""
    if shutil.which("runsc") is None or "runsc" not in engine().info()["Runtimes"]:
        missing("gVisor: the package runsc, and an engine that has it (`scripts/with-engine.sh` starts such a one)")
    # (gVisor takes ten times as long for the calls that walk a tree)
    with serving(
        tmp_path_factory.mktemp("gvisor"), rows, runtime="runsc", command_timeout_s=8, checkpoint_timeout_s=120
    ) as server:
        yield server


def test_a_rollout_its_copy_and_a_box(server: Server) -> None:
    """Whoever asks for the stronger isolation would find out in training what does not work with it."""
    sid = server.begin(LEDGER)
    assert os.uname().release not in server.run(sid, "uname -r; export KEPT=7; cd /tmp; echo x > f"), "not gVisor"
    assert "timed out" in server.run(sid, "trap '' INT; sleep 300 & sleep 301")
    answer = server.post(f"/v1/sessions/{sid}/fork", {"n": 1}, timeout=300)
    assert answer.status_code == 200 and not answer.json()["failed"], answer.text
    (copy,) = answer.json()["sids"]
    assert "7 x /tmp" in server.run(copy, 'echo $KEPT "$(cat f)" $PWD')

    made = httpx.post(f"{server.url}/v1/boxes", json={"image": IMAGE, "network": "none"}, timeout=120)
    assert made.status_code == 201, made.text
    box = f"{server.url}/v1/boxes/{made.json()['sid']}"
    assert httpx.put(f"{box}/files?path=/root/up", content=b"loaded", timeout=60).is_success
    ran = httpx.post(f"{box}/commands", json={"cmd": "cat /root/up; exit 3", "wait_s": 60}, timeout=90).json()
    assert (ran["exit_code"], ran["stdout"]) == (3, "loaded"), ran
    assert httpx.delete(box, timeout=60).is_success

    rows = map(json.loads, (ROOT / "examples" / "instances.jsonl").read_text().splitlines())
    gold = next(row["patch"] for row in rows if row["instance_id"] == LEDGER)
    applied = server.run(copy, f"cd - && git apply <<'EOF'\n{gold}\nEOF")
    assert "exit code 0" in applied, applied
    told = []
    for one in (sid, copy):
        server.finish(one)
        reward = server.reward(one)
        told.append((reward["verdict"], reward["reward"], reward["mask"]))
    assert told == [("empty_patch", 0.0, False), ("resolved", 1.0, False)]
    until(lambda: not server.containers(), what="no container left")
    assert not server.complaints()
