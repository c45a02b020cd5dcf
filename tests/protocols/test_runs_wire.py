"""The run of a start: the header, else the API key's name; and the fields of a refused group."""

import base64
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from sandbox_server.fleet.runs import RunEnd, Runs

from .stub_service import HASH, Wire, serving

KEYS = "alice=alices-secret-key, plain-secret-key, cGFkZGVkLWtleS1pbi1iYXNlNjQ=, x=short"


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    with serving(tmp_path_factory.mktemp("wire")) as wire:
        yield wire


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    with serving(tmp_path_factory.mktemp("wire"), api_keys=KEYS) as wire:
        yield wire


@pytest.mark.parametrize(
    ("setting", "value", "body"), [("run_requests_per_min", 2, b""), ("run_sent_mb_per_min", 1.0, bytes(3 << 19))]
)
def test_a_named_key_asks_and_sends_no_more_than_it_may(
    tmp_path: Path, setting: str, value: float, body: bytes
) -> None:
    """One tenant's loop, or its uploads, would take the service's loop and disk from all others."""
    with serving(tmp_path, api_keys=KEYS, **{setting: value}) as wire:

        def asked(key: str) -> httpx.Response:
            return httpx.post(f"{wire.url}/process_action", headers={"X-API-Key": key}, content=body)

        answers = [asked("alices-secret-key") for _ in range(3)]
        refused = [answer for answer in answers if answer.status_code == 429]
        assert len(refused) == (1 if setting == "run_requests_per_min" else 2), [one.text for one in answers]
        assert {one.json()["code"] for one in refused} == {"over_quota"}
        assert f"SANDBOX_{setting.upper()}" in refused[-1].json()["detail"]
        assert 1 <= int(refused[-1].headers["retry-after"]) <= 60
        assert asked("plain-secret-key").status_code == 422, "an operator's key has no bound"


class Told(Runs):
    """The interface that the protocol needs of runs."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []

    async def started(self, run: str, key: str) -> None:
        self.asked.append(("started", run, key))

    async def check(self, run: str, key: str) -> None:
        self.asked.append(("check", run, key))

    async def end(self, run: str, *, owner: str = "", wait_s: float) -> RunEnd:
        return RunEnd(("1",), ())


@pytest.mark.parametrize(
    ("key", "owner"),
    [("alices-secret-key", "alice"), ("alice=alices-secret-key", "alice"), ("plain-secret-key", "")],
)
def test_whose_key_it_is_decides_over_runs(keyed: Wire, key: str, owner: str) -> None:
    """A named key's whole entry is also a key without a name; its holder must not end other trainers' runs."""
    told = keyed.app.state.runs = Told()
    headers = {"Authorization": f"Bearer {key}", "Sandbox-Run": "grpo/7b"}
    run_of_a_start(keyed, headers)
    answer = httpx.delete(f"{keyed.url}/v1/runs/grpo/7b/sessions", headers=headers)
    assert answer.status_code == 200 and answer.json() == {"run": "grpo/7b", "ended": ["1"], "ending": []}
    assert told.asked == [("started", "grpo/7b", owner), ("check", "grpo/7b", owner)]
    assert httpx.delete(f"{keyed.url}/v1/runs/grpo/sessions").status_code == 401
    assert httpx.delete(f"{keyed.url}/v1/runs/%20/sessions", headers=headers).status_code == 422


def run_of_a_start(wire: Wire, headers: dict[str, str], *, group: bool = False) -> str:
    path, body = "/start_instance", {"instance_hash": HASH}
    if group:
        path, body = "/v1/groups", {"instance": HASH, "n": 1}
    answer = httpx.post(wire.url + path, json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    answered = answer.json()
    return wire.sessions.records[answered["sids"][0] if group else answered["sid"]].run


@pytest.mark.parametrize("group", [False, True])
def test_the_header_names_the_run(wire: Wire, group: bool) -> None:
    """Two trainers with one key and different headers are two runs."""
    for run in ("grpo-7b", "team/a:run.3_b@x+1", "x" * 100):
        assert run_of_a_start(wire, {"Sandbox-Run": run}, group=group) == run
    assert run_of_a_start(wire, {}, group=group) == run_of_a_start(wire, {"Sandbox-Run": ""}, group=group) == ""


@pytest.mark.parametrize("run", ["x" * 101, "two words", "a\tb", "a,b", "ä".encode(), "(other)", '"x"', "{}"])
@pytest.mark.parametrize("path", ["/start_instance", "/v1/groups"])
def test_a_name_that_is_none_is_refused(wire: Wire, path: str, run: str) -> None:
    """A malformed run name is refused, because it goes into metrics, logs and SQL."""
    before = len(wire.sessions.records)
    body = {"instance_hash": HASH, "instance": HASH, "n": 2}
    answer = httpx.post(wire.url + path, json=body, headers=[("Sandbox-Run", run)])
    assert (answer.status_code, answer.json()["code"]) == (422, "malformed_request")
    assert len(wire.sessions.records) == before


def test_sessions_of_one_run(wire: Wire) -> None:
    """An operator can list one trainer's sessions."""
    run_of_a_start(wire, {"Sandbox-Run": "listed"})
    found = httpx.get(f"{wire.url}/v1/sessions", params={"run": "listed"}).json()
    assert [session["run"] for session in found] == ["listed"]
    assert httpx.get(f"{wire.url}/v1/sessions", params={"run": "nobody"}).json() == []
    assert httpx.get(f"{wire.url}/v1/sessions", params={"run": "\0"}).status_code == 422


