"""Mirrors of git servers and folders with faults: absent, busy, cut off, killed, damaged, too large."""

import asyncio
import signal
import sys
import time
from pathlib import Path

import pytest

from sandbox_server.catalogue.instance import GitSource
from sandbox_server.catalogue.repositories import Mirrors
from sandbox_server.errors import RepositoryUnavailable
from tests.conformance.catalogue.mirrors import ABSENT, at, content, nothing_left, opened, working
from tests.git_server import GitServer, serving_git
from tests.repository import Repository, blob


async def test_missing_repository(mirrors: Mirrors, server: GitServer, tmp_path: Path) -> None:
    """Reported at once: a 404 is not retried."""
    with pytest.raises(RepositoryUnavailable, match="not found"):
        await mirrors.ensure(GitSource(repo="owner/absent", commit=ABSENT))
    assert len(server.fetches) == 1
    assert nothing_left(tmp_path / "mirrors")


async def test_no_credentials(
    mirrors: Mirrors, server: GitServer, remote: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that requests credentials gets none although this host has some, and git does not prompt."""
    home = tmp_path / "home"
    home.mkdir()
    (home / ".netrc").write_text("default login me password secret\n")
    (home / ".gitconfig").write_text('[credential]\n\thelper = "!echo username=me; echo password=secret"\n')
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "http.extraHeader")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "Authorization: Bearer secret")
    server.fault = "deny"
    began = time.monotonic()
    with pytest.raises(RepositoryUnavailable, match="mirror it into a folder"):
        await mirrors.ensure(at(remote.base))
    assert server.told == [] and time.monotonic() - began < 30
    assert nothing_left(tmp_path / "mirrors")


async def test_busy_server(mirrors: Mirrors, server: GitServer, remote: Repository) -> None:
    """Retried after a pause."""
    server.busy = 2
    assert (await mirrors.ensure(at(remote.base))).commit == remote.base
    assert len(server.fetches) == 3


@pytest.mark.parametrize("fault", ["cut", "stall"])
async def test_answers_that_break_off(fault: str, server: GitServer, remote: Repository, tmp_path: Path) -> None:
    """The fetch is limited in time, reported and cleaned up; the next one starts over."""
    folder = tmp_path / "mirrors"
    url = f"{server.url}/{{repo}}.git"
    server.fault = fault
    async with opened(folder, url=url, silence_s=2, attempts=2) as mirrors:
        began = time.monotonic()
        with pytest.raises(RepositoryUnavailable, match="2 attempts failed") as caught:
            await mirrors.ensure(at(remote.base))
        assert time.monotonic() - began < 60
        assert ("nothing came for 2 s" in caught.value.detail) is (fault == "stall")
        assert len(server.fetches) == 2
        assert nothing_left(folder)
        server.fault = ""
        assert await content(mirrors, at(remote.base), "README.md") == b"A library.\n"


async def test_no_attempt_takes_longer_than_its_bound(server: GitServer, remote: Repository, tmp_path: Path) -> None:
    server.fault = "stall"
    url = f"{server.url}/{{repo}}.git"
    async with opened(tmp_path / "mirrors", url=url, fetch_timeout_s=0.5, attempts=1) as mirrors:
        with pytest.raises(RepositoryUnavailable, match=r"did not end within 0\.5 s"):
            await mirrors.ensure(at(remote.base))
    assert nothing_left(tmp_path / "mirrors")


async def test_a_caller_that_leaves(mirrors: Mirrors, server: GitServer, remote: Repository) -> None:
    """When one caller is cancelled, the others still get their result."""
    first = asyncio.create_task(mirrors.ensure(at(remote.base)))
    second = asyncio.create_task(mirrors.ensure(at(remote.base)))
    await asyncio.sleep(0.08)
    first.cancel()
    assert (await second).commit == remote.base
    assert len(server.fetches) == 1


async def test_close_ends_what_is_under_way(server: GitServer, remote: Repository, tmp_path: Path) -> None:
    server.fault = "stall"
    async with opened(tmp_path / "mirrors", url=f"{server.url}/{{repo}}.git") as mirrors:
        asking = asyncio.create_task(mirrors.ensure(at(remote.base)))
        while not working(tmp_path / "mirrors"):  # noqa: ASYNC110 -- processes tell nobody
            await asyncio.sleep(0.02)
    assert working(tmp_path / "mirrors") == []
    await asyncio.gather(asking, return_exceptions=True)


async def test_killed_in_the_middle(large: Path, tmp_path: Path) -> None:
    """After a process was killed during its fetch, the next one cleans up and fetches again."""
    folder = tmp_path / "mirrors"
    program = (
        "import asyncio, sys; from pathlib import Path\n"
        "from sandbox_server.catalogue.git_fetch import MirrorConfig\n"
        "from sandbox_server.catalogue.instance import GitSource\n"
        "from sandbox_server.catalogue.repositories import Mirrors\n"
        "config = MirrorConfig(folder=Path(sys.argv[1]), protocols=('http',))\n"
        "asyncio.run(Mirrors(config).ensure(GitSource(url=sys.argv[2])))\n"
    )
    with serving_git(large) as server:
        server.fault = "stall"
        source = GitSource(url=f"{server.url}/large")
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", program, str(folder), source.url)
        try:
            end = time.monotonic() + 20
            while not list(folder.glob("mirrors/*.git/objects/pack/tmp_*")):
                assert time.monotonic() < end
                await asyncio.sleep(0.02)
        finally:
            child.send_signal(signal.SIGKILL)
            await child.wait()
        server.fault = ""
        server.ended.set()  # the fetch that outlives its parent ends with its connection
        async with opened(folder) as mirrors:
            assert len(await content(mirrors, source, "blob") or b"") == 2_000_000
        assert not list(folder.glob("mirrors/*.git/objects/pack/tmp_*"))
        assert not list(folder.glob("mirrors/*.git/*.lock"))


async def test_damaged_mirror(mirrors: Mirrors, remote: Repository) -> None:
    """A damaged mirror is reported, deleted and fetched again."""
    source = at(remote.base)
    found = await mirrors.ensure(source)
    for pack in (found.path / "objects" / "pack").glob("*.pack"):
        pack.chmod(0o644)
        pack.write_bytes(pack.read_bytes()[:-40])
    with pytest.raises(RepositoryUnavailable, match="damaged"):
        async with mirrors.packed(source):
            pass
    async with mirrors.packed(source) as packed:
        assert packed.commit == remote.base


async def test_disk_bound(tmp_path: Path) -> None:
    """The least recently used mirrors are removed, and fetched again on request."""
    for name in ("a", "b", "c"):
        made = Repository(tmp_path / "remotes" / name)
        made.write("blob", blob(400_000, ord(name)))
        made.commit("One")

    def source(name: str) -> GitSource:
        return GitSource(path=str(tmp_path / "remotes" / name))

    folder = tmp_path / "mirrors"
    async with opened(folder, folders=(tmp_path,), max_bytes=1_000_000, attempts=1) as mirrors:
        for name in ("a", "b"):
            await mirrors.ensure(source(name))
            await asyncio.sleep(0.02)
        await mirrors.ensure(source("a"))
        await mirrors.ensure(source("c"))
        kept = {(path / "address").read_text().strip()[-1] for path in (folder / "mirrors").iterdir()}
        assert kept == {"a", "c"}
        assert (await content(mirrors, source("b"), "blob") or b"")[:8] == blob(400_000, ord("b"))[:8]


async def test_larger_than_all_room(large: Path, tmp_path: Path) -> None:
    """A fetch that exceeds the limit on all mirrors is stopped and not retried."""
    with serving_git(large) as server:
        server.fault = "stall"
        async with opened(tmp_path / "mirrors", max_bytes=500_000) as mirrors:
            with pytest.raises(RepositoryUnavailable, match="larger than SANDBOX_REPOSITORIES_MAX_MB"):
                await mirrors.ensure(GitSource(url=f"{server.url}/large"))
        assert len(server.fetches) == 1
    assert nothing_left(tmp_path / "mirrors")
