"""Mirrors for tests, and what they leave in their folder."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sandbox_server.catalogue.git_fetch import MirrorConfig
from sandbox_server.catalogue.instance import GitSource
from sandbox_server.catalogue.localization.trees import commit_files
from sandbox_server.catalogue.repositories import Mirrors

ABSENT = 40 * "0"
"""An id that no commit has."""


@asynccontextmanager
async def opened(folder: Path, **settings: Any) -> AsyncIterator[Mirrors]:
    """Mirrors with short timeouts."""
    own = {"protocols": ("http",), "pause_s": 0.05, "silence_s": 5.0, "fetch_timeout_s": 20.0}
    mirrors = Mirrors(MirrorConfig(folder=folder, **own | settings))
    try:
        yield mirrors
    finally:
        await mirrors.close()


def at(commit: str, **fields: Any) -> GitSource:
    """The remote at a commit."""
    return GitSource(repo="owner/name", commit=commit, **fields)


def nothing_left(folder: Path) -> bool:
    """Whether there is no mirror, no partial fetch and no running git."""
    left = [*(folder / "mirrors").iterdir(), *(folder / "work").iterdir()]
    return not left and not working(folder)


def working(folder: Path) -> list[str]:
    """Command lines of processes that work in the folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if Path(os.readlink(process / "cwd")).is_relative_to(folder):
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return [line for line in found if line]


async def content(mirrors: Mirrors, source: GitSource, path: str) -> bytes | None:
    """The file at the source's commit; for a link, its target; None: no such file."""
    mirror = await mirrors.ensure(source)
    return commit_files(mirror.path, str(source), mirror.commit, [path]).get(path)
