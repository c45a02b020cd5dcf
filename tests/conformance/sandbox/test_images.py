"""Cached facts about an engine's images hold until the engine reports a change."""

import asyncio
import secrets
from typing import Any

import pytest

from sandbox_server.errors import ImageUnavailable
from sandbox_server.sandbox.docker.runtime import DockerRuntime

from .backends import Backend
from .specs import IMAGE


@pytest.mark.alone  # any change of any image on the engine counts
async def test_a_known_image_is_looked_up_again_after_any_change(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rebuilt image is not noticed, or every start and every tenth second asks the engine for what it knows."""
    lone, engine = backend.runtime(), backend.engine
    asked = 0
    call = engine.call

    async def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal asked
        asked += 1
        return await call(*arguments, **options)

    monkeypatch.setattr(engine, "call", counted)
    name = f"sandbox-watch-{secrets.token_hex(4)}:latest"
    watching = asyncio.create_task(lone.images.watch())
    await asyncio.sleep(0.5)  # it listens by now
    try:
        for _ in range(3):
            found = await lone.images.find(IMAGE)
            assert await lone.images.find(name) is None
            listed = {image.name for image in await lone.images.all()}
        assert found is not None and asked == 3, "each is asked for once, and so is the list"
        assert name not in listed
        for change in (["tag", IMAGE, name], ["rmi", name]):
            by_another = await asyncio.create_subprocess_exec(
                *backend.client, *change, stdout=asyncio.subprocess.DEVNULL
            )
            assert await by_another.wait() == 0
            await asyncio.sleep(0.5)
            now = await lone.images.find(name)
            assert (now is not None and now.digest == found.digest) is (change[0] == "tag")
            assert (name in {image.name for image in await lone.images.all()}) is (change[0] == "tag")
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    asked = 0
    for _ in range(2):
        await lone.images.find(IMAGE)
        await lone.images.all()
    assert asked == 4, "nobody listens any more, so each look asks"


@pytest.mark.parametrize("name", ["Infinity", "a/B", "a___b", "x:y:z"])
async def test_a_name_that_no_image_can_have(runtime: DockerRuntime, name: str) -> None:
    """The engine's refusal was reported as an engine that is down, and so retried for ever."""
    assert await runtime.images.find(name) is None
    with pytest.raises(ImageUnavailable) as refused:
        await runtime.images.resolve([name])
    assert refused.value.absent
