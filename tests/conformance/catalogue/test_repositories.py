"""Mirrors of real git servers and folders."""

import asyncio
import sys
import time
from pathlib import Path

import pytest

from sandbox_server.catalogue.instance import GitSource
from sandbox_server.catalogue.repositories import Mirrors
from sandbox_server.errors import RepositoryUnavailable
from tests.conformance.catalogue.mirrors import ABSENT, at, content, opened
from tests.git_server import GitServer
from tests.repository import BUG_PATCH, FIX, Repository, make_repository


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
