"""Mirrors of real git servers and folders, with and without faults."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sandbox_server.catalogue.git_fetch import MirrorConfig
from sandbox_server.catalogue.instance import GitSource
from sandbox_server.catalogue.localization.trees import commit_files
from sandbox_server.catalogue.repositories import Mirrors
from sandbox_server.errors import RepositoryUnavailable
from tests.git_server import GitServer, serving_git
from tests.repository import BUG_PATCH, FIX, Repository, blob, make_repository

ABSENT = 40 * "0"


@pytest.fixture(scope="session")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """The repository that all tests fetch from and none changes."""
    return make_repository(tmp_path_factory.mktemp("remote") / "owner" / "name.git")


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a repository `large` of 2 MB."""
    folder = tmp_path_factory.mktemp("large")
    made = Repository(folder / "large")
    made.write("blob", blob(2_000_000, 1))
    made.commit("One")
    return folder


@pytest.fixture
def server(remote: Repository) -> Iterator[GitServer]:
    with serving_git(remote.path.parents[1]) as server:
        yield server


@asynccontextmanager
async def opened(folder: Path, **settings: Any) -> AsyncIterator[Mirrors]:
    """Mirrors with short timeouts."""
    own = {"protocols": ("http",), "pause_s": 0.05, "silence_s": 5.0, "fetch_timeout_s": 20.0}
    mirrors = Mirrors(MirrorConfig(folder=folder, **own | settings))
    try:
        yield mirrors
    finally:
        await mirrors.close()


@pytest.fixture
async def mirrors(tmp_path: Path, server: GitServer, remote: Repository) -> AsyncIterator[Mirrors]:
    """Mirrors where `owner/name` is the remote by HTTP; its folder is allowed too."""
    async with opened(
        tmp_path / "mirrors", url=f"{server.url}/{{repo}}.git", folders=(remote.path.parents[1],)
    ) as mirrors:
        yield mirrors


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


async def test_one_fetch_however_many_ask(mirrors: Mirrors, server: GitServer, remote: Repository) -> None:
    """Forty concurrent requests for three commits cause one fetch; later requests find the commits."""
    commits = [remote.first, remote.base, remote.fix] * 13 + [remote.base]
    found = await asyncio.gather(*(mirrors.ensure(at(commit)) for commit in commits))
    assert [mirror.commit for mirror in found] == commits
    assert len(server.fetches) == 1, server.fetches
    await mirrors.ensure(at(remote.base))
    assert len(server.fetches) == 1


async def test_many_processes_fetch_once(
    mirrors: Mirrors, server: GitServer, remote: Repository, tmp_path: Path
) -> None:
    """Three other processes use the same folder concurrently; one fetch serves all."""
    program = (
        "import asyncio, sys; from pathlib import Path\n"
        "from sandbox_server.catalogue.git_fetch import MirrorConfig\n"
        "from sandbox_server.catalogue.instance import GitSource\n"
        "from sandbox_server.catalogue.repositories import Mirrors\n"
        "config = MirrorConfig(folder=Path(sys.argv[1]), url=sys.argv[2], protocols=('http',))\n"
        "source = GitSource(repo='owner/name', commit=sys.argv[3])\n"
        "print(asyncio.run(Mirrors(config).ensure(source)).commit)\n"
    )
    words = [sys.executable, "-c", program, str(tmp_path / "mirrors"), f"{server.url}/{{repo}}.git", remote.base]
    pipe = asyncio.subprocess.PIPE
    others = [await asyncio.create_subprocess_exec(*words, stdout=pipe) for _ in range(3)]
    said = [(await other.communicate())[0].decode().strip().splitlines()[-1] for other in others]
    assert said == [remote.base] * 3
    assert (await mirrors.ensure(at(remote.base))).commit == remote.base
    assert len(server.fetches) == 1, server.fetches


async def content(mirrors: Mirrors, source: GitSource, path: str) -> bytes | None:
    """The file at the source's commit; for a link, its target; None: no such file."""
    mirror = await mirrors.ensure(source)
    return commit_files(mirror.path, str(source), mirror.commit, [path]).get(path)


async def test_reads_without_a_checkout(mirrors: Mirrors, remote: Repository) -> None:
    """Unusual names, links and attributes; anything but a file gives None, by any method."""
    base = at(remote.base)
    assert await content(mirrors, base, "src/Größe ☃.py") == b"size = 1\n"
    assert await content(mirrors, base, 'odd "name".txt') == b"quoted\n"
    assert await content(mirrors, base, "link.py") == b"src/sum.py"
    assert await content(mirrors, base, "hidden/test_sum.py") == b"import sum\n"
    assert await content(mirrors, base, "version.py") == b'commit = "$Format:%H$"\nident = "$Id$"\n'
    assert await content(mirrors, base, "dos.txt") == b"one\ntwo\n"  # the repository's own bytes
    assert await content(mirrors, base, "data.bin") == bytes(range(256))
    assert await content(mirrors, at(remote.fix), "src/sum.py") == FIX.encode()
    for absent in ("no.py", "src", "src/sum.py/x", "", "/etc/passwd", "CHANGES.md", "src/sum.py\nx"):
        assert await content(mirrors, base, absent) is None, absent


