"""A server's real parts in this process, so that a test can break one of them at a chosen moment."""

import asyncio
import secrets
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandbox_server.app.engine import open_runtime
from sandbox_server.settings import Settings
from tests.conftest import ROOT
from tests.live.serving import imported


@pytest.fixture
async def settings(sample_images: dict[str, str], tmp_path: Path) -> AsyncIterator[Settings]:
    """Settings of a separate node with the samples imported; its containers are removed afterwards."""
    node = f"regression-{secrets.token_hex(4)}"
    settings = Settings(
        data_dir=tmp_path, node_id=node, pull="never", pool_group=1, reaper_period_s=3600, _env_file=None
    )
    shutil.copy(
        await asyncio.to_thread(imported, ROOT / "examples" / "instances.jsonl"), tmp_path / "catalogue.sqlite3"
    )
    yield settings
    async with open_runtime(settings) as runtime:
        await asyncio.gather(*(runtime.remove(container.container_id) for container in await runtime.list()))
