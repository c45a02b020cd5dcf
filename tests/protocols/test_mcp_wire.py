"""MCP's messages over real HTTP, by the letter of the specification: what is answered, and what is refused."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from sandbox_server.actions import protocol_calls, registry
from sandbox_server.actions.base import Call, Say

from .stub_service import HASH, Wire, serving

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    with serving(
        tmp_path_factory.mktemp("wire"), max_body_mb=0.01, agent_origins=("https://pages.example:8443/",)
    ) as wire:
        yield wire


@pytest.fixture(scope="module")
def http(wire: Wire) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=wire.url, timeout=30) as client:
        yield client


@pytest.fixture
def sid(http: httpx.Client) -> str:
    return str(http.post("/start_instance", json={"instance_hash": HASH}).json()["sid"])


def legacy(method: str, **params: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}


def modern(method: str, **params: object) -> tuple[dict[str, object], dict[str, str]]:
    headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method}
    if "name" in params:
        headers["Mcp-Name"] = str(params["name"])
    return legacy(method, _meta=META, **params), headers


def test_a_legacy_client(http: httpx.Client, sid: str) -> None:
    """Most agents begin with `initialize`; one that is offered no version it knows hangs up."""
    for asked, got in (("2025-06-18", "2025-06-18"), ("2024-11-05", "2025-11-25"), (["x"], "2025-11-25")):
        answer = http.post("/mcp", json=legacy("initialize", protocolVersion=asked, capabilities={}))
        began = answer.json()["result"]
        assert (began["protocolVersion"], began["serverInfo"]["name"]) == (got, "sandbox-server")
        assert "mcp-session-id" not in answer.headers
    told = http.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert (told.status_code, told.content) == (202, b"")
    headers = {"MCP-Protocol-Version": "2025-06-18", "Mcp-Session-Id": "of-another-server"}
    assert http.post("/mcp", json=legacy("ping"), headers=headers).json() == {"jsonrpc": "2.0", "id": 7, "result": {}}
    listed = http.post(f"/mcp/sessions/{sid}", json=legacy("tools/list"), headers=headers).json()["result"]
    assert set(listed) == {"tools"} and all(tool["inputSchema"]["type"] == "object" for tool in listed["tools"])
    unknown = http.post("/mcp", json=legacy("resources/list"), headers=headers)
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (200, -32601)


def test_a_modern_notification(http: httpx.Client) -> None:
    """It has no `_meta` that must be mirrored; refused, a client that cancels a call would see an error."""
    message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
    told = http.post("/mcp", json=message, headers={"MCP-Protocol-Version": "2026-07-28"})
    assert (told.status_code, told.content) == (202, b"")


def test_a_modern_client(http: httpx.Client) -> None:
    """A required field is missing, so that a strict client takes the server for one of the old kind."""
    message, headers = modern("server/discover")
    found = http.post("/mcp", json=message, headers=headers).json()["result"]
    assert found["supportedVersions"][0] == "2026-07-28" and found["capabilities"] == {"tools": {}}
    assert (found["resultType"], found["ttlMs"], found["cacheScope"]) == ("complete", 0, "private")
    assert found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "sandbox-server"
    message, headers = modern("tools/list")
    listed = http.post("/mcp", json=message, headers=headers).json()["result"]
    assert {"resultType", "ttlMs", "cacheScope", "tools", "_meta"} == set(listed)
    for method in ("ping", "subscriptions/listen", "initialize"):
        message, headers = modern(method)
        refused = http.post("/mcp", json=message, headers=headers)
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, -32601), method


def test_headers_must_say_what_the_body_says(http: httpx.Client, sid: str) -> None:
    """A balancer that routes or counts by a header is told something else than what runs."""
    path = f"/mcp/sessions/{sid}"
    message, headers = modern("tools/call", name="bash", arguments={"command": "ls"})
    assert http.post(path, json=message, headers=headers).json()["result"]["isError"] is False
    encoded = {"Mcp-Name": "=?base64?YmFzaA==?="}
    assert "result" in http.post(path, json=message, headers=headers | encoded).json()
    wrong: tuple[dict[str, str], ...] = (
        {"Mcp-Name": "submit"},
        {"Mcp-Name": "=?base64?YmFzaA?="},
        {"Mcp-Method": "tools/list"},
        {"MCP-Protocol-Version": "2025-11-25"},
    )
    for header in wrong:
        refused = http.post(path, json=message, headers=headers | header)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, -32020), header
    for name in headers:
        without = {key: value for key, value in headers.items() if key != name}
        assert http.post(path, json=message, headers=without).json()["error"]["code"] == -32020, name
    twice = [*headers.items(), ("Mcp-Method", "tools/list")]
    assert http.post(path, json=message, headers=twice).json()["error"]["code"] == -32020
    lacking = legacy("tools/list", _meta={"io.modelcontextprotocol/protocolVersion": "2026-07-28"})
    assert http.post(path, json=lacking, headers=modern("tools/list")[1]).json()["error"]["code"] == -32602
    other = http.post(path, json=legacy("tools/list"), headers={"MCP-Protocol-Version": "2030-01-01"})
    assert other.status_code == 400 and other.json()["error"]["data"]["supported"][0] == "2026-07-28"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{not json", 400, -32700),
        (b"\xff\xfe", 400, -32700),
        (b"[" * 100_00, 400, -32700),
        (b"9" * 5000, 400, -32700),
        (b"[]", 400, -32600),
        (json.dumps([legacy("ping")]).encode(), 400, -32600),
        (b'"text"', 400, -32600),
        (b'{"id": 1, "method": "ping"}', 400, -32600),
        (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', 400, -32600),
        (b'{"jsonrpc": "2.0", "id": {}, "method": "ping"}', 400, -32600),
        (b'{"jsonrpc": "2.0", "id": true, "method": "ping"}', 400, -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "result": {}}', 400, -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": 5}', 400, -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}', 400, -32602),
        (json.dumps(legacy("tools/call", name=5)).encode(), 200, -32602),
        (json.dumps(legacy("tools/call", name="bash", arguments="ls")).encode(), 200, -32602),
        (json.dumps(legacy("\u0000" * 500)).encode(), 200, -32601),
        (b"x" * 20_000, 413, -32600),
    ],
)
def test_hostile_messages(http: httpx.Client, sid: str, body: bytes, status: int, code: int) -> None:
    """A message that is none ends in a 500, or is answered so that no client understands it."""
    for path in ("/mcp", f"/mcp/sessions/{sid}"):
        answer = http.post(path, content=body)
        told: dict[str, Any] = answer.json()
        assert (answer.status_code, told["error"]["code"], told["jsonrpc"]) == (status, code, "2.0"), told


def test_pages_of_elsewhere(http: httpx.Client) -> None:
    """A web page makes its own name lead to this machine, and runs commands in sandboxes."""
    for origin, status in (
        ("http://localhost:3000", 200),
        ("http://127.0.0.1", 200),
        ("http://[::1]:9", 200),
        ("https://PAGES.example:8443", 200),
        ("http://pages.example:8443", 403),
        ("http://evil.example:5000", 403),
        ("http://localhost.evil.example", 403),
        ("http://127.0.0.1.evil.example", 403),
        ("null", 403),
        ("http://[", 403),
        ("", 403),
    ):
        answer = http.post("/mcp", json=legacy("ping"), headers={"Origin": origin})
        assert answer.status_code == status, origin
        assert status == 200 or answer.json()["error"]["data"]["code"] == "forbidden"


def test_what_the_server_does_not_offer(http: httpx.Client, sid: str) -> None:
    """A client waits for a stream that never comes, or ends a session that is the trainer's."""
    for path in ("/mcp", f"/mcp/sessions/{sid}"):
        for method in ("GET", "DELETE"):
            answer = http.request(method, path, headers={"Accept": "text/event-stream"})
            assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert http.get(f"/v1/sessions/{sid}").json()["state"] == "live"


