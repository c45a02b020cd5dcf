"""The pinned swebench library in its real worker, which a file's tests share."""

from collections.abc import AsyncIterator

import pytest

from sandbox_server.grading.library import SwebenchLibrary


@pytest.fixture(scope="module")
async def library() -> AsyncIterator[SwebenchLibrary]:
    one = SwebenchLibrary()
    yield one
    await one.close()
