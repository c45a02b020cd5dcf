"""E2B's command line, unmodified: templates, sandboxes, a terminal. `make clients`, not in CI, which has no Node.js."""

import contextlib
import json
import os
import pty
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from .serving import Server, docker, serving

PROGRAM = os.environ.get("SANDBOX_TEST_E2B_CLI", "")
KEY = "e2b_" + 5 * "0123456789ab"
BASE = "sandbox-samples/base:latest"
CALL_S = 240
pytestmark = [
    pytest.mark.skipif(not PROGRAM, reason="SANDBOX_TEST_E2B_CLI names no program (make clients)"),
    pytest.mark.timeout(1500),
]


@dataclass(frozen=True)
class Line:
    """The command line of one user: its home, and the service that it is told of."""

    server: Server
    home: Path

    @property
    def environment(self) -> dict[str, str]:
        names = {name: value for name, value in os.environ.items() if not name.startswith("E2B_")}
        url = self.server.url
        return names | {"HOME": str(self.home), "E2B_API_KEY": KEY, "E2B_API_URL": url, "E2B_SANDBOX_URL": url}

    def run(self, *words: str, code: int = 0) -> str:
        """What it prints; fails if it exits otherwise than with `code`."""
        done = subprocess.run(
            [PROGRAM, *words],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=CALL_S,
            check=False,
        )
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return done.stdout

    def data(self, *words: str) -> Any:
        """What it prints as JSON."""
        return json.loads(self.run(*words, "--format", "json"))

    def terminal(self, typed: str, *words: str) -> str:
        """What a terminal shows until the program in it ends; `typed` goes in when the shell has its prompt."""
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            [PROGRAM, *words], env=self.environment, stdin=theirs, stdout=theirs, stderr=theirs
        ) as run:
            os.close(theirs)
            shown, end, sent = b"", time.monotonic() + CALL_S, False
            with contextlib.suppress(OSError):  # the terminal's end
                while time.monotonic() < end and (part := os.read(ours, 4096)):
                    shown += part
                    if not sent and re.search(rb"[$#] (\x1b\S*)?$", shown):
                        os.write(ours, typed.encode())
                        sent = True
            os.close(ours)
            run.kill()
        return shown.decode(errors="replace")


@pytest.fixture(scope="module")
def line(rows: Path, sample_images: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    folder = tmp_path_factory.mktemp("cli")
    with serving(folder, rows, api_keys=f"lab={KEY}", box_templates=json.dumps({"base": BASE})) as server:
        yield Line(server, folder)
        for image in docker("images", "-q", "--filter", "label=sandbox.template_owner=lab").split():
            subprocess.run(["docker", "rmi", "-f", image], capture_output=True, timeout=60, check=False)


def test_templates(line: Line) -> None:
    """A user's Dockerfile becomes no template, or one that no sandbox starts from."""
    (folder := line.home / "mine").mkdir()
    (folder / "note.txt").write_text("hello\n")
    (folder / "e2b.Dockerfile").write_text(f"FROM {BASE}\nWORKDIR /srv\nCOPY note.txt .\nRUN cat note.txt > made\n")
    ready = ("--cmd", "sleep 1000", "--ready-cmd", "test -e /srv/made")
    line.run("template", "create", "mine", "--path", str(folder), *ready)
    (listed,) = line.data("template", "list")
    assert [name.rpartition("/")[2] for name in listed["aliases"]] == ["mine"]
    sid = line.run("sandbox", "create", "mine", "--detach").strip()
    assert line.run("sandbox", "exec", sid, "cat", "/srv/made") == "hello\n"
    line.run("sandbox", "kill", sid)
    line.run("template", "delete", "mine", "--yes")
    assert line.data("template", "list") == []


def test_sandboxes(line: Line) -> None:
    """Operators see, enter and end sandboxes otherwise than the program says."""
    sid = line.run("sandbox", "create", "base", "--detach").strip()
    assert [one["sandboxId"] for one in line.data("sandbox", "list")] == [sid]
    assert line.data("sandbox", "info", sid)["state"] == "running"
    assert line.run("sandbox", "exec", sid, "--", "sh", "-c", "echo out; exit 7", code=7) == "out\n"
    shown = line.terminal("echo $((6 * 7))-typed; exit\n", "sandbox", "connect", sid)
    assert "42-typed" in shown and "Closing terminal connection" in shown, shown
    assert any("exit 7" in one for one in line.run("sandbox", "logs", sid, "--format", "json").splitlines())
    line.run("sandbox", "pause", sid)
    assert [one["state"] for one in line.data("sandbox", "list", "--state", "paused")] == ["paused"]
    line.run("sandbox", "resume", sid)
    line.run("sandbox", "kill", sid)
    assert line.data("sandbox", "list") == []
    assert not line.server.containers()
