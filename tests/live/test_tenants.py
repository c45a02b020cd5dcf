"""Access rights on every route: no key, a wrong key, another run's, a viewer's, an operator's."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute
from sandbox_client.blocking import BlockingClient

from sandbox_server import plugins, protocols
from sandbox_server.app import create_app
from sandbox_server.settings import Settings
from tests.conftest import ROOT

from .serving import SCRIPTED, Server, bash, serving, until

KEYS = {
    "own": "alices-own-secret",
    "other": "bobs-other-secret",
    "operator": "an-operators-secret",
    "viewer": "a-viewers-secret",
}
IMAGE = "sandbox-samples/ledger:latest"
BLOB = b"what alice stored"
SHA = hashlib.sha256(BLOB).hexdigest()
ENVD = ("/process.Process/", "/filesystem.Filesystem/", "/files", "/health", "/templates-upload/")
"""Path prefixes of E2B's data plane and uploads, which need a token instead of a key."""
ROUTERS = plugins.discover(protocols, "ROUTER")
"""Imported before any test runs, as tests/protocols/stub_service.py says."""


@dataclass(frozen=True)
class Row:
    """One route: the request, and the expected status for each key."""

    route: str
    other: int
    viewer: int
    operator: int
    body: object = None
    query: str = ""


HIDDEN, NO = 404, 403
MATRIX = (
    Row("GET /healthz", 200, 200, 200),
    Row("GET /readyz", 200, 200, 200),
    Row("GET /metrics", NO, 200, 200),
    # a body that is none shows that the route was reached, and begins nothing
    Row("POST /start_instance", 422, NO, 422, {}),
    Row("POST /v1/groups", 422, NO, 422, {}),
    Row("POST /v1/grade", 422, NO, 422, {}),
    Row("POST /v1/lookahead", 422, NO, 422, {}),
    Row("POST /v1/boxes", 422, NO, 422, {}),
    Row("POST /sandboxes", 404, NO, 404, {"templateID": "nobody/has:this"}),
    Row("POST /v2/sandboxes", 404, NO, 404, {"templateID": "nobody/has:this"}),
    # sids in bodies: what another key gets is in `test_another_run_sees_no_session`
    Row("POST /process_action", 200, NO, 200, {"sid": "{live}", "content": bash("true")}),
    Row("POST /postprocess", 200, NO, 200, {"sid": "{done}"}),
    Row("POST /compute_reward", 200, NO, 200, {"sid": "{done}"}),
    # sids in calls: what another key gets is in `test_another_run_sees_no_session`
    Row("POST /mcp", 200, NO, 200, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
    Row("POST /mcp/sessions/{sid}", HIDDEN, NO, 200, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
    # its websockets are opened in tests/protocols/test_openenv_wire.py
    Row("GET /openenv/health", 200, 200, 200),
    Row("GET /openenv/metadata", 200, 200, 200),
    Row("GET /openenv/schema", 200, 200, 200),
    Row("GET /openenv/state", HIDDEN, 200, 200, query="?sid={live}"),
    Row("POST /openenv/reset", 422, NO, 422, {}),
    Row("POST /openenv/step", 200, NO, 200, {"sid": "{live}", "action": {"type": "call_tool", "tool_name": "bash"}}),
    Row("GET /v1/sessions", 200, 200, 200),
    Row("GET /v1/sessions/{sid}", HIDDEN, 200, 200),
    Row("GET /v1/sessions/{sid}/actions", HIDDEN, 200, 200),
    Row("GET /v1/sessions/{sid}/asciicast", HIDDEN, 200, 200),
    Row("GET /v1/sessions/{sid}/patch", HIDDEN, 409, 409),
    Row("POST /v1/sessions/{sid}/exec", HIDDEN, NO, 200, {"command": "true"}),
    # an action that is not there shows that the route was reached, and begins nothing
    Row("POST /v1/sessions/{sid}/fork", HIDDEN, NO, 422, {"at": 1_000_000}),
    Row("POST /v1/sessions/{sid}/open", NO, NO, 422, {"at": 1_000_000}),
    Row("POST /v1/sessions/{sid}/rollback", HIDDEN, NO, 422, {"to": 1_000_000}),
    Row("GET /v1/sessions/{sid}/tree", HIDDEN, 200, 200),
    Row("PUT /v1/sessions/{sid}/rollout", HIDDEN, NO, 204, {"rewards": "multilevel"}),
    Row("GET /v1/receipts/{receipt_id}", HIDDEN, 200, 200),
    Row("GET /v1/metrics/rollout", 200, 200, 200),
    Row("GET /v1/overview", NO, 200, 200),
    Row("GET /v1/groups", NO, 200, 200),
    Row("GET /v1/runs", NO, 200, 200),
    Row("GET /v1/pass-rates", NO, 200, 200),
    Row("GET /v1/pass-rates/{instance_id}", NO, 200, 200),
    Row("GET /v1/export", NO, 200, 200),
    Row("GET /v1/actions/search", NO, 200, 200, query="?q=true"),
    Row("PUT /v1/runs/{run}/lease", NO, NO, 200, {"ttl_s": 600}),
    Row("DELETE /v1/runs/{run}/lease", NO, NO, 200),
    Row("GET /v1/instances", 200, 200, 200),
    Row("GET /v1/instances/{instance_id}", 200, 200, 200),
    Row("GET /v1/pool", NO, 200, 200),
    Row("GET /v1/nodes", NO, 200, 200),
    Row("POST /v1/nodes/{node}/drain", NO, NO, 404),
    Row("DELETE /v1/nodes/{node}/drain", NO, NO, 404),
    Row("GET /v1/boxes/{sid}", HIDDEN, 200, 200),
    Row("POST /v1/boxes/{sid}/lifetime", HIDDEN, NO, 200, {"lifetime_s": 600}),
    Row("POST /v1/boxes/{sid}/commands", HIDDEN, NO, 200, {"cmd": "true", "wait_s": 20}),
    Row("GET /v1/boxes/{sid}/commands/{command_id}", HIDDEN, NO, 200),
    Row("DELETE /v1/boxes/{sid}/commands/{command_id}", HIDDEN, NO, 200),
    Row("PUT /v1/boxes/{sid}/files", HIDDEN, NO, 200, b"text", "?path=/tmp/a"),
    Row("GET /v1/boxes/{sid}/files", HIDDEN, NO, 200, None, "?path=/etc/passwd"),
    Row("GET /v1/boxes/{sid}/files/info", HIDDEN, NO, 200, None, "?path=/etc/passwd"),
    Row("GET /v1/boxes/{sid}/files/list", HIDDEN, NO, 200, None, "?path=/etc"),
    # a body that is none shows that the route was reached, and begins nothing
    Row("POST /v1/boxes/{sid}/snapshots", HIDDEN, NO, 422, {"name": "no name!"}),
    Row("POST /v1/boxes/{sid}/fork", HIDDEN, NO, 422, {"n": 0}),
    Row("POST /v1/boxes/{sid}/pause", HIDDEN, NO, 200),
    Row("POST /v1/boxes/{sid}/resume", HIDDEN, NO, 200, {"lifetime_s": 600}),
    Row("GET /v1/snapshots", 200, 200, 200),
    # an operator's own files are none of alice's either
    Row("POST /v1/boxes/{sid}/files/from-blob", HIDDEN, NO, 404, {"sha256": SHA, "path": "/tmp/b"}),
    Row("HEAD /v1/blobs/{sha256}", HIDDEN, NO, 404),
    Row("PUT /v1/blobs/{sha256}", 201, NO, 201, BLOB),
    Row("GET /sandboxes", 200, 200, 200),
    Row("GET /v2/sandboxes", 200, 200, 200),
    Row("GET /sandboxes/{sid}", HIDDEN, NO, 200),
    Row("POST /sandboxes/{sid}/connect", HIDDEN, NO, 200, {"timeout": 600}),
    Row("POST /v2/sandboxes/{sid}/connect", HIDDEN, NO, 200, {"timeout": 600}),
    Row("POST /sandboxes/{sid}/timeout", HIDDEN, NO, 204, {"timeout": 600}),
    Row("POST /sandboxes/{sid}/refreshes", HIDDEN, NO, 204, {"duration": 600}),
    Row("PUT /sandboxes/{sid}/network", HIDDEN, NO, 204, {"allow_internet_access": False}),
    Row("GET /sandboxes/metrics", 200, 200, 200),
    Row("GET /sandboxes/{sid}/metrics", HIDDEN, 200, 200),
    Row("GET /sandboxes/{sid}/logs", HIDDEN, 200, 200),
    Row("GET /v2/sandboxes/{sid}/logs", HIDDEN, 200, 200),
    Row("POST /sandboxes/{sid}/pause", HIDDEN, NO, 204),
    Row("POST /sandboxes/{sid}/resume", HIDDEN, NO, 201, {"timeout": 600}),
    Row("POST /sandboxes/{sid}/snapshots", HIDDEN, NO, 400, {"name": "no name!"}),
    Row("POST /sandboxes/{sid}/fork", HIDDEN, NO, 400, {"count": 0}),
    Row("GET /snapshots", 200, 200, 200),
    Row("POST /v3/templates", 202, NO, 202, {"name": "own"}),
    Row("POST /v2/templates", 202, NO, 202, {"alias": "own"}),
    Row("POST /v2/templates/{template_id}/builds/{build_id}", HIDDEN, NO, 202, {"fromImage": "nobody/has:this"}),
    Row("GET /templates/{template_id}/files/{files_hash}", HIDDEN, NO, 201),
    Row("GET /templates/{template_id}/builds/{build_id}/status", HIDDEN, 200, 200),
    Row("GET /templates/{template_id}/builds/{build_id}/logs", HIDDEN, 200, 200),
    Row("GET /templates/aliases/{alias:path}", 404, 404, 404),
    Row("POST /templates/tags", 404, NO, 404, {"target": "{template}", "tags": ["a"]}),
    Row("DELETE /templates/tags", HIDDEN, NO, 204, {"name": "{template}", "tags": ["a"]}),
    Row("GET /templates/{template_id}/tags", HIDDEN, 200, 200),
    Row("GET /templates", 200, 200, 200),
    Row("GET /v2/templates", 200, 200, 200),
    Row("GET /templates/{template_id}", HIDDEN, 200, 200),
    # what ends things comes last
    Row("DELETE /templates/{template_id}", HIDDEN, NO, 204),
    Row("DELETE /v1/snapshots/{snapshot}", HIDDEN, NO, 204),
    Row("DELETE /sandboxes/{sid}", HIDDEN, NO, 204),
    Row("DELETE /v1/boxes/{sid}", HIDDEN, NO, 204),
    Row("POST /v1/sessions/{sid}/tokens", HIDDEN, NO, 201),  # the token from before opens nothing after it
    Row("DELETE /v1/sessions/{sid}", HIDDEN, NO, 200),
    Row("DELETE /v1/runs/{run}/sessions", NO, NO, 200),
)


class Service:
    """The server, with alice's sessions and boxes."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.http = httpx.Client(base_url=server.url, timeout=300)
        start = {"instance_hash": SCRIPTED}
        self.live, self.done = (str(self.own("POST", "/start_instance", start).json()["sid"]) for _ in range(2))
        self.own("POST", "/process_action", {"sid": self.done, "content": bash("echo alices > alices.txt")})
        self.own("POST", "/postprocess", {"sid": self.done})
        self.receipt = self.own("POST", "/compute_reward", {"sid": self.done}).json()["receipt"]
        self.box = self.own("POST", "/v1/boxes", {"image": IMAGE, "lifetime_s": 600}).json()["sid"]
        metadata = {"image": IMAGE}
        made = self.own("POST", "/sandboxes", {"templateID": "base", "metadata": metadata, "timeout": 600}).json()
        self.e2b = made["sandboxID"]
        self.snapshot = self.own("POST", f"/v1/boxes/{self.box}/snapshots", {"name": "alices-state"}).json()
        self.template = self.own("POST", "/v3/templates", {"name": "alices"}).json()
        command = {"cmd": "echo alices", "wait_s": 20}
        self.command = self.own("POST", f"/v1/boxes/{self.box}/commands", command).json()["id"]
        self.own("PUT", f"/v1/blobs/{SHA}", BLOB)
        self.token = self.own("POST", f"/v1/sessions/{self.live}/tokens").json()["token"]

    def own(self, method: str, path: str, body: object = None) -> httpx.Response:
        answer = self.send(method, path, KEYS["own"], body)
        assert answer.is_success, answer.text
        return answer

    def send(self, method: str, path: str, key: str, body: object = None, **headers: str) -> httpx.Response:
        given = {"X-API-Key": key} if key else {}
        if isinstance(body, bytes):
            return self.http.request(method, path, content=body, headers=given | headers)
        return self.http.request(method, path, json=body, headers=given | headers)

    def path(self, row: Row) -> str:
        template = row.route.partition(" ")[2]
        sid = self.box if "/boxes/" in template else self.e2b if "/sandboxes/" in template else self.live
        named = {
            "{sid}": sid,
            "{receipt_id}": self.receipt,
            "{run}": "alice",
            "{instance_id}": "samples__ledger-12",
            "{node}": "nobody",
            "{command_id}": self.command,
            "{sha256}": SHA,
            "{template_id}": self.template["templateID"],
            "{snapshot}": self.snapshot["id"],
            "{build_id}": self.template["buildID"],
            "{files_hash}": "abc",
            "{alias:path}": "alices",
        }
        for name, value in named.items():
            template = template.replace(name, value)
        return template + row.query.replace("{live}", self.live)

    def body(self, row: Row) -> object:
        if not isinstance(row.body, dict):
            return row.body
        named = {"{live}": self.live, "{done}": self.done, "{template}": self.template["templateID"]}
        return {name: named.get(value, value) if isinstance(value, str) else value for name, value in row.body.items()}


@pytest.fixture(scope="module")
def service(rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    named = f"alice={KEYS['own']},bob={KEYS['other']},{KEYS['operator']}"
    folder = tmp_path_factory.mktemp("tenants")
    with serving(folder, rows, api_keys=named, view_keys=KEYS["viewer"], pool_size=0, allow_ungradable=1) as server:
        service = Service(server)
        yield service
        service.http.close()


def test_every_route_has_a_row(tmp_path: Path) -> None:
    """A new route would be open to every key without anybody deciding so."""
    app = create_app(Settings(data_dir=tmp_path), lambda _: pytest.fail("not to be opened"))
    documented = {f"{method.upper()} {path}" for path, methods in app.openapi()["paths"].items() for method in methods}
    hidden = {
        f"{method} {route.path}"
        for router in ROUTERS.values()
        for route in router.routes  # type: ignore[attr-defined]
        if isinstance(route, APIRoute) and not route.include_in_schema and route.endpoint.__name__ != "_refused"
        for method in route.methods
        if not route.path.startswith(ENVD)
    }
    assert len(hidden) >= 13 and documented | hidden == {row.route for row in MATRIX}


def test_another_run_sees_no_session(service: Service) -> None:
    """Rules on paths do not cover lists and sids in bodies."""
    mine = {service.live, service.done, service.box, service.e2b}
    for key, seen in (("own", mine), ("operator", mine), ("viewer", mine), ("other", set())):
        listed = service.send("GET", "/v1/sessions?limit=1000", KEYS[key]).json()
        assert {one["sid"] for one in listed} == seen, key
        named = service.send("GET", "/v1/sessions?run=alice", KEYS[key]).json()
        assert {one["sid"] for one in named} == seen, key
        boxes = seen & {service.box, service.e2b}
        for path in ("/sandboxes", "/v2/sandboxes"):
            assert {one["sandboxID"] for one in service.send("GET", path, KEYS[key]).json()} == boxes, key
        assert bool(service.send("GET", "/v1/metrics/rollout", KEYS[key]).json()) == bool(seen), key

    def bobs(path: str, **body: object) -> Any:
        return service.send("POST", path, KEYS["other"], body).json()

    for sid in (service.live, service.done):
        told = bobs("/process_action", sid=sid, content=bash("touch bobs.txt"))
        assert told["error"]["code"] == "unknown_session"
        assert bobs("/postprocess", sid=sid)["error"]["code"] == "unknown_session"
        assert bobs("/compute_reward", sid=sid)["verdict"] == "unknown_session"
        assert bobs("/v1/groups", **{"from": sid, "n": 1})["code"] == "unknown_session"
    for name in (service.snapshot["id"], "alices-state"):
        assert bobs("/v1/boxes", snapshot=name)["code"] == "unknown_image"
    assert service.own("GET", f"/v1/sessions/{service.live}").json()["state"] == "live"
    assert b"alices" in service.own("GET", f"/v1/sessions/{service.done}/patch").content
    start = {"instance_hash": SCRIPTED}
    refused = service.send("POST", "/start_instance", KEYS["other"], start, **{"Sandbox-Run": "alice"})
    assert (refused.status_code, refused.json()["code"]) == (403, "run_of_another")
    # what a whole entry opens is the same tenant, that of its name
    entry = service.send("GET", f"/v1/sessions/{service.live}", f"bob={KEYS['other']}")
    assert entry.status_code == 404
    nodes = service.send("GET", "/v1/nodes", KEYS["viewer"])
    assert "hop_secret" not in nodes.text and nodes.json()[0]["node"] == service.server.node


def test_another_run_has_no_door_to_a_session_by_mcp_and_openenv(service: Service) -> None:
    """Their calls name the sid in the body."""

    def bobs(path: str, **body: object) -> Any:
        return service.send("POST", path, KEYS["other"], body).json()

    for sid in (service.live, service.done):
        step = {"type": "call_tool", "tool_name": "bash", "arguments": {"command": "touch bobs.txt"}}
        for action in (step, {"type": "reward"}):
            assert bobs("/openenv/step", sid=sid, action=action)["metadata"]["verdict"] == "unknown_session"
        for path in ("/openenv/step", "/openenv/reset"):
            assert bobs(path, sid=sid, action={"type": "list_tools"})["code"] == "unknown_session"
        for tool in ("bash", "reward", "end"):
            call = {"name": tool, "arguments": {"sid": sid, "command": "touch bobs.txt"}}
            told = bobs("/mcp", jsonrpc="2.0", id=1, method="tools/call", params=call)["result"]
            assert "unknown_session" in json.dumps(told), told


def test_a_sessions_token_opens_that_sessions_tools_alone(service: Service) -> None:
    """An agent with a token starts sessions, acts in others, or the token can be read from a stolen database.

    That no other route takes it is in the matrix.
    """

    def says(sid: str, token: str, tool: str = "bash", **headers: str) -> httpx.Response:
        params = {"name": tool, "arguments": {"command": "echo alices"}}
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        return service.send("POST", f"/mcp/sessions/{sid}", token, call, **headers)

    sid = str(service.own("POST", "/start_instance", {"instance_hash": SCRIPTED}).json()["sid"])
    first = service.own("POST", f"/v1/sessions/{sid}/tokens").json()["token"]
    token = BlockingClient(service.server.url, api_key=KEYS["own"]).token(sid)
    assert says(sid, token).json()["result"]["content"][0]["text"] == "alices"
    assert says(sid, "", Authorization=f"Bearer {token}").json()["result"]["content"][0]["text"] == "alices"
    assert says(f"{sid}/", token).status_code == 307  # to the same without the slash; 401 spoke of a missing key
    for tool in ("start", "reward", "end"):
        assert says(sid, token, tool).json()["result"]["isError"]
    refused = (says(sid, first), says(service.live, token), says("0" + sid, token), says(sid, token[:-1]))
    assert [answer.status_code for answer in refused] == [401] * 4
    assert refused[0].json()["error"]["data"]["code"] == "unauthorized"
    assert service.send("DELETE", f"/mcp/sessions/{sid}", token).status_code == 405
    stored = b"".join(path.read_bytes() for path in (service.server.folder / "data").glob("catalogue*"))
    assert hashlib.sha256(token.encode()).hexdigest().encode() in stored and token.encode() not in stored
    assert token not in service.server.log.read_text()
    # an operator's session has no owner: its token must not become an operator's key
    theirs = service.send("POST", "/start_instance", KEYS["operator"], {"instance_hash": SCRIPTED}).json()
    ours = service.send("POST", f"/v1/sessions/{theirs['sid']}/tokens", KEYS["operator"]).json()["token"]
    assert says(theirs["sid"], ours).json()["result"]["content"][0]["text"] == "alices"
    assert (says(sid, ours).status_code, service.send("GET", "/v1/nodes", ours).status_code) == (401, 401)
    for one in (sid, theirs["sid"]):
        assert service.send("DELETE", f"/v1/sessions/{one}", KEYS["operator"]).status_code == 200
        assert service.send("POST", f"/v1/sessions/{one}/tokens", KEYS["operator"]).json()["code"] == "session_ended"
    assert says(sid, token).json()["result"]["_meta"]["sandbox/error"] == "session_ended"
    assert service.send("POST", f"/v1/sessions/{service.box}/tokens", KEYS["own"]).json()["code"] == "is_box"


def test_a_blob_is_its_keys_own_in_a_session_too(service: Service) -> None:
    """A tenant cannot copy its own blob into its session, but an operator's, whose hash it guesses."""
    operators = b"what the operator stored"
    sha256 = hashlib.sha256(operators).hexdigest()
    service.send("PUT", f"/v1/blobs/{sha256}", KEYS["operator"], operators).raise_for_status()
    path = f"/v1/boxes/{service.live}/files/from-blob"
    assert service.send("POST", path, KEYS["own"], {"sha256": sha256, "path": "/tmp/blob"}).status_code == 404
    service.own("POST", path, {"sha256": SHA, "path": "/tmp/blob"})
    read = service.send("GET", f"/v1/boxes/{service.live}/files?path=/tmp/blob", KEYS["own"])
    assert read.content == BLOB
    service.send("POST", path, KEYS["operator"], {"sha256": sha256, "path": "/tmp/blob"}).raise_for_status()


def test_a_step_begins_after_a_session_of_its_own_key_alone(service: Service) -> None:
    """A tenant starts a later step after another one's session, and reads that one's files."""
    service.server.cli("instances", "import", str(ROOT / "examples" / "harbor" / "steps"))
    sid = service.own("POST", "/start_instance", {"instance_hash": "samples/steps"}).json()["sid"]
    ended = service.own("POST", "/postprocess", {"sid": sid}).json()
    start = {"instance_hash": ended["next"]["instance_id"], "after": sid}
    told = {key: service.send("POST", "/start_instance", KEYS[key], start).json()["code"] for key in ("own", "other")}
    assert told == {"own": "step_closed", "other": "unknown_session"}
    agents = {"instance": start["instance_hash"], "after": sid}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "start", "arguments": agents}}
    for path, body in (("/openenv/reset", agents), ("/mcp", call)):
        for key, code in told.items():
            assert code in (answer := service.send("POST", path, KEYS[key], body).text), answer


