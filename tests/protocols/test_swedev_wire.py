"""The four endpoints byte for byte, over real HTTP, with in-memory sessions."""

import json
import random
import socket
import time
from collections.abc import Callable, Iterator

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .stub_service import HASH, Wire, read_answer, serving

ENDPOINTS = ("/start_instance", "/process_action", "/postprocess", "/compute_reward")


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


def is_refusal(answer: httpx.Response) -> bool:
    body = answer.json()
    return answer.headers["content-type"] == "application/json" and set(body) >= {"code", "detail", "retryable"}


@pytest.mark.parametrize("named", [HASH, str(HASH), "a__b-1"])
def test_a_start_takes_integers_decimal_strings_and_ids(http: httpx.Client, named: int | str) -> None:
    """veRL sends an int, the protocol document a string, its last revision an unhashed id."""
    answer = http.post("/start_instance", json={"instance_hash": named})
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
    sid = answer.json()["sid"]
    assert isinstance(sid, str) and 0 < int(sid) < 2**63


@pytest.mark.parametrize("named", [12345, "12345", 0, -1, 2**63, 2**70, -(2**70), "", "nope", "a\0b", "x" * 401, "٣"])
def test_an_unknown_instance_is_404(http: httpx.Client, named: int | str) -> None:
    """Numbers and names that SQL cannot store are unknown instances, not a 500."""
    answer = http.post("/start_instance", json={"instance_hash": named})
    assert answer.status_code == 404 and is_refusal(answer)
    assert answer.json()["code"] == "unknown_instance"
    if named in (12345, "12345"):
        assert "12345" in answer.json()["detail"]


def test_a_start_that_finds_no_room_says_when_to_come_back(http: httpx.Client) -> None:
    """A client can tell "full" from "broken"."""
    answer = http.post("/start_instance", json={"instance_hash": 1})
    assert answer.status_code == 503 and answer.headers["retry-after"] == "3"
    assert answer.json() == {
        "code": "no_capacity",
        "detail": "All slots are taken.",
        "retryable": True,
        "reason": "slots",
        "position": 3,
        "estimate_s": 2.2,
    }


@pytest.mark.parametrize(
    ("named", "status", "code"),
    [(2, 409, "ungradable"), (3, 503, "sandbox_lost"), (5, 503, "engine_unavailable"), (4, 500, "service_error")],
)
def test_other_failed_starts(http: httpx.Client, named: int, status: int, code: str) -> None:
    """A failed start has its reason in the body, because it ends a batch; a bug's text is not shown."""
    answer = http.post("/start_instance", json={"instance_hash": named})
    assert answer.status_code == status and is_refusal(answer) and answer.json()["code"] == code
    assert "SECRET-BUG" not in answer.text


MALFORMED = [
    *(b"", b" ", b"{", b"[]", b"null", b"3", b'"x"', b"{}", b"\xff\xfe", b'{"sid": {}}', b'{"instance_hash": [1]}'),
    *(
        b'{"sid": 1.5, "content": "x"}',
        b'{"instance_hash": 1.0}',
        b'{"instance_hash": true}',
        b'{"instance_hash": null}',
    ),
    *(b'{"sid": true, "content": "x"}', b'{"sid": NaN, "content": "x"}', b'{"sid": [1], "content": "x"}'),
    *(b'{"content": "x"}', b"[" * 100_000, b'{"a":' * 50_000, b'{"sid": ' + b"9" * 5000 + b', "content": ""}'),
    *(b'\xef\xbb\xbf{"sid": {}}', b'{"sid": 1e3, "content": ""}', b'{"sid": -Infinity, "content": ""}'),
]


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("raw", MALFORMED, ids=lambda raw: repr(raw[:40]))
def test_malformed_requests_are_4xx(http: httpx.Client, path: str, raw: bytes) -> None:
    """A trainer's mistake looks neither like our fault nor like a session."""
    answer = http.post(path, content=raw)
    assert answer.status_code == 422 and is_refusal(answer) and answer.json()["code"] == "malformed_request"


