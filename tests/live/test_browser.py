"""The pages in a real browser: Debian's chromium, driven by Playwright, on real rollouts of a server with keys."""

import importlib
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.conftest import ROOT

from .serving import SCRIPTED, Server, bash, serving, until

KEY = "key-of-the-browser"
RUN = "browser/1"
PLACE = ROOT / ".cache" / "sdk" / "browser"
HOSTILE = (
    r"printf '<script>document.title=1</script><img src=x onerror=alert(1)> \033[31mred\033[0m"
    r" \033]8;;http://evil.test\007link\033]8;;\007 \033]52;c;ZXZpbA==\007 \342\200\256gnp.exe\n'"
    r" && touch '<b onmouseover=alert(1)>.py' && echo '</pre><script>alert(1)</script>' >> README.md"
)
FLOOD = "head -c 50000000 /dev/zero | tr '\\0' x"


class Client(httpx.Client):
    """A policy's client."""

    def begin(self) -> str:
        """Start a session; return its sid."""
        answer = self.post("/start_instance", json={"instance_hash": SCRIPTED}, headers={"Sandbox-Run": RUN})
        return str(answer.raise_for_status().json()["sid"])

    def run(self, sid: str, command: str) -> None:
        """Run a command."""
        answer = self.post("/process_action", json={"sid": sid, "content": bash(command)})
        assert "error" not in answer.raise_for_status().json(), answer.text

    def verdict(self, sid: str) -> object:
        """Its verdict; None before it has one."""
        return self.get(f"/v1/sessions/{sid}").raise_for_status().json()["verdict"]


@pytest.fixture(scope="module")
def server(rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("browser")
    with serving(folder, rows, api_keys=KEY, action_search="true", command_timeout_s=30, reaper_period_s=1) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Client]:
    with Client(base_url=server.url, headers={"X-API-Key": KEY}, timeout=300) as client:
        yield client


@pytest.fixture(scope="module")
def chromium(missing: Callable[[str], object]) -> Iterator[Any]:
    """The browser. Playwright has a separate environment, because it is large."""
    binary = shutil.which("chromium")
    if binary is None:
        missing("chromium (scripts/apt.sh chromium)")
    packages = list(PLACE.glob("lib/python*/site-packages"))
    if not packages:
        missing("the environment of the browser (scripts/environments.sh sdk .cache/sdk browser)")
    sys.path.append(str(packages[0]))
    try:
        with importlib.import_module("playwright.sync_api").sync_playwright() as playwright:
            # no sandbox of its own, as tests often run as root; /dev/shm is small in containers
            words = ["--no-sandbox", "--disable-dev-shm-usage"]
            browser = playwright.chromium.launch(executable_path=binary, args=words)
            yield browser
            browser.close()
    finally:
        sys.path.remove(str(packages[0]))


@pytest.fixture
def page(chromium: Any, server: Server) -> Iterator[Any]:
    """A fresh browser without cookies; at the end, no error in its console and no request to another host."""
    context = chromium.new_context(base_url=server.url, viewport={"width": 1280, "height": 800})
    context.set_default_timeout(60_000)
    wrong: list[str] = []
    page = context.new_page()
    page.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: wrong.append(dialog.message))
    page.on("request", lambda asked: None if asked.url.startswith(server.url) else wrong.append(asked.url))
    yield page
    context.close()
    expected = re.compile(r"status of 40[13]|http://evil\.test/$")  # a page with that status, and the attacker's own
    assert [text for text in wrong if not expected.search(text)] == []


def log_in(page: Any, to: str = "/ui") -> None:
    page.goto(to)
    page.get_by_label("API key").fill(KEY)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(f"**{to}")


