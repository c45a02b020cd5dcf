"""The pages over real HTTP, on in-memory sessions: who sees them, who may change anything, what they load."""

import re
from collections.abc import Iterator

import httpx
import pytest

from .stub_service import HASH, Wire, serving

PAGES = ["/ui", "/ui/sessions", "/ui/runs", "/ui/groups", "/ui/pass-rates", "/ui/nodes", "/ui/instances/a__b-1"]


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    with serving(tmp_path_factory.mktemp("wire"), api_keys="first-key,run=second-key", view_keys="looks-only") as wire:
        yield wire


@pytest.fixture
def browser(wire: Wire) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=wire.url, timeout=120) as client:
        yield client


@pytest.fixture
def sid(wire: Wire) -> str:
    answer = httpx.post(f"{wire.url}/start_instance", json={"instance_hash": HASH}, headers={"X-API-Key": "first-key"})
    return str(answer.json()["sid"])


def log_in(browser: httpx.Client, key: str = "first-key", to: str = "/ui") -> httpx.Response:
    return browser.post("/ui/login", data={"key": key, "to": to})


def token(page: str) -> str:
    return re.findall('name="token" value="([0-9a-f]{64})"', page)[0]


def test_without_a_key_nothing_is_seen(browser: httpx.Client, sid: str) -> None:
    """The pages need a key: whoever reaches the port could otherwise read the trajectories."""
    for path in (*PAGES, f"/ui/sessions/{sid}", f"/ui/sessions/{sid}/live", f"/ui/sessions/{sid}/export"):
        answer = browser.get(path)
        assert answer.status_code == 303 and answer.headers["location"].startswith("/ui/login?to="), path
    assert browser.post(f"/ui/sessions/{sid}/close").status_code == 303
    for cookie in ("1.2.3", "9999999999.aa." + "0" * 64, "é.x"):
        assert browser.get("/ui", headers={"Cookie": f"sandbox_ui={cookie}".encode()}).status_code == 303
    assert log_in(browser, "wrong-key").status_code == log_in(browser, "").status_code == 401
    assert browser.post("/ui/login", content=b"a=1&" * 20).status_code == 401, "it is no form of ours"
    assert browser.get("/ui").status_code == 303
    assert browser.get("/ui", headers={"X-API-Key": "first-key"}).status_code == 200
    assert browser.get("/ui", headers={"Authorization": "Bearer first-key"}).status_code == 200


def test_a_login(browser: httpx.Client) -> None:
    """Forged or expired cookies are refused, and so are redirects to other hosts."""
    answer = log_in(browser, to="/ui/sessions?run=a%2Fb")
    assert answer.status_code == 303 and answer.headers["location"] == "/ui/sessions?run=a%2Fb"
    cookie = answer.headers["set-cookie"].lower()
    assert all(part in cookie for part in ("httponly", "samesite=strict", "path=/ui", "max-age=43200"))
    assert "first-key" not in cookie
    assert browser.get("/ui").status_code == 200
    assert browser.get("/v1/sessions").status_code == 401  # the cookie is for the pages only
    for elsewhere in ("//evil.example", "https://evil.example", "/ui\\evil", "/uix", "/ui\r\nX: 1"):
        assert log_in(browser, to=elsewhere).headers["location"] == "/ui"
    copied = {"Cookie": f"sandbox_ui={browser.cookies['sandbox_ui']}"}
    assert browser.post("/ui/logout", data={"token": token(browser.get("/ui").text)}).status_code == 303
    assert browser.get("/ui").status_code == 303
    assert browser.get("/ui", headers=copied).status_code == 303, "a copied cookie outlives its login"


def test_wrong_keys_are_counted(browser: httpx.Client) -> None:
    """Nobody could see that keys are being guessed. Right keys, and requests without one, do not count."""

    def counted() -> dict[str, float]:
        text = browser.get("/metrics", headers={"X-API-Key": "first-key"}).text
        return {where: float(value) for where, value in re.findall(r'keys_refused_total\{where="(\w+)"\} (\S+)', text)}

    before = counted()
    log_in(browser, "wrong-key")
    for headers in ({"X-API-Key": "wrong-key"}, {"Authorization": "Bearer wrong-key"}, {}, {"X-API-Key": "first-key"}):
        browser.get("/v1/sessions", headers=headers)
    after = counted()
    assert (after["login"] - before.get("login", 0), after["request"] - before.get("request", 0)) == (1, 2)


