"""Batches over real HTTP: accepted forms, refused ones, and that our faults are not results."""

import json
import time
from collections.abc import Iterator

import httpx
import pytest

from sandbox_server.actions.batch import Command

from .stub_service import HASH, Wire, serving


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    with serving(tmp_path_factory.mktemp("wire")) as wire:
        yield wire


@pytest.fixture(scope="module")
def http(wire: Wire) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=wire.url, timeout=30) as client:
        yield client


@pytest.fixture
def path(http: httpx.Client) -> str:
    sid = http.post("/start_instance", json={"instance_hash": HASH}).json()["sid"]
    return f"/v1/sessions/{sid}/exec"


@pytest.mark.parametrize(
    ("body", "commands"),
    [
        ({"command": "ls"}, [Command("ls")]),
        ({"commands": ["ls", "\ud800"]}, [Command("ls"), Command("\ufffd")]),
        (
            {"command": "ls", "timeout_s": 2, "cwd": "src", "env": {"A": "b"}},
            [Command("ls", 2.0, "src", {"A": "b"})],
        ),
        ({"commands": ["ls", {"command": "pwd", "timeout_s": 1.5}]}, [Command("ls"), Command("pwd", 1.5)]),
        (
            {"commands": ["ls", {"command": "pwd", "cwd": "/", "env": {"A": "c"}}], "cwd": "src", "env": {"A": "b"}},
            [Command("ls", None, "src", {"A": "b"}), Command("pwd", None, "/", {"A": "c"})],
        ),
    ],
)
def test_one_command_or_many(wire: Wire, http: httpx.Client, path: str, body: object, commands: list[Command]) -> None:
    """Every documented form of a batch is accepted."""
    answer = http.post(path, content=json.dumps(body), headers={"Idempotency-Key": "k"})
    assert answer.status_code == 200, answer.text
    assert wire.sessions.batches[-1][1:] == (commands, "k")
    assert answer.json()["results"][0] == {
        "exit_code": 0,
        "stdout": "ls",
        "stderr": "",
        "truncated": False,
        "timed_out": False,
        "wall_ms": 1.5,
        "queued_ms": 0.5,
        "error": "",
    }
    assert [one["stdout"] for one in answer.json()["results"]] == [command.command for command in commands]
    assert (answer.json()["seq"], answer.json()["notice"]) == (7, "")


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        {"command": "ls", "commands": ["ls"]},
        {"command": 3},
        {"commands": "ls"},
        {"commands": [3]},
        {"commands": [{"cmd": "ls"}]},
        {"command": "ls", "timeout_s": 0},
        {"command": "ls", "timeout_s": "5"},
        {"command": "ls", "env": {"A": 1}},
        {"command": "ls", "stdin": "x"},
    ],
)
def test_what_is_no_batch_is_422(wire: Wire, http: httpx.Client, path: str, body: object) -> None:
    """A misspelt field is refused, not ignored: a requested limit or folder would otherwise not apply."""
    seen = len(wire.sessions.batches)
    answer = http.post(path, content=json.dumps(body))
    assert answer.status_code == 422 and answer.json()["code"] == "malformed_request", answer.text
    assert len(wire.sessions.batches) == seen


@pytest.mark.parametrize(
    ("command", "status", "code", "retryable"),
    [("lost", 500, "sandbox_lost", False), ("docker", 503, "engine_unavailable", True)],
)
def test_a_fault_of_ours_is_no_result(
    http: httpx.Client, path: str, command: str, status: int, code: str, retryable: bool
) -> None:
    """A fault of ours is an error status: a trainer would take a result for the command's own end."""
    answer = http.post(path, json={"command": command})
    assert answer.status_code == status
    assert (answer.json()["code"], answer.json()["retryable"]) == (code, retryable)
    assert "results" not in answer.json()


def test_unknown_sessions_and_long_keys(http: httpx.Client, path: str) -> None:
    """An unknown session is a 404; a key that is too long is refused before it reaches Redis."""
    assert http.post("/v1/sessions/999/exec", json={"command": "ls"}).json()["code"] == "unknown_session"
    assert http.post("/v1/sessions/x/exec", json={"command": "ls"}).status_code == 422
    assert http.post(path, json={"command": "ls"}, headers={"Idempotency-Key": "k" * 201}).status_code == 422


def test_a_batch_whose_client_hung_up_goes_to_its_end(wire: Wire, http: httpx.Client, path: str) -> None:
    """A batch whose client disconnects is still journaled, so that the retry does not run it again."""
    with pytest.raises(httpx.ReadTimeout):
        http.post(path, json={"command": "slow"}, timeout=httpx.Timeout(60, read=0.1))
    end = time.monotonic() + 60
    while "slow" not in wire.sessions.finished:
        assert time.monotonic() < end
        time.sleep(0.02)


def test_commands_do_not_multiply_with_their_environment(wire: Wire, http: httpx.Client, path: str) -> None:
    """1 MB of them took gigabytes and minutes: each got a copy of the environment, before anybody counted them."""
    batches = len(wire.sessions.batches)
    few = {f"k{number}": "" for number in range(1000)}
    for body in ({"commands": ["ls"] * 1025}, {"commands": ["ls"] * 2, "env": {**few, "more": ""}}):
        answer = http.post(path, json=body)
        assert (answer.status_code, answer.json()["code"]) == (422, "malformed_request"), answer.text
    assert len(wire.sessions.batches) == batches
    assert http.post(path, json={"commands": ["ls", "pwd"], "env": few}).status_code == 200
    (first, second) = wire.sessions.batches[-1][1]
    assert first.env is second.env and first.env == few
