"""Counting the files of layers, of which one never ends."""

import os
from pathlib import Path

import pytest

from sandbox_server.sandbox.docker.layer_files import _counted

_DU = """#!/bin/sh
case $* in *huge*) exec sleep 60 ;; esac
exec /usr/bin/du "$@"
"""


async def test_a_layer_that_takes_too_long_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy that writes millions of files would turn the limit off for all."""
    folders = [tmp_path / name for name in ("a", "huge", "b", "c")]
    for count, folder in enumerate(folders):
        folder.mkdir()
        for number in range(count):
            (folder / str(number)).touch()
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "du").write_text(_DU)
    (programs / "du").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")

    counts = await _counted([str(folder) for folder in folders], 1.0)

    assert counts == {str(folders[0]): 1, str(folders[2]): 3, str(folders[3]): 4}


async def test_without_du(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its lack would fail every look at the disk."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert await _counted([str(tmp_path)], 1.0) == {}
