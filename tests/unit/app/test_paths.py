"""What the application sees of a request's path."""

import re

import pytest
from starlette.types import Receive, Scope, Send

from sandbox_server.app.paths import Paths
from sandbox_server.protocols._traits import TRAIT, Trait

FILES = Trait(re.compile("/files"), opens=True)


async def seen(path: str, raw: bytes, **more: object) -> Scope:
    """The scope that the application gets."""
    got: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        got.append(scope)

    async def unused(*_: object) -> None:
        raise AssertionError

    scope = {"type": "http", "path": path, "raw_path": raw, **more}
    await Paths(app, "/e2b", [FILES])(scope, unused, unused)
    return got[0]


@pytest.mark.parametrize("before", ["", "/", "//", "/e2b", "/e2b/"])
async def test_a_base_url_may_end_with_a_slash(before: str) -> None:
    """E2B's SDK adds `/files` to E2B_SANDBOX_URL as it is; with a slash at its end the request asked for an API key."""
    scope = await seen(f"{before}/files", f"{before}/files".encode())
    assert (scope["path"], scope["raw_path"], scope[TRAIT]) == ("/files", b"/files", FILES)


async def test_other_paths_are_left_alone() -> None:
    """What is encoded stays so, and a port of a box sees the path that its client sent."""
    scope = await seen("//a?b", b"//a%3Fb")
    assert (scope["path"], scope["raw_path"]) == ("/a?b", b"/a%3Fb")
    for path, raw in (("//files", b"/%2Ffiles"), ("/a//b", b"/a//b")):
        scope = await seen(path, raw)
        assert (scope["path"], scope["raw_path"]) == (path, raw)
    scope = await seen("//files", b"//files", **{TRAIT: FILES})
    assert scope["path"] == "//files"
