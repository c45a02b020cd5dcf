"""The reward of a patch that was graded for another session."""

from typing import Any

from sqlalchemy import event

from sandbox_server.app.build import open_server
from sandbox_server.records import VerdictName
from sandbox_server.settings import Settings

from .test_session_ends import ACTION, LEDGER


async def test_the_reward_of_a_known_patch_takes_two_statements(settings: Settings) -> None:
    """Each statement and hop waits for a thread while containers are removed beside it: 19 ms where 6 are enough."""
    async with open_server(settings) as server:
        sessions = server.sessions.service
        first, second = [await sessions.start(LEDGER) for _ in range(2)]
        for sid in (first, second):
            await sessions.act(sid, ACTION)
        await sessions.postprocess(first)
        known = (await sessions.reward(first)).verdict
        said: list[str] = []

        def note(connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
            if second in str(parameters):  # loops of the server ask for others too
                said.append(" ".join(statement.split()))

        database = server.foundation.database
        for engine in (database._apart, database._engine.sync_engine):
            event.listen(engine, "before_cursor_execute", note)
        await sessions.postprocess(second)
        verdict = (await sessions.reward(second)).verdict
        about = [statement for statement in said if "verdicts" in statement or "receipts" in statement]
        assert [statement.split(" (")[0] for statement in about] == ["INSERT INTO verdicts", "INSERT INTO receipts"]
        assert (known.name, verdict.timings_s["tests"]) == (VerdictName.UNRESOLVED, known.timings_s["tests"])
