"""Takes the pictures of the pages into docs/pictures, from a real server with real rollouts: `make pictures`.

Debian's chromium takes them, driven by Playwright, whose environment is that of requirements/sdk-browser.txt.
"""

import importlib
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from sandbox_server.cli.local_server import local_server

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "pictures"
RUN = "grpo-7b/step-120"
LOOK = (
    "git log --oneline | head -3; ls",
    "git status --short; ls tests; head -40 README.md",
    "python -m pytest -q | tail -8",
)
GROUPS = {
    "samples__ledger-12": ("gold", "wrong", "gold", "empty"),
    "samples__patience-18": ("gold", "gold", "gold", "gold"),
    "samples__swatch-31": ("wrong", "wrong", "empty", "wrong"),
    "samples__tarif-5": ("gold", "wrong", "wrong", "gold"),
}
"""Instance -> what each member of its group does: the samples' own answers."""
WAIT_S = 300.0
SIZE = {"width": 1280, "height": 800}
MOST_BYTES = 150_000


def act(client: httpx.Client, sid: str, command: str) -> None:
    """Run a command in the session."""
    content = f"<function=execute_bash>\n<parameter=command>\n{command}\n</parameter>\n</function>"
    client.post("/process_action", json={"sid": sid, "content": content}).raise_for_status()


def rollout(client: httpx.Client, instance: str, answer: str) -> str:
    """Play one rollout to its reward; return its sid."""
    asked = client.post("/start_instance", json={"instance_hash": instance}, headers={"Sandbox-Run": RUN})
    sid = str(asked.raise_for_status().json()["sid"])
    for command in LOOK:
        act(client, sid, command)
    if answer != "empty":
        folder = ROOT / "examples" / instance.removeprefix("samples__").rpartition("-")[0]
        patch = (folder / f"{answer}.patch").read_text()
        act(client, sid, f"cat > /tmp/change.patch <<'END'\n{patch}END\ngit apply /tmp/change.patch; git diff --stat")
        act(client, sid, LOOK[-1])
    client.post("/postprocess", json={"sid": sid}).raise_for_status()
    end = time.monotonic() + WAIT_S
    while client.post("/compute_reward", json={"sid": sid}).raise_for_status().json()["verdict"] == "pending":
        if time.monotonic() > end:
            raise TimeoutError(f"no verdict of {sid} within {WAIT_S:g} s; see the page of the session")
    return sid


def played(url: str) -> str:
    """All rollouts; returns the sid of one that was resolved."""
    with httpx.Client(base_url=url, timeout=WAIT_S) as client, ThreadPoolExecutor(4) as pool:
        asked = [(instance, answer) for instance, answers in GROUPS.items() for answer in answers]
        first, *_ = pool.map(lambda one: rollout(client, *one), asked)
        return first


def small(page: Any, height: int) -> bytes:
    """The top of the page, as much of it as a picture of MOST_BYTES holds."""
    while True:
        clip = {"x": 0, "y": 0, "width": SIZE["width"], "height": height}
        taken: bytes = page.screenshot(clip=clip, full_page=True)
        if len(taken) <= MOST_BYTES:
            return taken
        height = height * 9 // 10


def take(url: str, sid: str) -> None:
    """All pictures."""
    (packages,) = (ROOT / ".cache" / "sdk" / "browser").glob("lib/python*/site-packages")
    sys.path.append(str(packages))
    pages = {
        "overview": ("/ui", 860),
        "groups": (f"/ui/groups?run={RUN}", 340),
        "sessions": (f"/ui/sessions?run={RUN}", 450),
        "session": (f"/ui/sessions/{sid}", 1000),
    }
    with importlib.import_module("playwright.sync_api").sync_playwright() as playwright:
        words = [
            "--no-sandbox",
            "--disable-dev-shm-usage",
        ]  # it often runs as root, and /dev/shm is small in containers
        browser: Any = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=words)
        page = browser.new_context(base_url=url, viewport=SIZE).new_page()
        for name, (path, height) in pages.items():
            answer = page.goto(path, wait_until="load", timeout=WAIT_S * 1000)
            if answer.status != 200:
                raise RuntimeError(f"{path} answered {answer.status}")
            file = TARGET / f"{name}.png"
            file.write_bytes(small(page, height))
            sys.stderr.write(f"{file.relative_to(ROOT)} {file.stat().st_size // 1000} kB\n")
        browser.close()


def main() -> None:
    """Play, then take."""
    TARGET.mkdir(exist_ok=True)
    instances = ROOT / "examples" / "instances.jsonl"
    with local_server(instances, {"SANDBOX_NODE_ID": "sandbox-1", "SANDBOX_LOG_LEVEL": "error"}) as server:
        sid = played(server.url)
        take(server.url, sid)


if __name__ == "__main__":
    main()