def test_the_keys_are_in_no_log(service: Service) -> None:
    """Everybody who reads a cluster's logs would have the keys."""
    service.send("GET", "/v1/sessions", KEYS["other"])
    for path, key in (("/start_instance", "other"), ("/v1/nodes", "other"), ("/v1/boxes", "viewer")):
        service.send("POST", path, KEYS[key], b"{not json")
    log = service.server.log.read_text()
    token = service.own("GET", f"/sandboxes/{service.e2b}").json()["envdAccessToken"]
    assert "started" in log and not [secret for secret in (*KEYS.values(), token) if secret in log]


def test_the_matrix(service: Service) -> None:
    """One run could read, control or end another's sessions, or a view key could start sessions."""
    wrong: list[str] = []
    for row in MATRIX:
        method, path, body = row.route.partition(" ")[0], service.path(row), service.body(row)
        keyless = 200 if row.route == "GET /healthz" else 401
        wanted = {"none": keyless, "wrong": keyless, "other": row.other, "viewer": row.viewer, "operator": row.operator}
        wanted["token"] = 200 if row.route == "POST /mcp/sessions/{sid}" else keyless
        for who, status in wanted.items():
            key = {"none": "", "wrong": KEYS["own"] + "x", "token": service.token}.get(who) or KEYS.get(who, "")
            answer = service.send(method, path, key, body)
            if answer.status_code != status:
                wrong.append(f"{row.route}: {who} {answer.status_code}, not {status}: {answer.text[:200]}")
            if who in ("none", "wrong", "other", "token") and "alices" in answer.text:
                wrong.append(f"{row.route}: {who} reads what is alice's")
    assert not wrong, "\n".join(wrong)
    until(lambda: not service.server.containers("role=session"), 60, "the operator ended what there was")
