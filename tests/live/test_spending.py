"""What a run uses of CPU and gradings, over real HTTP."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from .serving import Server, bash, serving, until

KEYS = {"alice": "alices-secret-key", "bob": "bobs-secret-key", "carol": "carols-secret-key"}
LEDGER = "samples__ledger-12"


@pytest.fixture(scope="module")
def server(rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    keys = ",".join([*(f"{name}={key}" for name, key in KEYS.items()), "an-operators-key"])
    with serving(
        tmp_path_factory.mktemp("spending"),
        rows,
        api_keys=keys,
        run_cpu_s=2,
        run_cpu_period_s=0.5,
        run_grade_s=0.2,
        run_window_s=300,
    ) as server:
        yield server


def asked(server: Server, name: str, path: str, body: object, run: str = "") -> httpx.Response:
    headers = {"X-API-Key": KEYS[name]} | ({"Sandbox-Run": run} if run else {})
    return httpx.post(server.url + path, json=body, headers=headers, timeout=300)


def begun(server: Server, name: str, run: str = "") -> httpx.Response:
    return asked(server, name, "/start_instance", {"instance_hash": LEDGER}, run)


def ran(server: Server, name: str, sid: str, command: str) -> str:
    answer = asked(server, name, "/process_action", {"sid": sid, "content": bash(command)})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["content"])


def refused(answer: httpx.Response, setting: str) -> bool:
    if answer.status_code == 200:
        return False
    assert (answer.status_code, answer.json()["code"]) == (429, "over_quota"), answer.text
    assert setting in answer.json()["detail"] and 1 <= int(answer.headers["Retry-After"]) <= 300
    return True


def test_a_run_that_has_computed_enough_begins_nothing_new(server: Server) -> None:
    """One tenant's sessions would compute on every core, all day; its names of runs do not hide that."""
    sid = begun(server, "alice").json()["sid"]
    # by CPU time: on a busy machine it takes longer
    ran(server, "alice", sid, "python3 -c $'import time\\nwhile time.process_time() < 3: pass'")

    def no_more() -> bool:
        answer = begun(server, "alice", "another-name")
        if answer.status_code == 200:  # less than the bound has been read so far
            asked(server, "alice", "/postprocess", {"sid": answer.json()["sid"]})
        return refused(answer, "SANDBOX_RUN_CPU_S")

    until(no_more, 20, "its CPU time is counted")
    assert "still here" in ran(server, "alice", sid, "echo still here"), "what has begun goes on"
    assert begun(server, "bob").status_code == 200, "another key suffers for it"
    server.restart()
    assert refused(begun(server, "alice"), "SANDBOX_RUN_CPU_S"), "a restart forgets it"


def test_a_run_that_has_graded_enough_gets_no_false_zero(server: Server) -> None:
    """A reward of 0.0 for a grading that was refused would teach the policy something that is not so."""
    sids = [begun(server, "carol").json()["sid"] for _ in range(2)]
    for number, sid in enumerate(sids):
        ran(server, "carol", sid, f"echo '# {number}' >> ledger/__init__.py")

    def ended(sid: str) -> dict[str, Any]:
        answer = asked(server, "carol", "/postprocess", {"sid": sid})
        assert answer.status_code == 200, answer.text
        return dict(asked(server, "carol", "/compute_reward", {"sid": sid}).json())

    first = ended(sids[0])
    assert (first["verdict"], first["mask"]) == ("unresolved", False), first
    until(lambda: refused(begun(server, "carol"), "SANDBOX_RUN_GRADE_S"), 10, "its grading is counted")
    patch = "diff --git a/new.py b/new.py\nnew file mode 100644\n--- /dev/null\n+++ b/new.py\n@@ -0,0 +1 @@\n+1\n"
    assert refused(
        asked(server, "carol", "/v1/grade", {"items": [{"instance": LEDGER, "patch": patch}]}), "SANDBOX_RUN_GRADE_S"
    )
    second = ended(sids[1])
    assert (second["verdict"], second["mask"]) == ("unresolved", False), "a session that began is graded"
