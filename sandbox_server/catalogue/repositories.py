"""Bare mirrors of repositories in a folder of this host: fetched once, packed for sandboxes.

Commits that are requested at the same moment are fetched together; commits that are here already are not fetched. A
fetch asks for exact commits, without the history around them; if the server refuses that, the whole repository is
mirrored. Only what git's refs name counts as fetched, and git writes them at the end of a fetch. So a fetch that failed
or was killed leaves nothing that could pass for a repository.
"""

import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from sandbox_server.catalogue.git_fetch import Fetch, MirrorConfig
from sandbox_server.catalogue.git_process import GitFailed, environment, run_git
from sandbox_server.catalogue.instance import GitSource
from sandbox_server.catalogue.mirror_folder import MirrorFolder
from sandbox_server.errors import RepositoryUnavailable

_LOCAL_S = 600.0  # limit on local git commands: packing 1 GB takes about a minute


@dataclass(frozen=True, slots=True)
class Mirror:
    """A fetched commit; `path` may be removed once nobody uses it."""

    path: Path
    """The bare repository."""
    base_commit: str
    """The commit that the source names."""
    commit: str
    """The commit that the sandbox gets: the same, or one made from it by the source's patch."""


@dataclass(frozen=True, slots=True)
class Pack:
    """All objects of a commit; with `history` also those of the commits before it."""

    path: Path
    """One pack file, as `git index-pack` reads it."""
    commit: str
    shallow: tuple[str, ...]
    """Commits whose parents are not in the pack."""


class Mirrors:
    """The mirrors of one folder, which other processes may share."""

    def __init__(self, config: MirrorConfig) -> None:
        self._config = config
        self._folder = MirrorFolder(config.folder)
        self._fetch = Fetch(config, self._folder)
        self._env: dict[str, str] | None = None

    async def ensure(self, source: GitSource) -> Mirror:
        """Fetch the source's commit if it is not here, and apply its patch.

        Raises:
            RepositoryUnavailable: it could not be fetched within the limits; the next call tries again.

        """
        async with self._using(source) as mirror:
            return mirror

    @asynccontextmanager
    async def packed(self, source: GitSource) -> AsyncIterator[Pack]:
        """The source's commit as one pack file, removed after the block; `.gitattributes` have no effect on it.

        Raises:
            RepositoryUnavailable: as `ensure`.

        """
        target = self._folder.work / f"{secrets.token_hex(8)}.pack"
        try:
            mirror = None
            try:
                async with self._using(source) as mirror:
                    pack = await self._pack(source, mirror, target)
            except GitFailed as e:
                # whatever is wrong, a fresh copy repairs it or gives a better error
                if mirror is not None:
                    await self._fetch.discard(source, mirror.path)
                raise RepositoryUnavailable(
                    f"{source}: its mirror is damaged ({e.said[-300:]}) and will be fetched again; repeat the request"
                ) from e
            yield pack
        finally:
            await asyncio.to_thread(target.unlink, missing_ok=True)

    async def close(self) -> None:
        """Stop the fetches."""
        await self._fetch.close()

    @asynccontextmanager
    async def _using(self, source: GitSource) -> AsyncIterator[Mirror]:
        """The source's commit, kept for the duration of the block."""
        async with self._fetch.there(source) as (path, base):
            if not source.patch:
                yield Mirror(path, base, base)
                return
            yield Mirror(path, base, await self._patched(source, path, base))

    async def _patched(self, source: GitSource, path: Path, base: str) -> str:
        """The commit of `base` with the patch applied, without parents, since its diff would show the patch.

        Author, dates and message are those of `base`, so that every host makes the same commit.
        """
        digest = hashlib.sha256(f"{base}\0{source.patch}".encode("utf-8", "surrogateescape")).hexdigest()
        ref = f"refs/patched/{digest}"
        known = path / ref
        if await asyncio.to_thread(known.is_file):
            return (await asyncio.to_thread(known.read_text)).strip()
        index = self._folder.work / f"{secrets.token_hex(8)}.index"
        own = {"GIT_INDEX_FILE": str(index)}
        try:
            await self._git(path, "read-tree", base, env=own)
            patch = source.patch.encode("utf-8", "surrogateescape")
            try:
                await self._git(path, "apply", "--cached", "--whitespace=nowarn", "-", stdin=patch, env=own)
            except GitFailed as e:
                raise RepositoryUnavailable(
                    f"{source}: the source's patch does not apply to it: {e.said[-300:]}; correct the instance"
                ) from e
            tree = (await self._git(path, "write-tree", env=own)).decode().strip()
            commit = await self._commit_like(path, base, tree)
            await self._git(path, "update-ref", ref, commit)
        except GitFailed as e:
            raise RepositoryUnavailable(f"{source}: applying its patch failed: {e.said[-300:]}") from e
        finally:
            await asyncio.to_thread(index.unlink, missing_ok=True)
        return commit

    async def _commit_like(self, path: Path, base: str, tree: str) -> str:
        """A commit of `tree` without parents, otherwise equal to `base`."""
        head, _, message = (await self._git(path, "cat-file", "commit", base)).partition(b"\n\n")
        kept = [line for line in head.split(b"\n") if line.split(b" ")[0] in (b"author", b"committer", b"encoding")]
        text = b"\n".join([b"tree " + tree.encode(), *kept]) + b"\n\n" + message
        written = await self._git(path, "hash-object", "-t", "commit", "-w", "--stdin", stdin=text)
        return written.decode().strip()

    async def _pack(self, source: GitSource, mirror: Mirror, target: Path) -> Pack:
        wanted = target.with_suffix(".wanted")
        words = ["pack-objects", "-q", "--stdout", "--delta-base-offset"]
        try:
            with await asyncio.to_thread(wanted.open, "w+b") as asked:
                if source.history:
                    asked.write(mirror.commit.encode() + b"\n")
                    words.append("--revs")
                else:
                    listed = ["rev-list", "--objects", "--max-count=1", mirror.commit]
                    await self._git(mirror.path, *listed, stdout=asked)
                asked.seek(0)
                with await asyncio.to_thread(target.open, "wb") as out:
                    await self._git(mirror.path, *words, stdin=asked, stdout=out)
        finally:
            await asyncio.to_thread(wanted.unlink, missing_ok=True)
        return Pack(target, mirror.commit, await self._shallow(source, mirror))

    async def _shallow(self, source: GitSource, mirror: Mirror) -> tuple[str, ...]:
        if not source.history:
            head = (await self._git(mirror.path, "cat-file", "commit", mirror.commit)).partition(b"\n\n")[0]
            return (mirror.commit,) if b"\nparent " in head else ()
        file = mirror.path / "shallow"
        if not await asyncio.to_thread(file.exists):
            return ()
        cut = (await asyncio.to_thread(file.read_text)).split()
        theirs = set((await self._git(mirror.path, "rev-list", mirror.commit)).decode().split())
        return tuple(commit for commit in cut if commit in theirs)

    async def _git(self, path: Path, *words: str, env: dict[str, str] | None = None, **more: object) -> bytes:
        if self._env is None:
            self._env = await asyncio.to_thread(environment, self._folder.home, ())
        return await run_git(words, cwd=path, env=self._env | (env or {}), timeout_s=_LOCAL_S, **more)  # type: ignore[arg-type]