@pytest.mark.parametrize(
    ("key", "run"),
    [
        ("alices-secret-key", "alice"),
        ("alice=alices-secret-key", ""),  # as before keys had names
        ("plain-secret-key", ""),
        ("cGFkZGVkLWtleS1pbi1iYXNlNjQ=", ""),
        ("x=short", ""),
    ],
)
def test_a_key_names_the_run(keyed: Wire, key: str, run: str) -> None:
    """A trainer that cannot send a header gets its key's name as run; old keys with `=` still work."""
    basic = "Basic " + base64.b64encode(f"any:{key}".encode()).decode()
    for headers in ({"X-API-Key": key}, {"Authorization": f"Bearer {key}"}, {"Authorization": basic}):
        assert run_of_a_start(keyed, headers) == run
    assert run_of_a_start(keyed, {"X-API-Key": key, "Sandbox-Run": "mine"}) == "mine"


@pytest.mark.parametrize(
    "key", ["alice", "alice=", "=", "short", "x", "cGFkZGVkLWtleS1pbi1iYXNlNjQ", "=alices-secret-key"]
)
def test_a_part_of_an_entry_is_no_key(keyed: Wire, key: str) -> None:
    """A name, base64 padding or a few letters after a `=` are not a key."""
    assert httpx.get(f"{keyed.url}/v1/sessions", headers={"X-API-Key": key}).status_code == 401


def test_what_a_group_lacked(wire: Wire) -> None:
    """A group that started only in part says when to retry the rest."""
    answer = httpx.post(f"{wire.url}/v1/groups", json={"instance": HASH, "n": 3})
    assert answer.json()["failed"] == [
        {
            "code": "no_capacity",
            "detail": "Full.",
            "retryable": True,
            "reason": "slots",
            "position": 9,
            "estimate_s": None,
        }
    ]
    refused = httpx.post(f"{wire.url}/v1/groups", json={"instance": 1, "n": 1})
    assert (refused.status_code, refused.headers["Retry-After"], refused.json()["position"]) == (503, "3", 3)


@pytest.mark.parametrize(
    ("path", "body"), [("/start_instance", {"instance_hash": 6}), ("/v1/groups", {"instance": 6, "n": 1})]
)
def test_a_run_that_has_enough_is_told_when_to_ask_again(wire: Wire, path: str, body: dict[str, object]) -> None:
    """A quota refusal has Retry-After, and does not look like a sick host that makes a trainer go elsewhere."""
    refused = httpx.post(wire.url + path, json=body)
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "7")
    assert refused.json() == {"code": "over_quota", "detail": "It has enough.", "retryable": True}


def test_patches_of_a_run_that_has_graded_enough_get_no_verdict(wire: Wire) -> None:
    """A refused grading that looked like a graded one would be a reward of 0.0."""
    items = [{"instance": "a__b-1", "patch": "diff"}, {"answer": "a.py", "truth": {"files": ["a.py"]}}]
    refused = httpx.post(f"{wire.url}/v1/grade", json={"items": items}, headers={"Sandbox-Run": "spent"})
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "9")
    assert refused.json() == {"code": "over_quota", "detail": "Its gradings took all they may.", "retryable": True}
    for run, asked in (("spent", items[1:]), ("other", items)):
        answer = httpx.post(f"{wire.url}/v1/grade", json={"items": asked}, headers={"Sandbox-Run": run})
        assert answer.status_code == 200 and answer.json()["results"][-1]["total"] == 1.0, answer.text


def test_a_part_that_is_down_has_a_reason_too(wire: Wire) -> None:
    """A client can tell from the response whether another host may do better."""
    refused = httpx.post(f"{wire.url}/start_instance", json={"instance_hash": 5})
    assert (refused.status_code, refused.json()["code"]) == (503, "engine_unavailable")
    assert refused.json()["reason"] == "daemon" and refused.headers["Retry-After"] == "5"
