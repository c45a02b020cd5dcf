"""Our own endpoints over real HTTP: what they show, and what they must never show."""

import json
from collections.abc import Iterator

import httpx
import pytest

from .stub_service import DIFF, HASH, Wire, serving


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    with serving(tmp_path_factory.mktemp("wire")) as wire:
        yield wire


@pytest.fixture(scope="module")
def http(wire: Wire) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=wire.url, timeout=30) as client:
        yield client


@pytest.fixture
def sid(http: httpx.Client) -> str:
    return http.post("/start_instance", json={"instance_hash": HASH}).json()["sid"]


def test_a_live_session(http: httpx.Client, sid: str) -> None:
    """A session's node and container are shown, but not the secret that reattaches its shell."""
    body = http.get(f"/v1/sessions/{sid}").json()
    assert (body["sid"], body["state"], body["instance_id"], body["container_id"]) == (sid, "live", "a__b-1", "c0ffee")
    assert body["verdict"] is body["grade"] is body["patch"] is None
    assert "SECRET" not in json.dumps(body)


def test_an_ended_session_with_its_verdict_and_patch(http: httpx.Client, sid: str) -> None:
    """The verdict is shown without the trainer's endpoint."""
    assert http.get(f"/v1/sessions/{sid}/patch").status_code == 409
    closed = http.delete(f"/v1/sessions/{sid}")
    assert closed.status_code == 200 and closed.json()["state"] == "ended"
    body = http.get(f"/v1/sessions/{sid}").json()
    assert body["verdict"] == "resolved" and body["timings_s"] == {"total": 1.5}
    assert body["grade"]["receipt"] == "r-1" and body["grade"]["mask"] is False
    assert body["patch"]["bytes"] == len(DIFF) and body["patch"]["exists"] is True
    patch = http.get(f"/v1/sessions/{sid}/patch")
    assert patch.content == DIFF and patch.headers["content-type"] == "text/plain; charset=utf-8"
    actions = http.get(f"/v1/sessions/{sid}/actions")
    assert json.loads(actions.content)[0]["observation"] == "half a pair: \ud800"


def test_sessions_are_listed_by_state_within_a_bound(http: httpx.Client, sid: str) -> None:
    """Lists are paged: a fleet's history is never one response."""
    listed = http.get("/v1/sessions", params={"state": "live", "limit": 1}).json()
    assert [entry["sid"] for entry in listed] == [sid]
    for wrong in ({"state": "dead"}, {"limit": 0}, {"limit": 1001}, {"limit": "x"}):
        answer = http.get("/v1/sessions", params=wrong)
        assert answer.status_code == 422 and answer.json()["code"] == "malformed_request"


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_unknown_sessions_are_404(http: httpx.Client, method: str) -> None:
    """An operator's typing error does not look like a fault."""
    answer = http.request(method, "/v1/sessions/999")
    assert answer.status_code == 404 and answer.json()["code"] == "unknown_session"
    assert "no session 999: its start failed, it ended long ago" in answer.json()["detail"]
    for strange in ("abc", "-1", "%00", "9" * 30, "%ff"):
        assert http.request(method, f"/v1/sessions/{strange}").status_code == 422


def test_receipts(http: httpx.Client) -> None:
    """A verdict's evidence can be read."""
    assert http.get("/v1/receipts/r-1").json() == {"id": "r-1", "patch_sha256": "5a"}
    assert http.get("/v1/receipts/r-2").json()["code"] == "unknown_receipt"
    assert http.get("/v1/receipts/%00").status_code == 422


def test_instances_never_show_what_would_solve_them(http: httpx.Client) -> None:
    """The client that drives the policy cannot read its solution or its tests."""
    listed, shown = http.get("/v1/instances"), http.get("/v1/instances/a__b-1")
    assert listed.json()[0]["instance_hash"] == shown.json()["instance_hash"] == str(HASH)
    assert shown.json()["problem_statement"] == "It is broken." and shown.json()["f2p_total"] == 1
    assert "SECRET" not in listed.text + shown.text
    assert http.get("/v1/instances", params={"after": "a__b-1"}).json() == []
    for unknown in ("nope", "a%2Fb", "a/b"):
        answer = http.get(f"/v1/instances/{unknown}")
        assert answer.status_code == 404 and answer.json()["code"] == "unknown_instance"
    assert http.get("/v1/instances/%00").status_code == 422


@pytest.mark.parametrize(
    ("path", "model"),
    [
        ("/v1/sessions/{sid}", "SessionDetail"),
        ("/v1/sessions", "ListedSession"),
        ("/v1/sessions/{sid}/actions", "ActionEntry"),
        ("/v1/instances", "InstanceSummary"),
        ("/v1/instances/a__b-1", "InstanceDetail"),
    ],
)
def test_answers_have_the_fields_of_the_document(http: httpx.Client, sid: str, path: str, model: str) -> None:
    """A client generated from the document would drop a field: the models only describe what the routes write."""
    http.delete(f"/v1/sessions/{sid}")
    answer = http.get(path.format(sid=sid)).json()
    declared = http.get("/openapi.json").json()["components"]["schemas"][model]["properties"]
    assert (answer[0] if isinstance(answer, list) else answer).keys() == declared.keys()


def test_wrong_paths_and_methods_are_json(http: httpx.Client) -> None:
    """Errors are JSON: a client that parses every response would break on plain text."""
    answer = http.get("/nope")
    assert answer.status_code == 404 and answer.json()["code"] == "not_found"
    answer = http.get("/process_action")
    assert answer.status_code == 405 and answer.json()["code"] == "method_not_allowed"
    assert answer.headers["allow"] == "POST"