def test_changes_need_the_pages_own_token(wire: Wire, browser: httpx.Client, sid: str) -> None:
    """Another site cannot end sessions through the operator's browser."""
    log_in(browser)
    own = token(browser.get(f"/ui/sessions/{sid}").text)
    close = f"/ui/sessions/{sid}/close"
    for forged in ({}, {"token": ""}, {"token": "0" * 64}, {"token": own[:-1]}, {"token": "é"}):
        assert browser.post(close, data=forged).status_code == 403
    assert browser.post(close, data={"token": own}, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    with httpx.Client(base_url=wire.url) as other:
        log_in(other)
        assert other.post(close, data={"token": own}).status_code == 403
    assert wire.sessions.records[sid].state == "live" and sid not in wire.sessions.closed
    assert browser.post(close, data={"token": own}).status_code == 303
    assert wire.sessions.closed[-1] == sid


def test_who_may_do_what(browser: httpx.Client, wire: Wire, sid: str) -> None:
    """A tenant does not see others' trajectories; a viewer cannot end a session."""
    assert log_in(browser, "second-key").status_code == 401
    assert browser.get("/ui", headers={"X-API-Key": "second-key"}).status_code == 303
    log_in(browser, "looks-only")
    seen = browser.get(f"/ui/sessions/{sid}").text
    assert "half a pair" in seen and "End this session" not in seen and "sessions open" not in seen
    assert browser.post(f"/ui/sessions/{sid}/close", data={"token": token(seen)}).status_code == 403
    until, _, nonce, sign = browser.cookies["sandbox_ui"].split(".")
    forged = {"Cookie": f"sandbox_ui={until}.operator.{nonce}.{sign}"}
    with httpx.Client(base_url=wire.url) as other:
        assert other.get("/ui", headers=forged).status_code == 303


def test_every_page_loads_nothing_from_elsewhere(browser: httpx.Client, sid: str) -> None:
    """Pages load nothing from other hosts: they work without internet and reveal nothing."""
    log_in(browser)
    for path in (*PAGES, f"/ui/sessions/{sid}", f"/ui/sessions/{sid}/actions/1", "/ui/sessions?run=&verdict=&masked="):
        answer = browser.get(path)
        assert answer.status_code == 200, (path, answer.text)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
        assert not re.search(r"""(src|href|action)="(?!/ui|#|\?)|style=|\son\w+=|<script>""", answer.text), path
    for name, kind in (("style.css", "text/css"), ("ui.js", "text/javascript"), ("icon.svg", "image/svg+xml")):
        answer = browser.get(f"/ui/static/{name}")
        assert answer.status_code == 200 and answer.headers["content-type"].startswith(kind)
        assert not re.search("https?://(?!www.w3.org/2000/svg)|@import|url\\(", answer.text)
    assert browser.get("/ui/static/..%2Fpages.py").status_code == 404


def test_what_goes_wrong_is_a_page(browser: httpx.Client) -> None:
    log_in(browser)
    for path, status in (("/ui/sessions/999", 404), ("/ui/sessions?state=<script>", 422), ("/ui/instances/<b>", 404)):
        answer = browser.get(path)
        assert answer.status_code == status and answer.headers["content-type"].startswith("text/html")
        assert "<script>" not in answer.text and "<b>" not in answer.text


def test_a_shell_in_a_copy_is_told(browser: httpx.Client, sid: str) -> None:
    """The command that opens one must be typed from memory."""
    log_in(browser)
    assert f"sandbox-server sessions open {sid}</code>" in browser.get(f"/ui/sessions/{sid}").text


def test_half_a_pair_is_shown(browser: httpx.Client, sid: str) -> None:
    """A lone surrogate in an observation does not make the page a 500."""
    log_in(browser)
    assert "half a pair: \ufffd" in browser.get(f"/ui/sessions/{sid}").text


def test_a_file_of_a_session(browser: httpx.Client, sid: str) -> None:
    log_in(browser)
    answer = browser.get(f"/ui/sessions/{sid}/export")
    assert answer.headers["content-disposition"] == f'attachment; filename="session-{sid}.html"'
    assert not re.search(r"""(src|href)="(?!#)|<script""", answer.text) and "color-scheme" in answer.text