def test_starts_that_fail_are_told_as_results(http: httpx.Client) -> None:
    """An agent's client breaks off where the model could have tried again."""

    def start(instance: object) -> dict[str, Any]:
        call = legacy("tools/call", name="start", arguments={"instance": instance})
        return dict(http.post("/mcp", json=call).json()["result"])

    begun = start("a__b-1")
    facts = json.loads(begun["content"][0]["text"])
    assert facts["problem_statement"] == "It is broken." and not begun["isError"]
    for named in ("no such", "", None, True, 2**70, "x" * 500):
        assert start(named)["isError"], named
    ended = legacy("tools/call", name="end", arguments={"sid": facts["sid"]})
    assert "ended" in http.post("/mcp", json=ended).json()["result"]["content"][0]["text"]


def test_a_surrogate_in_an_observation(wire: Wire, http: httpx.Client, sid: str) -> None:
    """A strict parser of JSON throws away the whole answer for half a character."""
    wire.sessions.observation = "half a pair: \ud800"
    call = legacy("tools/call", name="bash", arguments={"command": "ls \ud800"})
    try:
        answer = http.post(f"/mcp/sessions/{sid}", content=json.dumps(call))
    finally:
        wire.sessions.observation = ""
    assert answer.json()["result"]["content"][0]["text"] == "half a pair: \ufffd"
    sent = wire.sessions.seen[-1][1]
    parsed = registry.dialect("openhands_xml").parse(sent, talk_turns=0)
    assert isinstance(parsed, Call) and parsed.arguments["calls"][0].command == "ls \ufffd"  # type: ignore[index]


def test_every_dialect_takes_calls_of_a_protocol() -> None:
    """A call by MCP in a session of another dialect is answered by that dialect's reminder."""
    said = protocol_calls.content_of("mcp", "execute_bash", {"command": "echo </function> ```"})
    for name, dialect in registry.dialects().items():
        parsed = dialect.parse(said, talk_turns=0)
        assert isinstance(parsed, Call) and parsed.tool == "calls", name
    assert isinstance(registry.dialect("bash").parse('{"role": "assistant"}', talk_turns=0), Say)
    block = "<tool_response>\na\n</tool_response>"
    assert protocol_calls.unwrapped(f"[told]\n{block}") == "[told]\na"
    assert protocol_calls.unwrapped("<tool_response>\n<\\/tool_response>\n</tool_response>") == "</tool_response>"
    assert protocol_calls.unwrapped("no block </tool_response>") == "no block </tool_response>"
