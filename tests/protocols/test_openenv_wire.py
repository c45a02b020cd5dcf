"""OpenEnv's messages over real websockets and HTTP: hostile ones, whose may be opened, and what a mask looks like."""

import dataclasses
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from sandbox_server.protocols.openenv import wire as messages
from sandbox_server.scoring.rewards import RewardAnswer
from sandbox_server.verdicts import Verdict, VerdictName

from .stub_service import Wire, serving

KEYS = {"operator": "an-operators-key", "alice": "alices-own-key", "viewer": "a-viewers-key"}


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    named = (KEYS["operator"], f"alice={KEYS['alice']}")
    with serving(tmp_path_factory.mktemp("wire"), api_keys=named, view_keys=(KEYS["viewer"],)) as wire:
        yield wire


@contextmanager
def opened(wire: Wire, path: str = "/openenv/ws", key: str = KEYS["operator"], **headers: str) -> Iterator[Any]:
    given = {"X-API-Key": key, **headers} if key else headers
    with connect(f"ws://127.0.0.1:{wire.port}{path}", additional_headers=given) as websocket:
        yield websocket


def ask(websocket: ClientConnection, message: object) -> dict[str, Any]:
    websocket.send(message if isinstance(message, str | bytes) else json.dumps(message))
    return dict(json.loads(websocket.recv(timeout=30)))


def until(condition: Callable[[], object]) -> None:
    ends = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("{not json", "INVALID_JSON"),
        (b"\xff\xfe", "INVALID_JSON"),
        ("[" * 10_000, "INVALID_JSON"),
        ("9" * 5_000, "INVALID_JSON"),
        ("[]", "UNKNOWN_TYPE"),
        ('"reset"', "UNKNOWN_TYPE"),
        ({"type": "mcp", "data": {}}, "UNKNOWN_TYPE"),
        ({"type": ["reset"]}, "UNKNOWN_TYPE"),
        ({"type": "reset", "data": 5}, "VALIDATION_ERROR"),
        ({"type": "reset", "data": {}}, "VALIDATION_ERROR"),
        ({"type": "reset", "data": {"instance": {"a": 1}}}, "VALIDATION_ERROR"),
        ({"type": "reset", "data": {"instance": "no__such-1"}}, "VALIDATION_ERROR"),
        ({"type": "reset", "data": {"instance": 1}}, "VALIDATION_ERROR"),
        ({"type": "step", "data": {"content": "ls"}}, "SESSION_ERROR"),
        ({"type": "step", "data": "ls"}, "VALIDATION_ERROR"),
        ({"type": "step"}, "VALIDATION_ERROR"),
    ],
)
def test_hostile_messages(wire: Wire, message: object, code: str) -> None:
    """A message that is none ends the connection, and with it the episode of a trainer."""
    with opened(wire) as websocket:
        assert ask(websocket, message)["data"]["code"] == code
        assert ask(websocket, {"type": "state"}) == {"type": "state", "data": {"episode_id": None, "step_count": 0}}


def test_actions_that_are_none(wire: Wire) -> None:
    """A trainer's mistake is told to the policy, or ends the episode."""
    with opened(wire, "/openenv/instances/a__b-1/ws") as websocket:
        sid = ask(websocket, {"type": "reset"})["data"]["observation"]["sid"]
        for action in ({}, {"type": "call_tool"}, {"tool_name": 5}, {"tool_name": "a", "arguments": []}):
            told = ask(websocket, {"type": "step", "data": action})
            assert told["data"]["code"] == "VALIDATION_ERROR" and "call_tool" in told["data"]["message"]
        assert ask(websocket, {"type": "state"})["data"]["state"] == "live"
    until(lambda: wire.sessions.records[sid].state == "ended")


def test_a_huge_message(wire: Wire) -> None:
    """One client's message fills the server's memory."""
    with opened(wire) as websocket:
        websocket.send("x" * (2**16 + 1))
        with pytest.raises(ConnectionClosed) as closed:
            websocket.recv(timeout=30)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1009