async def test_local_folders(mirrors: Mirrors, remote: Repository, tmp_path: Path, server: GitServer) -> None:
    """Repositories by path, only inside the allowed folders after resolving links."""
    found = await mirrors.ensure(GitSource(path=str(remote.path), commit=remote.base))
    assert found.commit == remote.base and not server.fetches
    secret = make_repository(tmp_path / "secret")
    link = remote.path.parents[1] / "link"
    link.symlink_to(secret.path)
    try:
        for path in (secret.path, link):
            with pytest.raises(RepositoryUnavailable, match="none of the folders that SANDBOX_REPOSITORY_FOLDERS"):
                await mirrors.ensure(GitSource(path=str(path), commit=secret.base))
    finally:
        link.unlink()
    with pytest.raises(RepositoryUnavailable, match="no such folder"):
        await mirrors.ensure(GitSource(path=str(remote.path / "absent"), commit=remote.base))


async def test_protocols_that_are_not_allowed(tmp_path: Path, server: GitServer, remote: Repository) -> None:
    async with opened(tmp_path / "mirrors", protocols=("https",)) as mirrors:
        with pytest.raises(RepositoryUnavailable, match="SANDBOX_REPOSITORY_PROTOCOLS allows https"):
            await mirrors.ensure(GitSource(url=f"{server.url}/owner/name.git", commit=remote.base))
    assert not server.fetches


async def test_head(mirrors: Mirrors, remote: Repository) -> None:
    """Without a commit, the server's HEAD at the first fetch is used."""
    assert (await mirrors.ensure(at(""))).base_commit == remote.later


async def test_absent_commits_do_not_fail_the_others(mirrors: Mirrors, remote: Repository) -> None:
    """An absent commit is not fetched repeatedly either, since waiting does not help."""
    sources = [at(remote.base), at(ABSENT), at(remote.fix), at(40 * "1")]
    found = await asyncio.gather(*map(mirrors.ensure, sources), return_exceptions=True)
    assert [getattr(mirror, "commit", None) for mirror in found] == [remote.base, None, remote.fix, None]
    for failure in (found[1], found[3]):
        assert isinstance(failure, RepositoryUnavailable) and "has no such commit" in failure.detail


async def test_server_that_gives_no_commit_by_its_id(
    mirrors: Mirrors, server: GitServer, remote: Repository, tmp_path: Path
) -> None:
    """All its branches and tags are fetched instead, once."""
    server.fault = "old"
    found = await asyncio.gather(mirrors.ensure(at(remote.base)), mirrors.ensure(at(remote.first)))
    assert [mirror.commit for mirror in found] == [remote.base, remote.first]
    with pytest.raises(RepositoryUnavailable, match="no branch or tag of the repository leads to it"):
        await mirrors.ensure(at(ABSENT))
    async with mirrors.packed(at(remote.base)) as pack:
        assert pack.shallow == (remote.base,)


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
    async with mirrors.packed(source) as pack:
        assert pack.commit == remote.base


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


async def test_patch_that_brings_the_bug(
    mirrors: Mirrors, server: GitServer, remote: Repository, tmp_path: Path
) -> None:
    """The patch becomes part of a commit without parents, identical on every host."""
    source = at(remote.base, patch=BUG_PATCH)
    assert await content(mirrors, source, "src/right.py") == b"def double(a):\n    return 3 * a\n"
    assert await content(mirrors, at(remote.base), "src/right.py") == b"def double(a):\n    return 2 * a\n"
    async with mirrors.packed(source) as pack:
        commit = pack.commit
        assert commit != remote.base and pack.shallow == ()
        fresh = Repository(tmp_path / "fresh")
        fresh.take(pack.path)
        objects = fresh.git("cat-file", "--batch-all-objects", "--batch-check=%(objecttype)").split()
        assert objects.count("commit") == 1
        shown = fresh.git("cat-file", "commit", commit)
        assert "parent" not in shown and "The base" in shown and "author Ada Example <ada@example.org>" in shown
    async with opened(tmp_path / "other", url=f"{server.url}/{{repo}}.git") as other:
        assert (await other.ensure(source)).commit == commit
    with pytest.raises(RepositoryUnavailable, match=r"does not apply.*correct the instance"):
        await mirrors.ensure(at(remote.first, patch=BUG_PATCH))


async def test_packs_end_at_the_base(mirrors: Mirrors, remote: Repository, tmp_path: Path) -> None:
    """A pack has the commit alone or with its history, but no later object, although the mirror has some."""
    await mirrors.ensure(at(remote.later, history=True))
    for history, commits in ((False, [remote.base]), (True, [remote.base, remote.first])):
        fresh = Repository(tmp_path / f"fresh-{history}")
        async with mirrors.packed(at(remote.base, history=history)) as pack:
            assert pack.shallow == (() if history else (remote.base,))
            fresh.take(pack.path)
        told = fresh.git("cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype)").splitlines()
        assert sorted(line.split()[0] for line in told if line.endswith("commit")) == sorted(commits)
        fixed = remote.git("rev-parse", f"{remote.fix}:src/sum.py")
        assert fixed not in " ".join(told)


async def test_the_loop_goes_on(server: GitServer, remote: Repository, tmp_path: Path) -> None:
    """Nothing blocks the event loop, not even a server that does not answer."""
    server.fault = "stall"
    late = []

    async def watch() -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.01)
            late.append(time.monotonic() - began - 0.01)

    watching = asyncio.create_task(watch())
    url = f"{server.url}/{{repo}}.git"
    async with opened(tmp_path / "mirrors", url=url, silence_s=0.5, attempts=1) as mirrors:
        await asyncio.gather(*(mirrors.ensure(at(c)) for c in (remote.base, remote.fix)), return_exceptions=True)
    watching.cancel()
    assert max(late) < 0.5 and sorted(late)[len(late) * 9 // 10] < 0.05