@pytest.mark.parametrize(
    ("path", "raw", "said"),
    [
        ("/start_instance", b"", "The body is empty; send a JSON object."),
        ("/start_instance", b"[]", "The body must be a JSON object, not list; see /docs."),
        ("/start_instance", b"{}", "instance_hash: Field required; see /docs."),
        (
            "/start_instance",
            b'{"instance_hash": true}',
            "instance_hash: Input should be a valid integer, or Input should be a valid string; see /docs.",
        ),
        ("/process_action", b"{}", "sid: Field required; content: Field required; see /docs."),
    ],
)
def test_a_malformed_request_is_told_what_to_send(http: httpx.Client, path: str, raw: bytes, said: str) -> None:
    """Somebody with curl has to guess: "should be a valid string" where an integer is right too."""
    assert http.post(path, content=raw).json()["detail"] == said


@pytest.mark.parametrize("number", ["17.0", "1e3", "true"])
def test_what_is_wrong_with_a_sid_is_told(http: httpx.Client, number: str) -> None:
    """A float sid is refused with an explanation."""
    answer = http.post("/postprocess", content=f'{{"sid": {number}}}'.encode())
    assert answer.status_code == 422
    detail = answer.json()["detail"]
    assert "keep it as the start gave it" in detail and ("float" in detail or "bool" in detail), detail
    assert detail.startswith("sid: a sid is an integer"), detail


@pytest.mark.parametrize("content", [None, 1, True, ["x"], {"x": 1}])
def test_content_must_be_a_string(http: httpx.Client, sid: str, content: object) -> None:
    """Content that is not a string is refused: `str(content)` would run text that nobody wrote."""
    answer = http.post("/process_action", json={"sid": sid, "content": content})
    assert answer.status_code == 422 and "content" in answer.json()["detail"]


UNKNOWN = [None, 0, "0", 999, "999", -1, "-1", 2**63, 2**70, "abc", "", " 5", "5 ", "+5", "1e3", "٣", "x" * 10_000]


@pytest.mark.parametrize("unknown", UNKNOWN, ids=lambda sid: repr(sid)[:12])
def test_unknown_sids_answer_as_the_trainer_needs(http: httpx.Client, unknown: int | str | None) -> None:
    """A rollout whose start failed continues with null or 0; its reward differs from a real zero."""
    answer = http.post("/process_action", json={"sid": unknown, "content": "x"})
    assert answer.status_code == 200 and answer.json()["content"]
    assert answer.json()["error"]["code"] == "unknown_session"
    answer = http.post("/compute_reward", json={"sid": unknown})
    body = answer.json()
    assert answer.status_code == 200
    assert (body["reward"], body["verdict"], body["mask"]) == (0.0, "unknown_session", True)
    answer = http.post("/postprocess", json={"sid": unknown})
    assert answer.status_code == 200 and answer.json()["error"]["code"] == "unknown_session"


def test_only_the_canonical_spelling_names_a_session(http: httpx.Client, wire: Wire, sid: str) -> None:
    """Only one spelling names a session: two would be two locks."""
    for spelling in (sid, int(sid)):
        assert http.post("/process_action", json={"sid": spelling, "content": ""}).json() == {"content": "saw 0"}
        assert wire.sessions.seen[-1][0] == sid
    for spelling in (f"0{sid}", f" {sid}", f"+{sid}", f"{sid}.0"):
        answer = http.post("/process_action", json={"sid": spelling, "content": ""})
        assert answer.json()["error"]["code"] == "unknown_session", spelling


@pytest.mark.parametrize("content", ["", "\0", "a\0b", "\U0001f600", "<function=", "x" * 10_000_000, "\r\n", "ü"])
def test_content_arrives_unchanged(http: httpx.Client, wire: Wire, sid: str, content: str) -> None:
    """The policy's text is passed on unchanged."""
    answer = http.post("/process_action", json={"sid": sid, "content": content})
    assert answer.status_code == 200 and answer.json() == {"content": f"saw {len(content)}"}
    assert wire.sessions.seen[-1][1] == content


def test_half_a_surrogate_pair_is_replaced(http: httpx.Client, wire: Wire, sid: str) -> None:
    """Lone surrogates are replaced: no encoding can represent them in the shell or in SQL."""
    raw = b'{"sid": ' + sid.encode() + b', "content": "\\ud800 \\ud83d\\ude00 \\udc00"}'
    assert http.post("/process_action", content=raw).status_code == 200
    assert wire.sessions.seen[-1][1] == "\ufffd \U0001f600 \ufffd"


