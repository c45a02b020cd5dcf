"""The service that the tests drive: the stand, or a live server where the environment names one.

SANDBOX_TEST_URL           base URL of a live server
SANDBOX_TEST_INSTANCE      an imported instance; its dialect is openhands_xml
SANDBOX_TEST_SOLVE         a bash command that makes its gold change, for reward 1.0
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from stand import Stand

from sandbox_client.background import close_background

SETTINGS = (
    "SANDBOX_URL",
    "SANDBOX_MASKED_REWARD",
    "SANDBOX_DEAD_SESSIONS",
    "SANDBOX_CHAT_WRAP",
    "SANDBOX_PROMPTS_FILE",
)


@dataclass(frozen=True)
class Service:
    url: str
    instance_id: str
    solve: str
    """A bash command after which the session earns 1.0."""


@pytest.fixture(autouse=True)
def clean_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No setting of the machine counts, and no thread of the drop-in outlives a test."""
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    yield
    close_background()


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stand]:
    stand = Stand()
    monkeypatch.setenv("SANDBOX_URL", stand.url)
    yield stand
    stand.close()


@pytest.fixture(params=["stand", "live"])
def service(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Service:
    if request.param == "stand":
        return Service(request.getfixturevalue("stand").url, "django__django-11099", "solve")
    if "SANDBOX_TEST_URL" not in os.environ:
        pytest.skip("SANDBOX_TEST_URL names no live server")
    live = Service(*(os.environ[f"SANDBOX_TEST_{name}"] for name in ("URL", "INSTANCE", "SOLVE")))
    monkeypatch.setenv("SANDBOX_URL", live.url)
    return live
