"""Common faults, staged on real servers: the overview names the faulty layer, and three clicks lead to the cause.

A full disk is in `test_full_disk.py`.
"""

import contextlib
import json
import re
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from .overview import leads, says, session_of
from .serving import SCRIPTED, Server, docker, serving, until
from .wire import wired


@pytest.fixture(scope="module")
def server(rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("causes")
    with serving(folder, rows, session_idle_s=10, reaper_period_s=1, runner_files="refuse") as server:
        yield server


def rollout(server: Server, run: str, command: str = "", instance: str = SCRIPTED, *, finish: bool = True) -> str:
    answer = server.post("/start_instance", {"instance_hash": instance}, timeout=300, headers={"Sandbox-Run": run})
    sid = str(answer.raise_for_status().json()["sid"])
    if command:
        server.run(sid, command)
    if finish:
        server.finish(sid)
    return sid


def add(server: Server, row: dict[str, Any]) -> None:
    """Import a row."""
    path = server.folder / "row.json"
    path.write_text(json.dumps(row))
    server.cli("instances", "import", str(path))


def graded(server: Server, sids: list[str]) -> list[str]:
    """Verdicts of the sessions, once all are graded."""
    until(lambda: all(server.session(sid)["verdict"] for sid in sids), 120, "graded")
    return [str(server.session(sid)["verdict"]) for sid in sids]


def test_a_policy_that_does_nothing(server: Server) -> None:
    sids = [rollout(server, "empty") for _ in range(4)]
    assert set(graded(server, sids)) == {"empty_patch"}
    says(server, "empty", "policy", "nothing_done")
    leads(server, "empty", session_of(sids), to="Nothing was changed.")


def test_a_policy_that_cheats(server: Server) -> None:
    cheat = "printf 'def pytest_runtest_makereport(): pass\\n' > conftest.py"
    sids = [rollout(server, "cheat", cheat) for _ in range(2)]
    assert set(graded(server, sids)) == {"tampered"}
    says(server, "cheat", "policy", "tampered")
    leads(server, "cheat", session_of(sids), to="def pytest_runtest_makereport()")


def test_groups_that_teach_nothing(server: Server) -> None:
    """All eight sessions of a group have reward 0."""
    sids = [rollout(server, "flat", "echo more >> README.md") for _ in range(8)]
    assert set(graded(server, sids)) == {"unresolved"}
    says(server, "flat", "data", "flat_groups")
    (group,) = httpx.get(f"{server.url}/v1/groups", params={"run": "flat"}).json()
    assert (group["kind"], group["graded"]) == ("all_0", 8)
    leads(server, "flat", f"/ui/groups.run=flat&instance={SCRIPTED}", session_of(sids), to="F2P: 0 of ")


def test_a_slow_model(server: Server) -> None:
    """The model answers so slowly that its sessions expire."""
    sids = [rollout(server, "slow", "echo slow >> README.md", finish=False) for _ in range(4)]
    assert set(graded(server, sids)) == {"unresolved"}
    assert {server.session(sid)["end_reason"] for sid in sids} == {"idle"}
    says(server, "slow", "policy", "slow_model")
    leads(server, "slow", session_of(sids), to="ended (idle)")


def test_a_model_that_is_slow_between_actions(server: Server) -> None:
    """The sessions end in time, but wait minutes for each action: their starts are put back."""
    sids = [rollout(server, "gaps", "echo slow >> README.md") for _ in range(4)]
    assert set(graded(server, sids)) == {"unresolved"}
    catalogue = server.folder / "data" / "catalogue.sqlite3"
    with contextlib.closing(sqlite3.connect(catalogue, timeout=30)) as database, database:
        for sid in sids:
            database.execute("UPDATE sessions SET created_at = created_at - 600 WHERE sid = ?", (sid,))
    says(server, "gaps", "policy", "slow_model")
    seen = server.get("/v1/overview?run=gaps")
    assert 600 < seen["wall"]["seconds"]["model"] < 660 and seen["wall"]["gap_s"] > 60
    assert re.fullmatch("Sandboxes wait [23][0-9]{2} s for each action of the policy.", seen["findings"][0]["why"])
    leads(server, "gaps", session_of(sids), to="waiting for the model")


def test_an_instance_whose_gold_fails(server: Server, sample_instances: dict[str, dict[str, Any]]) -> None:
    broken = {**sample_instances["ledger"], "instance_id": "samples__broken-1"}
    head = ["diff --git a/NEW b/NEW", "new file mode 100644", "--- /dev/null", "+++ b/NEW", "@@ -0,0 +1 @@"]
    broken["patch"] = "\n".join([*head, "+nothing", ""])
    add(server, broken)
    server.cli("instances", "verify", "samples__broken-1", code=1)
    rollout(server, "broken", instance="samples__broken-1")
    says(server, "broken", "data", "unsound")
    leads(server, "broken", to="gold unresolved, empty unresolved")


def test_a_full_start_queue_and_an_engine_that_stops(rows: Path, tmp_path: Path) -> None:
    settings = {"max_sessions": 1, "breaker_probe_s": 0.5, "node_beat_s": 0.5, "start_timeout_s": 200}
    with wired() as wire, serving(tmp_path, rows, docker_url=wire.url, **settings) as server:
        sid = rollout(server, "full", "true", finish=False)
        second = threading.Thread(target=rollout, args=(server, "full"), kwargs={"finish": False})
        second.start()
        says(server, None, "infrastructure", "starts_wait")
        leads(server, None, to='<td class="n">1/1</td><td class="n">1</td>')  # slots in use, starts that wait
        server.finish(sid)
        second.join(200)
        assert not second.is_alive()
        wire.cut()
        says(server, None, "infrastructure", "node_fault")
        leads(server, None, to='w-infrastructure">daemon</span>')


def test_a_grading_image_that_is_missing(server: Server, rows: Path, sample_images: dict[str, str]) -> None:
    """Somebody removes images under running sessions, as `docker image prune` does."""
    label = f"sandbox-test.causes={server.node}"  # inherited by what is made of it
    name = f"sandbox-test/{server.node}:latest"
    subprocess.run(
        ["docker", "build", "-q", "-t", name, "-"],
        input=f"FROM {sample_images['timespan']}\nLABEL {label}\n",
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    row = next(
        row
        for row in map(json.loads, rows.read_text().splitlines())
        if row["instance_id"].startswith("samples__timespan")
    )

    def removed() -> bool:
        tags = docker("images", "--filter", f"label={label}", "--format", "{{.Repository}}:{{.Tag}}").split()
        if tags := [tag for tag in tags if "<none>" not in tag]:
            docker("rmi", "-f", *tags)
        docker("image", "prune", "-f", "--filter", f"label={label}")  # those whose containers are gone
        return not docker("images", "-a", "-q", "--filter", f"label={label}")

    try:
        add(server, {**row, "instance_id": "samples__gone-1", "sandbox": {"images": [name]}})
        begun = [rollout(server, "gone", "echo >> README.md", "samples__gone-1", finish=False) for _ in range(2)]
        removed()
        for sid in begun:
            server.finish(sid)
        assert graded(server, begun) == ["infra", "infra"]
        says(server, "gone", "infrastructure", "masked_infra")
        assert "image_unavailable" in server.get("/v1/overview?run=gone")["causes"]
        leads(server, "gone", session_of(begun), to="image_unavailable")
    finally:
        until(removed, 20, "the images removed")