def test_an_observation_with_half_a_pair_reaches_the_client(http: httpx.Client, sid: str) -> None:
    """An undecodable file name is not a 500."""
    answer = http.post("/process_action", json={"sid": sid, "content": "half"})
    assert json.loads(answer.content)["content"] == "half a pair: \ud800"


def test_the_content_type_of_a_request_does_not_matter(http: httpx.Client, sid: str) -> None:
    """Any content type is accepted: curl -d sends a form's."""
    raw = json.dumps({"sid": sid, "content": "x"})
    for kind in ("application/x-www-form-urlencoded", "text/plain", "application/json; charset=utf-8", ""):
        answer = http.post("/process_action", content=raw, headers={"Content-Type": kind})
        assert answer.json() == {"content": "saw 1"}


def test_a_body_past_the_bound_is_413(http: httpx.Client, wire: Wire) -> None:
    """An oversized body is refused without being held in memory."""
    answer = http.post("/process_action", content=b"x" * (33 * 2**20))
    assert answer.status_code == 413 and is_refusal(answer)
    answer = http.post("/process_action", content=(b"x" * 2**20 for _ in range(33)))  # chunked: no Content-Length
    assert answer.status_code == 413 and is_refusal(answer)
    with socket.create_connection(("127.0.0.1", wire.port)) as s:
        s.sendall(
            b"POST /postprocess HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 99999999999\r\n\r\n"
        )
        assert read_answer(s).startswith(b"HTTP/1.1 413 ")


def test_an_idempotency_key_is_handed_on_within_its_bound(http: httpx.Client, wire: Wire, sid: str) -> None:
    """A retried action runs once; a key that is too long is refused."""
    body = {"sid": sid, "content": "x"}
    http.post("/process_action", json=body, headers={"Idempotency-Key": "k-1"})
    assert wire.sessions.seen[-1] == (sid, "x", "k-1")
    answer = http.post("/process_action", json=body, headers={"Idempotency-Key": "k" * 201})
    assert answer.status_code == 422 and is_refusal(answer)


def test_a_fault_under_an_action_is_an_answer_that_says_so(http: httpx.Client, sid: str) -> None:
    """Faults during an action are a 200: the trainer reads a 500 as the observation "Error"."""
    answer = http.post("/process_action", json={"sid": sid, "content": "raise"})
    assert answer.status_code == 200
    text = "The sandbox is gone."
    assert answer.json() == {"content": text, "error": {"code": "sandbox_lost", "detail": text}}


def test_postprocess_says_where_the_session_stands(http: httpx.Client, sid: str) -> None:
    """Postprocess can be repeated."""
    for _ in range(2):
        assert http.post("/postprocess", json={"sid": int(sid)}).json() == {"sid": sid, "state": "ended"}


def test_a_reward_has_every_field_with_its_type(http: httpx.Client, sid: str) -> None:
    """All fields are there: a missing or misspelt one is read as reward 0.0."""
    answer = http.post("/compute_reward", json={"sid": int(sid)})
    assert answer.json() == {
        **{"reward": 1.0, "f2p_count": 1, "f2p_total": 1, "p2p_count": 0, "p2p_total": 0, "resolved": True},
        **{"patch_is_None": False, "patch_exists": True, "patch_successfully_applied": True},
        **{"patch_succesfully_applied": True, "verdict": "resolved", "mask": False, "cause": "All pass."},
        "receipt": "r-1",
    }
    assert '"reward": 1.0' in answer.text  # the stub gave the integer 1


def _post_and_hang_up(wire: Wire, path: str, body: dict[str, object], begun: Callable[[], bool]) -> None:
    raw = json.dumps(body).encode()
    with socket.create_connection(("127.0.0.1", wire.port)) as s:
        s.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(raw)) + raw)
        assert _eventually(begun)


def _eventually(met: Callable[[], bool]) -> bool:
    end = time.monotonic() + 60
    while not met() and time.monotonic() < end:
        time.sleep(0.01)
    return met()


def test_a_start_whose_client_hung_up_is_closed(wire: Wire) -> None:
    """If the client disconnects during a start, the session is closed, because nobody knows its sid."""
    before, begun = len(wire.sessions.closed), wire.sessions.starting
    wire.sessions.start_s, wire.sessions.begun_when_cancelled = 60.0, True
    try:
        _post_and_hang_up(wire, "/start_instance", {"instance_hash": HASH}, lambda: wire.sessions.starting > begun)
        assert _eventually(lambda: len(wire.sessions.closed) == before + 1)
    finally:
        wire.sessions.start_s, wire.sessions.begun_when_cancelled = 0.0, False
    assert wire.sessions.records[wire.sessions.closed[-1]].state == "ended"


