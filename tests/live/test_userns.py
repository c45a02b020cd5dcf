"""An engine with userns-remap: root of a container is nobody on its host, and all the rest works."""

import json
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from chaos.engine import Engine, OwnEngine, own_engine
from tests.conftest import ROOT

from .serving import Server, serving, until

LEDGER = "samples__ledger-12"
IMAGE = "sandbox-samples/ledger:latest"
PROGRAMS = ("docker", "dockerd", "containerd", "unshare")


@pytest.fixture(scope="module")
def remapping(sample_images: dict[str, str], missing: Callable[[str], None]) -> Iterator[OwnEngine]:
    """A second engine, in a network namespace of its own, so that it cannot touch the first one's bridge."""
    if os.geteuid() != 0:
        missing("root, to start an engine")
    if absent := [program for program in PROGRAMS if shutil.which(program) is None]:
        missing(", ".join(absent))
    if subprocess.run(["unshare", "--user", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this kernel makes no user namespaces")
    folder = Path(tempfile.mkdtemp(prefix="userns-"))
    folder.chmod(0o711)  # for the containers' users; pytest's own folders stay closed to them
    run_id = f"userns-{secrets.token_hex(3)}"
    with own_engine(folder, folder, ("unshare", "--net", "--"), run_id, "--userns-remap=default") as engine:
        engine.copy_images(Engine(None), [IMAGE])
        yield engine
    shutil.rmtree(folder, ignore_errors=True)  # a whole image store


@pytest.fixture(scope="module")
def server(remapping: OwnEngine, rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(
        tmp_path_factory.mktemp("userns-server"), rows, docker_url=remapping.url, command_timeout_s=8
    ) as server:
        yield server


def ids_on_host(engine: OwnEngine, container: str) -> set[int]:
    """The user ids that the host sees of the container's processes."""
    found = set()
    for pid in engine.docker("top", container, "-eo", "pid").split()[1:]:
        status = Path(f"/proc/{pid}/status").read_text()
        found |= {int(word) for word in status.partition("\nUid:")[2].partition("\n")[0].split()}
    return found


def test_a_rollout_and_a_box(server: Server, remapping: OwnEngine) -> None:
    """An operator who turns it on would find out in training what does not work with it."""
    sid = server.begin(LEDGER)
    (session,) = remapping.containers(server.node, "role=session")
    assert "user 0 of" in server.run(sid, "echo user $(id -u) of the container")
    outside = ids_on_host(remapping, session.container)
    assert outside and min(outside) >= 1000, f"root in the container is user {outside} of the host"

    boxes = f"{server.url}/v1/boxes"
    made = httpx.post(boxes, json={"image": IMAGE, "network": "none"}, timeout=120)
    assert made.status_code == 201, made.text
    box = f"{boxes}/{made.json()['sid']}"
    assert httpx.put(f"{box}/files?path=/root/up", content=b"loaded", timeout=60).is_success
    ran = httpx.post(f"{box}/commands", json={"cmd": "id -u; cat /root/up", "wait_s": 60}, timeout=90).json()
    assert (ran["exit_code"], ran["stdout"]) == (0, "0\nloaded"), ran
    assert httpx.delete(box, timeout=60).is_success

    assert "timed out" in server.run(sid, "trap '' INT; sleep 300 & sleep 301")
    assert "sleep 30" not in remapping.docker("top", session.container)
    rows = map(json.loads, (ROOT / "examples" / "instances.jsonl").read_text().splitlines())
    gold = next(row["patch"] for row in rows if row["instance_id"] == LEDGER)
    applied = server.run(sid, f"git apply <<'EOF'\n{gold}\nEOF\nmkdir 'a folder' && echo new > 'a folder/new'")
    assert "exit code 0" in applied, applied
    server.finish(sid)
    patch = server.patch(sid)
    assert b"a folder/new" in patch and b"ledger/money.py" in patch
    reward = server.reward(sid)
    assert (reward["verdict"], reward["reward"], reward["mask"]) == ("resolved", 1.0, False), reward
    until(lambda: not remapping.containers(server.node), what="no container left")
    assert not server.complaints()
