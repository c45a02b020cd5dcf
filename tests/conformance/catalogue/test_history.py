"""The history of sessions, on each database."""

import asyncio
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox_server.catalogue.database import Database
from sandbox_server.catalogue.history import History
from sandbox_server.catalogue.tables import PolicyText
from sandbox_server.errors import UnknownReceipt
from sandbox_server.records import ActionRecord, PatchRecord, SessionRecord
from sandbox_server.verdicts import GradedSession, Verdict, VerdictName

SESSION = SessionRecord(
    sid="9007199254740991",
    state="live",
    instance_id="a__b-1",
    node="n1",
    container_id="c" * 64,
    created_at=1754000000.123456,
    touched_at=1754000001.5,
    deadline=1754014400.0,
    cwd="/tmp/\0\ud800é",
    talk_turns=2,
    actions=3,
    timings_s={"start_create": 0.25, "action_run": 1e-05},
)
ACTION = ActionRecord(
    sid=SESSION.sid,
    seq=1,
    content="é\0\ud800",
    observation="o" * 30_000,
    tool="execute_bash",
    outcome="finished",
    exit_code=None,
    started_at=1754000001.25,
    duration_s=0.001,
    idempotency_key="k",
)
PATCH = PatchRecord(
    sid=SESSION.sid,
    instance_id="a__b-1",
    diff=b"\x00\xff diff",
    cause="",
    base_commit="f" * 40,
    captured_at=1754000002.0,
    sha256="0" * 64,
)
VERDICT = Verdict(
    name=VerdictName.UNRESOLVED,
    mask=False,
    cause="1 of 2 tests fail.",
    f2p_count=1,
    f2p_total=2,
    f2p_failed=("t[\0\ud800]",),
    runner_files=("conftest.py",),
    exit_code=1,
    versions={"swebench": "5.0.2"},
    timings_s={"total": 1.5},
    log_tail="\0\ud800\x1b[0m",
)
GRADED = GradedSession(
    sid=SESSION.sid,
    instance_id="a__b-1",
    verdict=VERDICT,
    reward=0.5,
    reward_name="f2p_fraction",
    receipt="r1",
    graded_at=1754000003.0,
)


@pytest.fixture
def history(database: Database) -> History:
    return History(database)


async def test_sessions_come_back_as_they_were(history: History) -> None:
    """If Redis comes back empty, this is the only record of a live session."""
    assert await history.session(SESSION.sid) is None
    await history.save_session(SESSION)
    assert await history.session(SESSION.sid) == SESSION
    later = replace(SESSION, touched_at=1754000009.0, cwd="/", actions=4)
    await history.save_session(later)
    assert await history.session(SESSION.sid) == later


async def test_an_ended_session_is_not_revived(history: History) -> None:
    """A write of the live session that arrives late must not make the reaper look for its container again."""
    ended = replace(SESSION, state="ended", ended_at=1754000005.0, end_reason="postprocess")
    await history.save_session(ended)
    await history.save_session(SESSION)
    assert await history.session(SESSION.sid) == ended
    lost = replace(ended, cause="seen again")
    await history.save_session(lost)
    assert await history.session(SESSION.sid) == lost


async def test_sessions_are_listed_newest_first(history: History) -> None:
    """`sessions list` and a restart both ask by state and node."""
    for number, (state, node) in enumerate([("live", "n1"), ("live", "n2"), ("ended", "n1")]):
        await history.save_session(replace(SESSION, sid=str(number), state=state, node=node, created_at=float(number)))
    assert [it.sid for it in await history.sessions()] == ["2", "1", "0"]
    assert [it.sid for it in await history.sessions(state="live")] == ["1", "0"]
    assert [it.sid for it in await history.sessions(state="live", node="n1")] == ["0"]
    assert [it.sid for it in await history.sessions(limit=1)] == ["2"]


async def test_the_journal_takes_a_batch_twice(history: History) -> None:
    """The flush to SQL repeats a batch when the server dies between commit and acknowledgement."""
    batch = [replace(ACTION, seq=seq, idempotency_key="") for seq in (2, 1, 3)]
    await history.add_actions([])
    await history.add_actions(batch)
    await history.add_actions([replace(batch[0], observation="another"), replace(ACTION, seq=4)])
    journal = await history.actions(ACTION.sid)
    assert journal == [*sorted(batch, key=lambda action: action.seq), replace(ACTION, seq=4)]
    assert await history.actions("1") == []


@given(content=st.text(st.characters(codec=None)), observation=st.text(st.characters(codec=None)))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_of_a_policy_is_kept(content: str, observation: str) -> None:
    """NUL, lone surrogates, anything JSON can carry; the column type must neither refuse nor change it."""
    column = PolicyText()
    for text in (content, observation):
        stored = column.process_bind_param(text, None)  # type: ignore[arg-type]
        assert column.process_result_value(stored, None) == text  # type: ignore[arg-type]