def test_a_start_that_waits_ends_with_its_client(wire: Wire) -> None:
    """A start whose client has disconnected leaves the queue."""
    before, begun, given_up = len(wire.sessions.records), wire.sessions.starting, wire.sessions.given_up
    wire.sessions.start_s = 120.0
    try:
        _post_and_hang_up(wire, "/start_instance", {"instance_hash": HASH}, lambda: wire.sessions.starting > begun)
        assert _eventually(lambda: wire.sessions.given_up == given_up + 1), "it waits for a client that has left"
        assert len(wire.sessions.records) == before
    finally:
        wire.sessions.start_s = 0.0


def test_a_start_that_was_delivered_is_not_closed(wire: Wire, sid: str) -> None:
    """A client may close its connection right after the response without losing its session."""
    before = len(wire.sessions.closed)
    raw = json.dumps({"instance_hash": HASH}).encode()
    with socket.create_connection(("127.0.0.1", wire.port)) as s:
        s.sendall(b"POST /start_instance HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(raw) + raw)
        assert b'"sid"' in read_answer(s)
    time.sleep(0.1)
    assert len(wire.sessions.closed) == before


def test_an_action_whose_client_hung_up_runs_to_its_end(wire: Wire, sid: str) -> None:
    """An action runs to its end if its client disconnects: the journal has no half actions."""
    before, seen = wire.sessions.finished.count("slow"), len(wire.sessions.seen)
    slow = {"sid": sid, "content": "slow"}
    _post_and_hang_up(wire, "/process_action", slow, lambda: len(wire.sessions.seen) > seen)
    assert _eventually(lambda: wire.sessions.finished.count("slow") == before + 1)


def test_an_action_under_way_at_shutdown_runs_to_its_end(tmp_path_factory: pytest.TempPathFactory) -> None:
    """An orderly restart lets running actions finish."""
    with serving(tmp_path_factory.mktemp("wire")) as wire:
        sid = httpx.post(f"{wire.url}/start_instance", json={"instance_hash": HASH}).json()["sid"]
        slow = {"sid": sid, "content": "slow"}
        _post_and_hang_up(wire, "/process_action", slow, lambda: bool(wire.sessions.seen))
    assert wire.sessions.finished == ["slow"]


def test_a_thousand_malformed_requests_harm_nothing(http: httpx.Client, wire: Wire, sid: str) -> None:
    """No byte string is a 5xx or leaves the server worse than before."""
    rng = random.Random(7)
    whole = json.dumps({"sid": sid, "content": "hello", "instance_hash": HASH + 1}).encode()
    for i in range(1000):
        raw = bytearray(whole)
        for _ in range(rng.randint(1, 8)):
            at = rng.randrange(len(raw))
            match rng.randrange(3):
                case 0:
                    raw[at] = rng.randrange(256)
                case 1:
                    del raw[at : at + rng.randint(1, 20)]
                    raw = raw or bytearray(b"{")
                case _:
                    raw[at:at] = rng.choice([b"\xff", b"[", b"{", b'"', b"\\u", b"1e999", b"null", b"\0"])
        answer = http.post(ENDPOINTS[i % 4], content=bytes(raw))
        assert answer.status_code < 500 and answer.headers["content-type"] == "application/json", bytes(raw)
        answer.json()
    assert http.post("/process_action", json={"sid": sid, "content": "x"}).json() == {"content": "saw 1"}
    assert not wire.app.state.apart


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=300, deadline=None)
@given(
    path=st.sampled_from(ENDPOINTS), body=st.dictionaries(st.sampled_from(["sid", "content", "instance_hash"]), JSON)
)
def test_any_json_gets_a_json_answer_below_500(http: httpx.Client, path: str, body: dict[str, object]) -> None:
    """No JSON type is a 5xx."""
    if body.get("instance_hash") in (1, 2, 3, 4, 5):
        return  # the stub's own faults
    answer = http.post(path, content=json.dumps(body).encode())
    assert answer.status_code in (200, 404, 422)
    answer.json()
