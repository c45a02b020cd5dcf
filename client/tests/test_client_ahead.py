"""What a trainer may say of the starts to come."""

from __future__ import annotations

import logging

import pytest
from serving import Service

from sandbox_client import SandboxClient
from sandbox_client.errors import SandboxError, UnknownInstance


async def test_a_group_and_what_comes_next(live_server: Service, caplog: pytest.LogCaptureFixture) -> None:
    """A trainer's wish is refused, half heard, or starts sessions that share a container."""
    caplog.set_level(logging.WARNING)
    async with SandboxClient(live_server.url) as client:
        assert await client.look_ahead([live_server.instance_id]) == 1
        assert not caplog.records
        assert await client.look_ahead(["nobody__knows-1", live_server.instance_id]) == 1
        assert "nobody" not in caplog.text and "unknown [" in caplog.text, "a hash is what was sent"
        sids = await client.start_group(live_server.instance_id, 3)
        assert len(set(sids)) == 3
        for sid in sids:
            await client.finish(sid)
        with pytest.raises(UnknownInstance):
            await client.start_group("nobody__knows-1", 2)
        with pytest.raises(SandboxError):
            await client.start_group(live_server.instance_id, 0)
