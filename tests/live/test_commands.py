"""The command line beside a running server."""

import json
import re
import signal
from pathlib import Path

import httpx
import pytest

from tests.conftest import ROOT
from tests.documents import blocks

from .forking import forker
from .serving import SCRIPTED, Server, engine, until


def test_sessions(live: Server) -> None:
    """An operator cannot see or end a session."""
    sid = live.begin()
    live.run(sid, "echo x > x.txt")
    (line,) = [line for line in live.cli("sessions", "list", "--state", "live").splitlines() if sid in line]
    assert SCRIPTED in line and "1 actions" in line
    assert json.loads(live.cli("sessions", "show", sid))["state"] == "live"
    assert live.cli("sessions", "close", sid) == f"{sid} ended (closed)\n"
    shown = json.loads(live.cli("sessions", "show", sid))
    assert (shown["state"], shown["end_reason"]) == ("ended", "closed")
    assert live.reward(sid)["verdict"] == "unresolved"
    live.cli("sessions", "show", "1", code=1)


def test_doctor(live: Server, sample_images: dict[str, str], tmp_path: Path) -> None:
    """A healthy machine is reported as broken, or one that lacks an image as healthy."""
    sound = Server(tmp_path, ROOT / "examples" / "instances.jsonl", {})
    healthy = sound.cli("doctor")
    assert "FAIL" not in healthy
    told = live.cli("doctor", code=1)
    assert told.count("FAIL") == 1 and "samples__absent-1" in told
    (picture,) = blocks("README.md", "## When something is wrong")
    real = {_plain(line, sound.node) for line in healthy.splitlines()} | {_plain(told.splitlines()[-1], live.node)}
    assert {_plain(line, "readme") for line in picture.text.splitlines()} - {"..."} <= real


def _plain(line: str, node: str) -> str:
    """A line of doctor's without what differs between machines: numbers, paths, versions, how shells are reached."""
    return re.sub(r"\S*[\d/]\S*", "#", line.partition(";")[0].replace(node, "NODE"))


@pytest.mark.alone  # it removes images that others' starts have found
def test_images_and_gc(live: Server) -> None:
    """An image cannot be prepared in advance, a start fails after `prune`, or `gc` removes live sessions."""
    sid = live.begin("samples__ledger-12")
    assert "samples__ledger-12: sandbox-prepared:" in live.cli("images", "prepare", "samples__ledger-12")
    assert "in use" in live.cli("images", "prune")
    live.run(sid, "true")
    live.finish(sid)
    live.finish(live.begin("samples__timespan-7"))
    assert "prepared images removed" in live.cli("images", "prune")
    live.finish(live.begin("samples__timespan-7"))  # its prepared image was removed meanwhile
    live.cli("gc", code=1)  # not while the server runs


def test_verify(live: Server) -> None:
    """`verify` accepts an instance whose own fix fails its tests, or rejects a valid one."""
    assert "1 of 1 sound" in live.cli("instances", "verify", "samples__timespan-7")


@pytest.mark.parametrize("verb", ["verify", "certify"])
def test_a_terminated_command_removes_its_containers(live: Server, tmp_path: Path, verb: str) -> None:
    """SIGTERM, as of a scheduler or `docker stop`, left containers that only `gc` removed, hours later."""
    with (tmp_path / "out").open("wb") as out:
        process = forker().start(
            ["instances", verb, "samples__ledger-12"], live.environment, out.fileno(), out.fileno()
        )
    guest = f"sandbox.node={live.node}+{verb}-{process.pid}"
    until(lambda: engine().containers(all=True, filters={"label": guest}), what="its container")
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM, (tmp_path / "out").read_text()
    assert not engine().containers(all=True, filters={"label": guest})


def test_certify(live: Server) -> None:
    """A certificate is measured again on each call, or is missing in the receipt."""
    name = "samples__timespan-7"
    table = ("instances", "certificates", name, "--format", "json")
    first = live.cli("instances", "certify", name, "--times", "2", "--mutants", "1", "--jobs", "2")
    assert "1 of 1 sound" in first and "8 runs, 4 of gold" in first
    (row,) = json.loads(live.cli(*table))
    assert (row["instance"], row["sound"], row["runs"], row["mutants"]) == (name, True, 8, 1)
    assert "8 runs, 4 of gold" in live.cli("instances", "certify", name, "--times", "2", "--mutants", "1")
    assert json.loads(live.cli(*table)) == [row], "what was done is done again"
    assert "gold resolved 4 of 4" in live.cli("instances", "show", name)
    sid = live.begin(name)
    live.run(sid, "echo certified > note.txt")
    live.finish(sid)
    receipt = httpx.get(f"{live.url}/v1/receipts/{live.reward(sid)['receipt']}", timeout=30).raise_for_status().json()
    assert receipt["certificate"].startswith("sound; 8 runs")


@pytest.mark.parametrize("verb", [("hash", "a"), ("instances", "show", "samples__ledger-12"), ("instances", "list")])
def test_what_needs_no_server(live: Server, verb: tuple[str, ...]) -> None:
    """A verb fails beside a running server."""
    assert live.cli(*verb).strip()
