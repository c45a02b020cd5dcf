"""`sandbox-server sessions open`: a person's terminal in a copy of a session, and what is left when it is over."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest

from tests.documents import blocks, play

from . import forking
from .fleet import fleet, on
from .reader import shell
from .serving import UNREAD, Server, serving, until

_PROMPT = "(copy)"
_ON_ITS_TERMINAL = """
import fcntl, os, termios
from sandbox_server import cli
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
cli.main()
"""
"""The command, controlled by its terminal: changes of the terminal's size are told to it."""


@pytest.fixture(scope="module")
def server(rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all tests but one."""
    with serving(tmp_path_factory.mktemp("open"), rows, reaper_period_s=1, command_timeout_s=25) as server:
        yield server


@pytest.fixture(scope="module")
def finished(server: Server) -> str:
    """A rollout that has ended: three actions, the last one in /tmp/d. No look at it changes it."""
    sid = server.begin()
    server.run(sid, "mkdir /tmp/d && cd /tmp/d && echo one > f && export KEPT='a b'")
    server.run(sid, "echo two >> f")
    server.run(sid, "echo three >> f; echo x > /workspace/samples__ledger__1.2/note.txt")
    server.finish(sid)
    until(lambda: not server.containers("role=session"), what="the rollout's container gone")
    return sid


class Person:
    """Types into the command on a real terminal."""

    here: ClassVar[list["Person"]] = []
    """Those of the test that runs."""

    def __init__(self, server: Server, *words: str) -> None:
        self.terminal, other = pty.openpty()
        self.resize(30, 90)
        environment = server.environment | {"TERM": "xterm-256color"}
        command = ["-c", _ON_ITS_TERMINAL, "sessions", "open", *words]
        self.process = forking.forker().start(command, environment, other, other, other)
        os.close(other)
        self.seen = ""
        self.here.append(self)

    def resize(self, rows: int, cols: int) -> None:
        """As a person who drags the window's corner."""
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def type(self, text: str) -> None:
        """Press keys; what was seen before is forgotten."""
        self.seen = ""
        os.write(self.terminal, text.encode())

    def sees(self, text: str) -> str:
        """Wait until `text` is on the screen; return all that has come."""
        end = time.monotonic() + 90
        while text not in self.seen:
            assert time.monotonic() < end, f"no {text!r} in {self.seen!r}"
            if select.select([self.terminal], [], [], 0.5)[0]:
                try:
                    self.seen += os.read(self.terminal, 65536).decode(errors="replace")
                except OSError:
                    raise AssertionError(f"it ended without {text!r}: {self.seen!r}") from None
        return self.seen

    def copy(self) -> str:
        """The copy's sid, once there is a prompt."""
        found = re.search(r"copy (\d+) of session", self.sees(_PROMPT))
        assert found is not None, self.seen
        return found[1]

    def ends(self) -> int:
        """Wait for the command's exit; its code."""
        code = self.process.wait(60)
        os.close(self.terminal)
        return code


@pytest.fixture(autouse=True)
def nobody_stays() -> Iterator[None]:
    """A test that fails would leave its copy to the next ones, which wait for all containers to go."""
    yield
    for person in Person.here:
        if person.process.poll() is None:
            person.process.send_signal(signal.SIGKILL)
    Person.here.clear()


def script(server: Server, text: str, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run the command with `text` as its stdin."""
    return forking.run(["sessions", "open", *words], server.environment, text)


def test_a_person_looks_around(server: Server, finished: str) -> None:
    """The terminal is no terminal: no Ctrl-C, no colours, another size, another folder; or the copy outlives it."""
    person = Person(server, finished)
    copy = person.copy()
    person.type('pwd; echo "$KEPT $TERM"; cat f; tty; stty size\r')
    seen = person.sees("30 90")
    assert all(text in seen for text in ("\r\n/tmp/d\r\n", "\r\na b xterm-256color\r\n", "three\r\n", "/dev/pts/"))
    person.resize(50, 132)
    # `stty` asks until the new size is there: the person's terminal tells the command, which tells the server
    person.type("until stty size | grep -q '50 132'; do sleep 0.1; done; echo re''sized\r")
    person.sees("resized")
    person.type("cd /; ls\r")
    assert "\x1b[" in person.sees("workspace"), "no colours"
    person.type("echo be''gun; sleep 1000\r")
    person.sees("begun")
    # Ctrl-C between bash's fork and the child's own tcsetpgrp would leave the terminal to the child, on any terminal
    until(lambda: server.runs(copy, "sleep 1000"), what="the command that is to be interrupted")
    person.type("\x03")
    person.sees(_PROMPT)
    person.type("echo $?\r")
    person.sees("\r\n130\r\n")
    person.type("(exit 7)\r")
    person.sees(_PROMPT)
    person.type("\x04")
    assert person.ends() == 7, "the shell's own exit code, after Ctrl-D"
    until(lambda: not server.containers(f"sid={copy}"), what="the copy gone")
    assert server.get(f"/v1/boxes/{copy}")["state"] == "ended"


def test_as_the_document_shows_it(server: Server) -> None:
    """Somebody looks around as in docs/forks.md and sees something else."""
    by_hand, by_script = blocks("docs/forks.md", "## Look around")
    sid = server.begin(UNREAD)
    for command in ("cd ledger", "echo >> __init__.py", "ls"):
        server.run(sid, command)
    _, told, *shown = by_hand.text.splitlines()
    person, printed = Person(server, sid), [told.partition("; ")[2]]
    for line in shown:
        prompt, is_typed, command = line.removeprefix(_PROMPT).partition("# ")
        if not is_typed:
            printed.append(line)
            continue
        seen = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", person.sees(f"{prompt}#"))
        assert all(text in seen for text in printed), seen
        person.type(f"{command}\r")
        printed = []
    assert person.ends() == 0
    play(by_script, shell(server), {"8855507792260185": sid})
    server.finish(sid)


def test_a_copy_counts_nowhere(server: Server, finished: str) -> None:
    """A look around changes rewards, groups, runs or trees; or shows in the rollout."""
    reward = server.reward(finished)["receipt"]
    before = {path: server.get(path) for path in (f"/v1/sessions/{finished}", "/v1/overview")}
    earlier = _copies(server, finished)
    done = script(server, "echo changed > /tmp/d/f; cat note.txt; cd ~; pwd\nexit 3\n", finished)
    assert done.returncode == 3, done
    (copy,) = _copies(server, finished) - earlier
    assert server.session(copy)["run"] == "" and server.session(copy)["owner"] == ""
    assert server.reward(copy)["verdict"] == "unknown_session" and server.session(copy)["verdict"] is None
    opened = server.post(f"/v1/sessions/{finished}/open", {}).raise_for_status().json()["sid"]
    assert server.say(opened, "ls")["error"]["code"] == "is_box"
    assert httpx.delete(f"{server.url}/v1/boxes/{opened}", timeout=30).status_code == 204
    assert server.get(f"/v1/sessions/{finished}") == before[f"/v1/sessions/{finished}"]
    for part in ("now", "groups"):
        assert server.get("/v1/overview")[part] == before["/v1/overview"][part]
    assert server.reward(finished)["receipt"] == reward
    assert [one["sid"] for one in _list(server, f"/v1/sessions/{finished}/tree")] == [finished]


def test_a_script(server: Server, finished: str) -> None:
    """Output is mixed up, cut or late, the exit code is lost, or the copy is not of the action that was named."""
    done = script(server, "pwd\ncat f\necho loud >&2\nexit 5\n", finished, "--at", "2")
    assert (done.returncode, done.stdout) == (5, "/tmp/d\none\ntwo\n"), done
    assert "loud\n" in done.stderr
    done = script(server, "head -c 3000000 /dev/zero | tr '\\0' x", finished)
    assert (done.returncode, len(done.stdout)) == (0, 3_000_000), done.stderr
    done = script(server, "kill -9 $$", finished)
    assert done.returncode == 137, done
    done = script(server, "true", finished, "--at", "4")
    assert done.returncode == 1 and "has 3 actions, not 4" in done.stderr, done
    until(lambda: not server.containers("role=session"), what="the copies gone")


def test_a_live_session_goes_on(server: Server) -> None:
    """A look at a live rollout disturbs it: its files, its shell, its journal."""
    sid = server.begin(UNREAD)
    server.run(sid, "cd /tmp && here=1 && echo mine > own")
    assert script(server, "cat own; echo theirs > own", sid).stdout == "mine\n"
    assert "\r\n1 mine[" in server.run(sid, "echo $here $(cat own)") and len(server.actions(sid)) == 2
    server.finish(sid)


@pytest.mark.parametrize("sign", [signal.SIGHUP, signal.SIGTERM])
def test_a_signal_ends_the_copy(server: Server, finished: str, sign: signal.Signals) -> None:
    """A window that is closed leaves a container behind, or the terminal raw."""
    person = Person(server, finished)
    copy = person.copy()
    person.process.send_signal(sign)
    assert person.process.wait(60) == 128 + sign
    assert termios.tcgetattr(person.terminal)[3] & termios.ICANON, "the terminal is as it was"
    until(lambda: not server.containers(f"sid={copy}"), what="the copy gone")
    assert server.session(copy)["end_reason"] == "killed", "ended by the command, not by its life"


def test_kill_9_ends_the_copy(server: Server, finished: str) -> None:
    """Nobody can clean up: the copy stays for its four hours, or ends while somebody still looks."""
    person, other = Person(server, finished), Person(server, finished)
    copy, kept = person.copy(), other.copy()
    began = time.monotonic()
    person.process.send_signal(signal.SIGKILL)
    person.ends()
    until(lambda: not server.containers(f"sid={copy}"), 10, "the copy gone")
    took = time.monotonic() - began
    assert server.session(copy)["end_reason"] == "timeout" and took < 180, f"{took:.0f} s"
    time.sleep(max(0.0, 65 - took))  # past the life that a copy begins with
    other.type("echo still''here\r")
    other.sees("stillhere")
    other.type("exit\r")
    assert other.ends() == 0
    until(lambda: not server.containers(f"sid={kept}"), what="the other copy gone")


def test_from_another_node(rows: Path, tmp_path: Path) -> None:
    """Behind a balancer the command reaches any server: opening, keys, sizes and the end are passed on."""
    with fleet(tmp_path, rows, 2) as ((a, b), _):
        sid = on(b)
        a.run(sid, "cd /tmp && echo far > f")
        person = Person(a, sid)
        copy = person.copy()
        assert a.session(copy)["node"] == b.node
        person.resize(41, 77)
        person.type("cat f; until stty size | grep -q '41 77'; do sleep 0.1; done; echo re''sized\r")
        assert "far\r\n" in person.sees("resized")
        person.type("exit 4\r")
        assert person.ends() == 4
        until(lambda: not b.containers(f"sid={copy}"), what="the copy gone")


def _copies(server: Server, sid: str) -> set[str]:
    boxes = [one["sid"] for one in _list(server, "/v1/sessions?limit=1000") if one["instance_id"] == ""]
    return {one for one in boxes if server.get(f"/v1/boxes/{one}")["metadata"]["copy_of"] == sid}


def _list(server: Server, path: str) -> list[dict[str, Any]]:
    return list(httpx.get(f"{server.url}{path}", timeout=30).raise_for_status().json())
