"""A session's grading container is made while the session ends; whatever becomes of the end, it does not stay."""

import asyncio

import pytest

from sandbox_server.app.build import build, open_runtime
from sandbox_server.errors import CatalogueUnavailable
from sandbox_server.records import VerdictName
from sandbox_server.sandbox.base import Role, Runtime
from sandbox_server.sessions.service import SessionService
from sandbox_server.settings import Settings

from .test_session_ends import ACTION, LEDGER, service

FINISH = "<function=finish>\n</function>"


async def gradings(runtime: Runtime) -> list[str]:
    """Sids that grading containers are for."""
    return [container.sid for container in await runtime.list() if container.role is Role.GRADE]


async def until(sessions: SessionService, sids: list[str]) -> None:
    """Wait until the grading containers are those of `sids`."""
    for _ in range(1200):
        if await gradings(sessions._ending._runtime) == sids:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{await gradings(sessions._ending._runtime)} instead of {sids} after 60 s")


async def finished(sessions: SessionService) -> str:
    """A session that has changed something and said `finish`; its grading container is there."""
    sid = await sessions.start(LEDGER)
    await sessions.act(sid, ACTION)
    await sessions.act(sid, FINISH)
    await until(sessions, [sid])
    return sid


async def test_used_and_removed(settings: Settings) -> None:
    """The verdict waits for nothing but the tests; the receipt tells each stage."""
    async with build(settings) as parts:
        sessions = parts.sessions
        assert isinstance(sessions, SessionService)
        sid = await finished(sessions)
        answer = await sessions.reward(sid)
        assert answer.verdict.name is VerdictName.UNRESOLVED
        await until(sessions, [])
        timings_s = (await parts.receipts.receipt(answer.receipt))["timings_s"]
        assert isinstance(timings_s, dict)
        assert {"queue", "create", "setup", "apply", "tests", "parse", "store", "total"} <= timings_s.keys()
        assert all(isinstance(seconds, float) and seconds >= 0 for seconds in timings_s.values())


async def test_the_next_action_after_finish_still_runs(settings: Settings) -> None:
    """`finish` ends nothing: what is done after it is graded too."""
    async with service(settings) as sessions:
        sid = await finished(sessions)
        await sessions.act(sid, ACTION.replace("x.txt", "y.txt"))
        assert (await sessions.reward(sid)).verdict.patch_applied
        assert b"+++ b/y.txt" in ((await sessions.patch(sid)).diff or b"")
        await until(sessions, [])


async def test_a_lost_session(settings: Settings) -> None:
    """There is no patch that could use it."""
    async with service(settings) as sessions:
        sid = await finished(sessions)
        await sessions._ending._runtime.remove((await sessions.view(sid)).record.container_id)
        assert (await sessions.act(sid, ACTION)).error_code == "sandbox_lost"
        await until(sessions, [])
        assert (await sessions.reward(sid)).verdict.name is VerdictName.INFRA


async def test_an_end_that_fails(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next try makes another; this one must not wait for it."""
    async with service(settings) as sessions:
        sid = await finished(sessions)
        with monkeypatch.context() as broken:

            async def unavailable(*_: object) -> None:
                raise CatalogueUnavailable("the disk is full")

            broken.setattr(sessions._history, "save_patch", unavailable)
            with pytest.raises(CatalogueUnavailable):
                await sessions.postprocess(sid)
        await until(sessions, [])
        assert (await sessions.reward(sid)).verdict.name is VerdictName.UNRESOLVED


async def test_an_unchanged_tree(settings: Settings) -> None:
    """An empty patch is not run."""
    async with service(settings) as sessions:
        sid = await sessions.start(LEDGER)
        await sessions.act(sid, FINISH)
        await until(sessions, [sid])
        assert (await sessions.reward(sid)).verdict.name is VerdictName.EMPTY_PATCH
        await until(sessions, [])


async def test_a_server_that_stops(settings: Settings) -> None:
    """Stopping leaves nothing to the next server's reaper."""
    async with service(settings) as sessions:
        sid = await finished(sessions)
    async with open_runtime(settings) as runtime:
        assert await gradings(runtime) == []
    async with service(settings) as sessions:
        assert (await sessions.reward(sid)).verdict.name is VerdictName.UNRESOLVED


async def test_an_identical_patch_is_answered_without_a_container(settings: Settings) -> None:
    """Sixteen samples of one instance that end in the same patch cost one run."""
    async with service(settings) as sessions:
        first, second = await sessions.start(LEDGER), await sessions.start(LEDGER)
        for sid in (first, second):
            await sessions.act(sid, ACTION)
        one = await sessions.reward(first)
        two = await sessions.reward(second)
        assert two.verdict == one.verdict
        assert two.receipt != one.receipt
        await until(sessions, [])


async def test_the_librarys_worker_starts_with_the_first_session_that_needs_it(settings: Settings) -> None:
    """Its 170 MB where no instance is graded by it; its seconds in the first verdict where one is."""
    async with service(settings) as sessions:
        library = sessions._rewards._queue._grading._graders["swebench"]._library  # type: ignore[attr-defined]  # of this grader alone
        script = await sessions.start("samples__timespan-7")
        await asyncio.sleep(0.2)
        assert library._worker is None
        await sessions.start(LEDGER)
        await asyncio.gather(*sessions._rewards._later)
        assert library._worker is not None and library._worker.process.returncode is None
        await sessions.close(script)