async def test_a_verdict_is_one_turn_of_sqlites_thread(history: History, database: Database) -> None:
    """Each turn waits for the thread and for the loop, under load some ms each, and a reward waits for all of them."""
    if not database.is_sqlite:
        pytest.skip("PostgreSQL has no thread")
    await history.save_graded(replace(GRADED, sid="1"), {}, "key")  # the first one opens the connection
    loop = asyncio.get_running_loop()
    turns = []
    with pytest.MonkeyPatch.context() as patching:
        back = loop.call_soon_threadsafe
        patching.setattr(loop, "call_soon_threadsafe", lambda *args, **how: turns.append(args) or back(*args, **how))
        await history.save_graded(GRADED, {}, "key")
        assert await history.verdict_by_key("key") is not None
        await history.add_actions([ACTION])
    assert len(turns) == 3


async def test_the_first_patch_wins(history: History) -> None:
    """Two replicas that end one session at once must grade the same patch."""
    assert await history.patch(SESSION.sid) is None
    assert await history.save_patch(PATCH) == PATCH
    assert await history.save_patch(replace(PATCH, diff=b"", cause="late")) == PATCH
    assert await history.patch(SESSION.sid) == PATCH
    nothing = replace(PATCH, sid="1", diff=None, sha256="", cause=".git is gone: \0")
    assert await history.save_patch(nothing) == nothing
    empty = replace(PATCH, sid="2", diff=b"")
    assert (await history.save_patch(empty)).diff == b""


async def test_many_savers_of_one_patch_agree(history: History) -> None:
    """The same under load: every caller is told the one patch that stands."""
    saved = await asyncio.gather(*(history.save_patch(replace(PATCH, diff=bytes([n]))) for n in range(20)))
    assert len({it.diff for it in saved}) == 1


async def test_verdicts_come_back_as_they_were(history: History) -> None:
    """A reward asked for a week later must be the one given first, with every name and count."""
    assert await history.graded(SESSION.sid) is None
    assert await history.save_graded(GRADED, {"patch": "\ud800", "versions": {"a": "1"}}, "key") == GRADED
    assert await history.graded(SESSION.sid) == GRADED
    assert await history.receipt("r1") == {"patch": "\ud800", "versions": {"a": "1"}}
    with pytest.raises(UnknownReceipt):
        await history.receipt("r2")


async def test_only_an_infra_verdict_is_replaced(history: History) -> None:
    """A second grading must correct a fault of the service but not change a reward that was given."""
    infra = replace(GRADED, verdict=Verdict(VerdictName.INFRA, True, "The daemon died."), reward=0.0, receipt="r0")
    assert await history.save_graded(infra, {}, "key") == infra
    assert await history.save_graded(GRADED, {}, "key") == GRADED
    resolved = replace(GRADED, verdict=replace(VERDICT, name=VerdictName.RESOLVED), reward=1.0, receipt="r2")
    assert await history.save_graded(resolved, {"late": True}, "key") == GRADED
    assert await history.save_graded(infra, {}, "key") == GRADED
    assert await history.receipt("r2") == {"late": True}  # it did happen


async def test_verdicts_are_shared_by_key_unless_masked(history: History) -> None:
    """A twin's verdict saves a grading; a twin's accident must not become this session's."""
    masked = replace(GRADED, verdict=replace(VERDICT, name=VerdictName.TIMEOUT, mask=True))
    await history.save_graded(masked, {}, "key")
    assert await history.verdict_by_key("key") is None
    await history.save_graded(replace(GRADED, sid="1", receipt="r2"), {}, "key")
    assert await history.verdict_by_key("key") == VERDICT
    assert await history.verdict_by_key("other") is None


async def test_gradings_in_flight_are_found_after_a_restart(history: History) -> None:
    """Each of these would otherwise stay `pending` until its reward request gives up."""
    ended = replace(SESSION, state="ended", ended_at=5.0)
    for sid in ("graded", "waiting", "infra", "elsewhere", "no patch"):
        await history.save_session(replace(ended, sid=sid, node="n2" if sid == "elsewhere" else "n1"))
        if sid != "no patch":
            await history.save_patch(replace(PATCH, sid=sid))
    await history.save_session(replace(SESSION, sid="live"))
    await history.save_patch(replace(PATCH, sid="live"))
    await history.save_graded(replace(GRADED, sid="graded"), {}, "key")
    broken = Verdict(VerdictName.INFRA, True, "The daemon died.")
    await history.save_graded(replace(GRADED, sid="infra", receipt="r2", verdict=broken), {}, "key")
    assert await history.ungraded("n1") == ["waiting"]
    assert sorted(await history.ungraded()) == ["elsewhere", "waiting"]
    assert await history.ungraded(started_after=SESSION.created_at) == []
    assert await history.ungraded(ended_before=1.0) == []
    assert len(await history.ungraded(limit=1)) == 1


async def test_many_writers_at_once(history: History) -> None:
    """More sessions at once than either database has connections; each write must come through, whole."""

    async def live(number: int) -> None:
        record = replace(SESSION, sid=str(number))
        await history.save_session(record)
        await history.add_actions([replace(ACTION, sid=str(number), seq=seq) for seq in range(1, 6)])
        await history.save_patch(replace(PATCH, sid=str(number)))
        await history.save_graded(replace(GRADED, sid=str(number), receipt=f"r{number}"), {}, f"k{number}")

    await asyncio.gather(*(live(number) for number in range(100)))
    assert len(await history.sessions(limit=1000)) == 100
    assert len(await history.actions("99")) == 5
    assert (await history.graded("0")) == replace(GRADED, sid="0", receipt="r0")