def test_whose_websockets(wire: Wire) -> None:
    """A page of elsewhere, a viewer, or whoever has no key drives sandboxes; a tenant drives another's."""
    for headers, status in (
        ({"key": ""}, 401),
        ({"key": "wrong"}, 401),
        ({"key": KEYS["viewer"]}, 403),
        ({"Origin": "http://evil.example"}, 403),
    ):
        with pytest.raises(InvalidStatus) as refused, opened(wire, **headers):
            pass
        assert refused.value.response.status_code == status, headers
    with opened(wire, "/openenv/instances/a__b-1/ws") as websocket:
        sid = ask(websocket, {"type": "reset"})["data"]["observation"]["sid"]
        with pytest.raises(InvalidStatus) as refused, opened(wire, f"/openenv/sessions/{sid}/ws", KEYS["alice"]):
            pass
        assert refused.value.response.status_code == 404
        with opened(wire, f"/openenv/ws?session_id={sid}", KEYS["alice"]) as other:
            told = ask(other, {"type": "step", "data": {"content": "ls"}})["data"]
            assert (told["reward"], told["done"], told["metadata"]["verdict"]) == (None, True, "unknown_session")
            assert ask(other, {"type": "state"})["data"]["code"] == "VALIDATION_ERROR"
            # what is no sid does not become another request of ours
            assert not any("ls" in seen and at == sid for at, seen, _ in wire.sessions.seen)
        for odd in ("1%26sid%3D2", "..%2F..%2Fhealthz", "%0d%0aX-A:%20b"):
            with opened(wire, f"/openenv/ws?session_id={odd}") as websocket_:
                assert ask(websocket_, {"type": "state"})["type"] == "error", odd


def test_other_paths_answer_handshakes_as_requests(wire: Wire) -> None:
    """A handshake for a path without websockets hangs, or gets less than any request there."""
    for path, status in (("/healthz", 200), ("/v1/sessions", 200), ("/mcp", 405), ("/nowhere", 404)):
        with pytest.raises(InvalidStatus) as refused, opened(wire, path):
            pass
        assert refused.value.response.status_code == status, path


def test_by_http(wire: Wire) -> None:
    """The routes that OpenEnv's tools look at first are missing, or those with a session forget it."""
    with httpx.Client(base_url=f"{wire.url}/openenv", headers={"X-API-Key": KEYS["operator"]}, timeout=30) as http:
        assert http.get("/health").json() == {"status": "healthy"}
        assert set(http.get("/schema").json()) == {"action", "observation", "reset_observation", "state"}
        assert http.get("/metadata").json()["name"] == "sandbox-server"
        begun = http.post("/reset", json={"instance": "a__b-1", "seed": 3}).json()
        sid = begun["metadata"]["sid"]
        step = {"sid": sid, "action": {"tool_name": "bash", "arguments": {"command": "ls"}}}
        told = http.post("/step", json=step).json()
        assert told["observation"]["tool_name"] == "bash" and not told["done"]
        assert http.get("/state", params={"sid": sid}).json()["state"] == "live"
        over = http.post("/step", json={"sid": sid, "action": {"type": "reward"}}).json()
        assert (over["reward"], over["done"], over["metadata"]["mask"]) == (1.0, True, False)
        for body in ({}, {"sid": sid}, {"sid": 1.5, "action": {}}, {"sid": sid, "action": {"type": "fly"}}):
            assert http.post("/step", json=body).status_code == 422, body


def test_a_mask_is_no_number() -> None:
    """A trainer learns 0.0 from what was the service's fault."""
    verdict = Verdict(VerdictName.INFRA, mask=True, cause="Docker does not answer.")
    told = messages.observed({"content": ""}, {"sid": "1"}, RewardAnswer(verdict, 0.0))
    assert (told["reward"], told["done"]) == (None, True)
    assert told["metadata"] == told["observation"]["metadata"]  # type: ignore[index]
    assert told["metadata"]["mask"] is True and told["metadata"]["verdict"] == "infra"  # type: ignore[index]
    paid = messages.observed({}, {}, RewardAnswer(dataclasses.replace(verdict, mask=False), 0))
    assert paid["reward"] == 0.0
