"""The choice of a seccomp profile."""

import json
from pathlib import Path

import pytest

from sandbox_server.app.limits import runtime_config
from sandbox_server.sandbox.config import OWN_SECCOMP
from sandbox_server.settings import Settings


def chosen(seccomp: str) -> Path | None:
    return runtime_config(Settings(seccomp=seccomp), "").seccomp


def test_a_profile_is_ours_the_engines_or_a_file(tmp_path: Path) -> None:
    """A setting that is read in another way would silently run containers under another profile."""
    own = tmp_path / "profile.json"
    own.write_text('{"defaultAction": "SCMP_ACT_ALLOW"}')
    assert (runtime_config(Settings(), "").seccomp, chosen("engine"), chosen(str(own))) == (OWN_SECCOMP, None, own)


@pytest.mark.parametrize("text", [None, "{", "[]", '{"syscalls": []}', "\xff"])
def test_what_is_no_profile_stops_the_start(tmp_path: Path, text: str | None) -> None:
    """Every start of a session would fail instead."""
    path = tmp_path / "profile.json"
    if text is not None:
        path.write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match="SANDBOX_SECCOMP"):
        chosen(str(path))


def test_no_call_is_allowed_twice() -> None:
    """Who closes a call in one place would leave it open in another."""
    rules = json.loads(OWN_SECCOMP.read_text())["syscalls"]
    names = [name for rule in rules for name in rule["names"] if "args" not in rule]
    assert len(names) == len(set(names)) > 300
