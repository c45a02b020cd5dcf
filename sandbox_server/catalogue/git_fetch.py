"""Fetches commits into mirrors: one bounded, retried fetch for all commits requested at a time; all or nothing."""

import asyncio
import math
import re
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from sandbox_server import telemetry
from sandbox_server.catalogue import git_address
from sandbox_server.catalogue.git_process import GitFailed, environment, run_git
from sandbox_server.catalogue.instance import GitSource
from sandbox_server.catalogue.mirror_folder import MirrorFolder, tree_size
from sandbox_server.errors import RepositoryUnavailable
from sandbox_server.tasks import TaskSet

log = telemetry.logger(__name__)

_GATHER_S = 0.05  # wait for other requests for commits of the same repository
_LOOKS = 3  # a mirror may be removed for room between its fetch and its use
_REMOVE_S = 5.0
_TOGETHER = 64  # mirrors in use at a time; each holds a file open
_HEAD = "HEAD"
_FETCH = ("--progress", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--update-shallow")
_ALL = "2147483647"  # git's own value for unlimited depth
_TOO_LARGE = "it is larger than SANDBOX_REPOSITORIES_MAX_MB"

_ABSENT = re.compile(r"not our ref ([0-9a-f]{40,64})|couldn't find remote ref (HEAD)")
_ONLY_WHOLE = "unadvertised object"
_FINAL = re.compile(
    r"not found|does not appear to be a git repository|could not read (?:Username|Password)|Authentication failed"
    rf"|transport '\w+' not allowed|returned error: 40[0134]|does not exist|{_TOO_LARGE}"
)


@dataclass(frozen=True, slots=True)
class MirrorConfig:
    """Where mirrors are stored, what they may be fetched from, and limits."""

    folder: Path
    url: str = "https://github.com/{repo}.git"
    """Address of a source that only names its repository: a URL or an absolute path."""
    folders: tuple[Path, ...] = ()
    """Folders that local repositories may be in."""
    protocols: tuple[str, ...] = ("https",)
    fetch_timeout_s: float = 900.0
    """Limit on one attempt."""
    silence_s: float = 60.0
    """An attempt without progress for this long is stopped."""
    attempts: int = 3
    pause_s: float = 2.0
    """Pause before the second attempt; doubled before each further one."""
    concurrency: int = 4
    """Fetches at a time."""
    max_bytes: int = 50 << 30
    """Limit on the total size of all mirrors."""


@dataclass(slots=True)
class _Batch:
    wanted: set[str] = field(default_factory=set)
    task: "asyncio.Task[dict[str, str]] | None" = None


class Fetch:
    """Fetches into the mirrors of one folder."""

    def __init__(self, config: MirrorConfig, folder: MirrorFolder) -> None:
        self._config = config
        self._folder = folder
        self._slots = asyncio.Semaphore(config.concurrency)
        self._gathering: dict[str, _Batch] = {}
        self._tasks = TaskSet("git fetches")
        self._uses = asyncio.Semaphore(_TOGETHER)
        self._opened = False
        # each attempt may use its whole timeout; the pauses double
        self._lock_s = config.attempts * (config.fetch_timeout_s + 60.0) + config.pause_s * 2**config.attempts

    @asynccontextmanager
    async def there(self, source: GitSource) -> AsyncIterator[tuple[Path, str]]:
        """Provide the mirror that has the source's commit, and the commit's id. Both stay until the block ends.

        Raises:
            RepositoryUnavailable.

        """
        if not self._opened:
            await asyncio.to_thread(self._folder.open)
            self._opened = True
        address = await asyncio.to_thread(self._address, source)
        key = self._folder.key(address, history=source.history)
        wanted = source.commit or _HEAD
        for _ in range(_LOOKS):
            async with self._uses, self._folder.locked(key, exclusive=False, timeout_s=self._lock_s):
                if found := await asyncio.to_thread(self._kept, key, wanted):
                    yield self._folder.mirror(key), found
                    return
            await self._bring(address, key, wanted)
        raise RepositoryUnavailable(
            f"{source}: its mirror was removed for room as soon as it was there; raise SANDBOX_REPOSITORIES_MAX_MB"
        )

    async def discard(self, source: GitSource, path: Path) -> None:
        """Remove a damaged mirror unless somebody uses it."""
        with suppress(TimeoutError):
            async with self._folder.locked(path.stem, exclusive=True, timeout_s=_REMOVE_S):
                await asyncio.to_thread(self._folder.remove, path.stem)
        log.warning("mirror discarded", source=str(source), path=str(path))

    async def close(self) -> None:
        """Stop all fetches."""
        await self._tasks.cancel()

    def _kept(self, key: str, wanted: str) -> str:
        """The commit id of `wanted` if it has been fetched, else ""."""
        try:
            found = (self._folder.mirror(key) / "refs" / "keep" / wanted).read_text().strip()
        except FileNotFoundError:
            return ""
        self._folder.used(key)
        return found

    def _address(self, source: GitSource) -> str:
        """The address to give to git.

        Raises:
            RepositoryUnavailable: the settings do not allow it.

        """
        address = self._config.url.replace("{repo}", source.repo) if source.repo else source.url or source.path
        try:
            if address.startswith("/"):
                real = git_address.inside(git_address.checked_path(address), self._config.folders)
                if real is None:
                    raise ValueError("it is in none of the folders that SANDBOX_REPOSITORY_FOLDERS allows")
                if not real.is_dir():
                    raise ValueError("there is no such folder on this host")
                return str(real)
            scheme = git_address.checked_url(address).partition(":")[0]
        except ValueError as e:
            raise RepositoryUnavailable(f"{address} cannot be fetched: {e}") from None
        if scheme not in self._config.protocols:
            allowed = ", ".join(self._config.protocols) or "none"
            raise RepositoryUnavailable(
                f"{address} cannot be fetched: SANDBOX_REPOSITORY_PROTOCOLS allows {allowed}; correct one of the two"
            )
        return address

    async def _bring(self, address: str, key: str, wanted: str) -> None:
        batch = self._gathering.get(key)
        if batch is None:
            batch = self._gathering[key] = _Batch()
            batch.task = self._tasks.start(self._run(address, key, batch), awaited=True)
        batch.wanted.add(wanted)
        assert batch.task is not None
        # a cancelled caller must not cancel the others' fetch
        failures = await asyncio.shield(batch.task)
        if why := failures.get(wanted):
            raise RepositoryUnavailable(f"{address} at {wanted}: {why}")

    async def _run(self, address: str, key: str, batch: _Batch) -> dict[str, str]:
        """Fetch the batch; returns commit -> reason for each that could not be fetched."""
        try:
            await asyncio.sleep(_GATHER_S)
            async with (
                self._slots,
                self._folder.locked(f"{key}.fetch", exclusive=True, timeout_s=self._lock_s) as fetching,
                self._folder.locked(key, exclusive=False, timeout_s=self._lock_s) as using,
            ):
                self._gathering.pop(key)  # later requests go to the next fetch
                missing = [one for one in sorted(batch.wanted) if not await asyncio.to_thread(self._kept, key, one)]
                return await _Attempts(self._config, self._folder, address, key, (fetching, using)).bring(missing)
        except TimeoutError:
            why = "another process fetches it for longer than any fetch may take; look for a git that hangs"
            return dict.fromkeys(batch.wanted, why)
        except OSError as e:
            return dict.fromkeys(batch.wanted, f"its mirror cannot be written: {e}")
        finally:
            if self._gathering.get(key) is batch:
                del self._gathering[key]
            await self._clear(key)

    async def _clear(self, key: str) -> None:
        """Remove the mirror if it holds no commit that may be used; remove others if all take too much space."""
        with suppress(TimeoutError, OSError):
            if not await asyncio.to_thread(self._any_kept, key):
                async with self._folder.locked(key, exclusive=True, timeout_s=_REMOVE_S):
                    if not await asyncio.to_thread(self._any_kept, key):
                        await asyncio.to_thread(self._folder.remove, key)
            taken = await asyncio.to_thread(self._folder.make_room, self._config.max_bytes, key)
            if taken > self._config.max_bytes:
                log.warning("mirrors take more than SANDBOX_REPOSITORIES_MAX_MB; all are in use", mb=taken >> 20)

    def _any_kept(self, key: str) -> bool:
        kept = self._folder.mirror(key) / "refs" / "keep"
        return kept.is_dir() and any(not path.name.endswith(".lock") for path in kept.iterdir())


class _Attempts:
    """The fetch of one repository, while its locks are held."""

    def __init__(
        self, config: MirrorConfig, folder: MirrorFolder, address: str, key: str, held: tuple[int, ...]
    ) -> None:
        self._config = config
        self._folder = folder
        self._address = address
        self._key = key
        self._held = held
        self._mirror = folder.mirror(key)
        self._failures: dict[str, str] = {}

    async def bring(self, wanted: Sequence[str]) -> dict[str, str]:
        """See `Fetch._run`."""
        missing = list(wanted)
        if not missing:
            return {}
        began = time.monotonic()
        await self._make(missing[0])
        attempt, pause_s = 1, self._config.pause_s
        while missing:
            await asyncio.to_thread(self._folder.tidy, self._key)
            try:
                await self._exactly(missing)
                break
            except GitFailed as e:
                log.warning("fetch failed", repository=self._address, attempt=attempt, error=_last(e.said))
                absent = {one for one in (a or b for a, b in _ABSENT.findall(e.said)) if one in missing}
                if absent:
                    self._failures |= dict.fromkeys(absent, "the repository has no such commit; correct the instance")
                    missing = [one for one in missing if one not in absent]
                    continue
                if _ONLY_WHOLE in e.said:
                    missing = await self._whole(missing)
                    continue
                if _FINAL.search(e.said) or attempt >= self._config.attempts:
                    self._failures |= dict.fromkeys(missing, self._why(e, attempt))
                    break
            await asyncio.sleep(pause_s)
            attempt, pause_s = attempt + 1, 2 * pause_s
        await asyncio.to_thread(self._folder.tidy, self._key)
        got = len(wanted) - len(self._failures)
        size = await asyncio.to_thread(tree_size, self._mirror)
        log.info(
            "repository fetched",
            repository=self._address,
            commits=got,
            failed=len(self._failures),
            mb=size >> 20,
            seconds=round(time.monotonic() - began, 2),
        )
        return self._failures

    def _why(self, failure: GitFailed, attempts: int) -> str:
        tried = f"{attempts} attempts failed; " if attempts > 1 else ""
        what = "correct the instance, or mirror it into a folder of SANDBOX_REPOSITORY_FOLDERS if it is not public"
        return f"{tried}{_last(failure.said)}; {what}"

    async def _make(self, wanted: str) -> None:
        if await asyncio.to_thread((self._mirror / "HEAD").is_file):
            return
        fresh = self._mirror.with_name(f".new-{self._key}-{time.monotonic_ns()}")
        words = ["init", "-q", "--bare", f"--object-format={'sha256' if len(wanted) == 64 else 'sha1'}", str(fresh)]
        await self._git(words, cwd=self._folder.root, timeout_s=60.0)
        await asyncio.to_thread((fresh / "address").write_text, self._address + "\n")
        await asyncio.to_thread((fresh / "used").touch)
        with suppress(FileNotFoundError):
            await asyncio.to_thread(fresh.rename, self._mirror)

    async def _exactly(self, wanted: Sequence[str]) -> None:
        depth = _ALL if self._key.endswith("-history") else "1"
        refs = "".join(f"+{one}:refs/keep/{one}\n" for one in wanted)
        await self._fetch([f"--depth={depth}", "--stdin"], refs)

    async def _whole(self, wanted: Sequence[str]) -> list[str]:
        """Fetch all branches and tags, since the server gives no commit by id; returns [] (nothing left to fetch)."""
        refs = "+refs/heads/*:refs/all/heads/*\n+refs/tags/*:refs/all/tags/*\n"
        if _HEAD in wanted:
            refs += f"+{_HEAD}:refs/keep/{_HEAD}\n"
        try:
            await self._fetch([f"--depth={_ALL}", "--stdin"], refs)
        except GitFailed as e:
            self._failures |= dict.fromkeys(wanted, self._why(e, 1))
            return []
        for commit in wanted:
            if commit == _HEAD:
                continue
            try:
                await self._git(["cat-file", "-e", f"{commit}^{{commit}}"], cwd=self._mirror, timeout_s=60.0)
                await self._git(["update-ref", f"refs/keep/{commit}", commit], cwd=self._mirror, timeout_s=60.0)
            except GitFailed:
                self._failures[commit] = "no branch or tag of the repository leads to it; correct the instance"
        return []

    async def _fetch(self, options: Sequence[str], refs: str) -> None:
        before = await asyncio.to_thread(tree_size, self._mirror)
        most = self._config.max_bytes
        # If git outlives this process, and so its limits, it must end by itself once the server sends nothing.
        slow = ["-c", "http.lowSpeedLimit=1", "-c", f"http.lowSpeedTime={math.ceil(self._config.silence_s) + 5}"]
        await self._git(
            [*slow, "fetch", *_FETCH, *options, "--", self._address],
            cwd=self._mirror,
            timeout_s=self._config.fetch_timeout_s,
            stdin=refs.encode(),
            objection=lambda: _TOO_LARGE if before + self._folder.growing(self._key) > most else "",
            silence_s=self._config.silence_s,
        )

    async def _git(self, words: Sequence[str], *, cwd: Path, timeout_s: float, **more: object) -> bytes:
        spoken = ("file",) if self._address.startswith("/") else self._config.protocols
        env = await asyncio.to_thread(environment, self._folder.home, spoken)
        return await run_git(words, cwd=cwd, env=env, timeout_s=timeout_s, held=self._held, **more)  # type: ignore[arg-type]


def _last(said: str) -> str:
    """The most telling line: git's first complaint, else its last line."""
    lines = [line.strip() for line in said.replace("\r", "\n").splitlines() if line.strip()]
    return next((line for line in lines if line.startswith(("fatal:", "error:", "remote: "))), lines[-1])[-300:]
