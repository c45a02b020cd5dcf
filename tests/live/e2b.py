"""Clients of E2B's protocol: plain HTTP requests, and the real SDK in its own environment."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import ROOT

from .serving import Server

KEY = "e2b_" + "0" * 40
BASE = "sandbox-samples/base:latest"
TEMPLATES = json.dumps({"base": BASE})
SDKS = ROOT / ".cache" / "sdk"


class Control:
    """E2B's control plane on one server."""

    def __init__(self, server: Server, **headers: str) -> None:
        self.server = server
        self._headers = {"X-API-KEY": KEY, "User-Agent": "e2b-python-sdk/2.63.0", **headers}

    def call(self, method: str, path: str, body: object = None, **options: Any) -> httpx.Response:
        """Send one request."""
        return httpx.request(
            method, self.server.url + path, json=body, headers=self._headers, timeout=60, trust_env=False, **options
        )

    def create(self, **body: object) -> dict[str, Any]:
        """Create a sandbox; return the answer."""
        answer = self.call("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 60, **body})
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    def ids(self, **query: str) -> list[str]:
        """Ids of the listed sandboxes."""
        return [found["sandboxID"] for found in self.call("GET", "/v2/sandboxes", params=query).json()]

    def kill(self, *sids: str) -> None:
        """Kill the sandboxes."""
        for sid in sids:
            assert self.call("DELETE", f"/sandboxes/{sid}").status_code == 204


def sdk(server: Server, release: str, script: str) -> Any:
    """Run `script` in the environment of that release; return its variable `result`."""
    with sdk_process(server.url, release, script) as process:
        out, err = process.communicate(timeout=90)
    assert process.returncode == 0, err[-3000:]
    return json.loads(out.splitlines()[-1])


@contextmanager
def sdk_process(url: str, release: str, script: str) -> Iterator[subprocess.Popen[str]]:
    """`script` running in the environment of that release; it prints its variable `result` last. Killed at the end."""
    python = SDKS / f"e2b-{release}" / "bin" / "python"
    if not python.exists():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"{python} is needed: make test makes it")
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(Path.home()),
        "E2B_API_URL": url,
        "E2B_SANDBOX_URL": url,
        "E2B_API_KEY": KEY,
        "E2B_VALIDATE_API_KEY": "false",
        "no_proxy": "*",
    }
    with subprocess.Popen(
        [python, "-c", f"import json\n{script}\nprint(json.dumps(result, default=str))"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def ends_at(control: Control, sid: str) -> float:
    """When the box ends (Unix seconds)."""
    return datetime.fromisoformat(control.call("GET", f"/sandboxes/{sid}").json()["endAt"]).timestamp()
