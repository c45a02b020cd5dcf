"""The service that the tests drive: the stand, and the real server with one of the samples.

The real one is started here when the server's own tests and the samples are there, as they are in its repository;
elsewhere SANDBOX_TEST_URL, _INSTANCE (dialect openhands_xml) and _SOLVE (a bash command that earns 1.0) name one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import Service
from stand import Stand

from sandbox_client.background import close_background
from sandbox_client.hosts import MEMORY

SETTINGS = (
    "SANDBOX_URL",
    "SANDBOX_MASKED_REWARD",
    "SANDBOX_DEAD_SESSIONS",
    "SANDBOX_CHAT_WRAP",
    "SANDBOX_PROMPTS_FILE",
    "SANDBOX_RUN",
    "SANDBOX_RUN_LEASE_S",
    "SANDBOX_END_RUN_AT_START",
    "SANDBOX_CONNECT_TIMEOUT_S",
    "SANDBOX_START_ATTEMPT_S",
    "SANDBOX_ACTION_ATTEMPT_S",
    "SANDBOX_POSTPROCESS_ATTEMPT_S",
    "SANDBOX_REWARD_ATTEMPT_S",
    "SANDBOX_REWARD_TOTAL_S",
    "SANDBOX_RETRY_S",
    "SANDBOX_REWARD_RETRY_S",
)


@pytest.fixture(autouse=True)
def clean_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No setting of the machine counts, and no thread of the drop-in outlives a test."""
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    yield
    close_background()
    MEMORY.forget()


@pytest.fixture
def light_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Programs that the test starts import an empty torch: the real one takes 1.6 s of CPU in each."""
    (tmp_path / "light" / "torch").mkdir(parents=True)
    (tmp_path / "light" / "torch" / "__init__.py").touch()
    places = (str(tmp_path / "light"), os.environ.get("PYTHONPATH"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, places)))


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stand]:
    stand = Stand()
    monkeypatch.setenv("SANDBOX_URL", stand.url)
    yield stand
    stand.close()


SAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="session")
def live_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    if "SANDBOX_TEST_URL" in os.environ:
        yield Service(*(os.environ[f"SANDBOX_TEST_{name}"] for name in ("URL", "INSTANCE", "SOLVE")))
        return
    real = pytest.importorskip("tests.live.serving", reason="this is not the server's repository")
    if not (SAMPLES / "instances.jsonl").exists():
        pytest.skip("the samples are not built: make images")
    rows = [json.loads(line) for line in (SAMPLES / "instances.jsonl").read_text().splitlines()]
    gold = next(row["patch"] for row in rows if row["instance_id"] == "samples__ledger-12")
    with real.serving(tmp_path_factory.mktemp("live"), SAMPLES / "instances.jsonl") as server:
        yield Service(server.url, "samples__ledger-12", f"git apply - <<'END_OF_GOLD'\n{gold}END_OF_GOLD")


@pytest.fixture(params=["stand", "live"])
def service(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Service:
    if request.param == "stand":
        return Service(request.getfixturevalue("stand").url, "django__django-11099", "solve")
    live: Service = request.getfixturevalue("live_server")
    monkeypatch.setenv("SANDBOX_URL", live.url)
    return live