def checked(page: Any, path: str, *, dark: bool = False) -> None:
    """The page has no serious fault of accessibility, and fits a phone."""
    answer = page.goto(path)
    assert answer.status == 200, path
    (script,) = PLACE.glob("lib/python*/site-packages/axe_playwright_python/axe.min.js")
    for scheme in ("light", "dark") if dark else ("light",):
        page.emulate_media(color_scheme=scheme)
        page.evaluate(script.read_text())  # by the debugger, which the page's policy does not bind
        found = page.evaluate("async () => (await axe.run({resultTypes: ['violations']})).violations")
        serious = [
            (one["id"], one["help"], [node["html"][:200] for node in one["nodes"][:3]])
            for one in found
            if one["impact"] in ("serious", "critical")
        ]
        assert serious == [], (path, scheme)
    page.set_viewport_size({"width": 400, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 400, path
    page.set_viewport_size({"width": 1280, "height": 800})


def test_a_login(page: Any) -> None:
    """Without a key a browser sees nothing; its cookie is out of reach of scripts."""
    page.goto(f"/ui/sessions?run={RUN}")
    page.get_by_label("API key").fill("no such key")
    page.get_by_role("button", name="Log in").click()
    assert "This API key is not valid" in page.get_by_role("alert").inner_text()
    page.get_by_label("API key").fill(KEY)
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/ui/sessions?run={RUN}")
    assert page.evaluate("document.cookie") == ""
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url("**/ui/login")
    page.goto("/ui")
    assert urlsplit(page.url).path == "/ui/login"


def test_a_rollout(page: Any, client: Client, tmp_path: Path) -> None:
    """A policy's text runs as script in the operator's browser, or a page does not show what happens."""
    sid = client.begin()
    log_in(page, f"/ui/sessions/{sid}")
    page.evaluate("window.stays = true")
    client.run(sid, HOSTILE)
    action = page.locator("#a1")
    action.wait_for()  # it came by itself
    assert page.evaluate("window.stays") is True and page.locator("#a1 img, #a1 script, #a1 a[href*=evil]").count() == 0
    seen = action.locator("pre.seen").inner_text()
    assert "<script>document.title=1</script><img src=x onerror=alert(1)> red link" in seen
    assert "[U+202E]gnp.exe" in seen and not re.search("[\u202e\x1b\x07]", seen)
    assert action.locator("pre.seen .f1").inner_text() == "red"
    client.run(sid, FLOOD)
    page.locator("#a2").wait_for()
    assert len(page.content()) < 200_000
    page.get_by_role("button", name="End this session").click()
    page.get_by_text("(closed)").wait_for()
    until(lambda: client.verdict(sid), 120, "the verdict")
    page.reload()
    verdict = str(client.verdict(sid))
    assert verdict in page.locator(".facts").first.inner_text()
    diff = page.locator("pre.diff").inner_text()
    assert "+</pre><script>alert(1)</script>" in diff and "<b onmouseover=alert(1)>.py" in diff
    file = tmp_path / "session.html"
    file.write_bytes(page.request.get(f"/ui/sessions/{sid}/export").body())
    alone = page.context.new_page()
    asked: list[str] = []
    alone.on("request", lambda request: asked.append(request.url))
    alone.goto(file.as_uri())
    assert "[U+202E]gnp.exe" in alone.locator("#a1 pre.seen").inner_text() and asked == [file.as_uri()]
    alone.close()

    page.goto("/ui/sessions")
    page.get_by_label("Run").fill(RUN)
    page.get_by_label("Verdict").select_option(verdict)
    page.get_by_role("button", name="Show").click()
    page.get_by_role("link", name=sid).wait_for()
    assert f"verdict={verdict}" in page.url
    page.get_by_role("link", name="Lasted").focus()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**run={RUN.replace('/', '%2F')}**sort=-lasted")
    page.get_by_role("columnheader", name="Lasted").and_(page.locator("[aria-sort=descending]")).wait_for()
    page.get_by_label("Instance").fill("no-such")
    page.get_by_role("button", name="Show").click()
    page.get_by_text("No sessions found.").wait_for()

    page.goto("/ui/actions")
    page.get_by_label("Words").fill("readme* onerror")
    page.get_by_label("Run").fill(RUN)
    page.get_by_role("button", name="Search").click()
    page.get_by_role("link", name=f"{sid} #1").click()
    page.wait_for_url(f"**/ui/sessions/{sid}?after=0#a1")

    group = f"/ui/groups?run={RUN}&instance={SCRIPTED}"
    lists = (
        "/ui",
        "/ui/sessions",
        "/ui/actions?q=onerror",
        "/ui/runs",
        "/ui/groups",
        group,
        "/ui/pass-rates",
        "/ui/nodes",
    )
    for path in (*lists, f"/ui/instances/{SCRIPTED}", f"/ui/sessions/{sid}", f"/ui/sessions/{sid}/actions/1"):
        checked(page, path, dark=path in ("/ui", f"/ui/sessions/{sid}"))


def test_another_site(page: Any, client: Client, server: Server) -> None:
    """Another site ends sessions through the browser of an operator who is logged in."""
    sid = client.begin()
    log_in(page, f"/ui/sessions/{sid}")
    token = page.locator("input[name=token]").first.input_value()
    form = f'<form method="post" action="{server.url}/ui/sessions/{sid}/close"><input name="token" value="{token}">'
    body = form + "<button>win a prize</button></form>"
    page.route("http://evil.test/", lambda route: route.fulfill(body=body, content_type="text/html"))
    page.goto("http://evil.test/")
    page.get_by_role("button").click()
    page.wait_for_url(f"{server.url}/**")
    assert client.get(f"/v1/sessions/{sid}").json()["state"] == "live"
    page.goto(f"/ui/sessions/{sid}")  # still logged in
    page.get_by_role("button", name="End this session").click()
    page.get_by_text("(closed)").wait_for()


def test_the_docs_of_the_api(page: Any, server: Server) -> None:
    """/docs stays empty on a host without internet: its script comes from another host."""
    page.set_extra_http_headers({"X-API-Key": KEY})
    checked(page, "/docs")
    page.get_by_text("/v1/overview", exact=True).wait_for()
