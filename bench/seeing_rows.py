"""Rows of a service that has run for eight days, made by the database itself: the same in SQLite and PostgreSQL.

Sessions are evenly distributed over the days. Eight in a row are a group; 2,000 instances take turns, four runs a day.
Each action has words that all have, and one of 20 tools, 2,000 files and 200,000 symbols: frequent, seldom and rare.
"""

import time

from sqlalchemy import text

from sandbox_server.catalogue.database import Database
from sandbox_server.catalogue.instance import SandboxSpec, TaskInstance
from sandbox_server.catalogue.instances import Instances

DAYS = 8
ACTIONS = 10
"""Of each session."""
LONG = 100
"""One session in so many has observations of 60 lines and a patch, the others' have four lines and none."""
FIRST = 10**9
"""The sid of session 0."""
LAST_RUN = f"run-{4 * DAYS - 3}"
"""One of the last day's."""
WORDS = {"tool": 20, "file": 2_000, "symbol": 200_000}
"""Kind of word -> how many different ones: `file_7` is one."""
_INSTANCES = 2_000
_BATCH = 50_000

_COMMON = ("ls", "la", "an", "observation", "with", "31mcolours", "0m", "and", "tags")
_CALL = "ls -la\n" * 10
_LINE = "an observation with \x1b[31mcolours\x1b[0m and <tags>\n"
_NUMBERS = (
    "WITH RECURSIVE numbers(n) AS (SELECT CAST({begin} AS BIGINT) UNION ALL"
    " SELECT n + 1 FROM numbers WHERE n + 1 < {end})"
)
_SID = f"CAST({FIRST} + n AS VARCHAR(40))"
_INSTANCE = f"'bench__task-' || (n / 8 % {_INSTANCES})"
_NUMBER = f"(n * {ACTIONS} + seq)"
_SOME = [f"'{word}_' || ({_NUMBER} * 48271 % 2147483647 % {of})" for word, of in WORDS.items()]
_DRAWN = "(n * 104729 % 100)"  # 0 to 99, each once in a hundred sessions
_NAME = (
    f"CASE WHEN {_DRAWN} < 35 THEN 'resolved' WHEN {_DRAWN} < 85 THEN 'unresolved'"
    f" WHEN {_DRAWN} < 95 THEN 'empty_patch' WHEN {_DRAWN} < 98 THEN 'timeout' ELSE 'infra' END"
)
_RUN = f"'run-' || (n * {DAYS} / {{sessions}} * 4 + n / 8 % 4)"
_LASTED = "(60.0 + n * 7919 % 541)"

_SESSIONS = f"""
INSERT INTO sessions (sid, state, instance_id, node, container_id, created_at, touched_at, deadline, shell_token, cwd,
                      talk_turns, actions, ended_at, end_reason, cause, timings_s, run)
{_NUMBERS}
SELECT {_SID}, 'ended', {_INSTANCE}, 'n1', '{"c" * 64}', {{ended}} - {_LASTED}, {{ended}}, {{ended}}, '', {{empty}},
       0, {ACTIONS}, {{ended}}, 'postprocess', {{empty}},
       '{{{{"start_queue": 0.' || (100 + n * 31 % 900) || ', "start_container": 0.3, "action_run": ' || (n * 17 % 30)
       || ', "end_patch": 0.4}}}}',
       {_RUN}
FROM numbers
"""
_VERDICTS = f"""
INSERT INTO verdicts (sid, instance_id, name, mask, grade_key, reward, reward_name, receipt, graded_at, body,
                      cause_kind, queue_s, grade_s, tripwires, run, began_at)
{_NUMBERS}, named AS (SELECT n, {_NAME} AS name FROM numbers)
SELECT {_SID}, {_INSTANCE}, name, name = 'infra', {_SID}, CASE WHEN name = 'resolved' THEN 1.0 ELSE 0.0 END, 'f',
       'r' || {_SID}, {{ended}} + 20,
       '{{{{"name": "' || name || '", "mask": ' || CASE WHEN name = 'infra' THEN 'true' ELSE 'false' END
       || ', "cause": "engine_unavailable: no answer", "log_tail": "{"a line of a test log " * 100}"}}}}',
       CASE WHEN name = 'infra' THEN 'engine_unavailable' ELSE '' END, 1.0, 19.0, '{{{{}}}}',
       {_RUN}, {{ended}} - {_LASTED}
FROM named
"""
_TURNS = f"turns(seq) AS (VALUES {', '.join(f'({seq})' for seq in range(1, ACTIONS + 1))})"
_ACTIONS = f"""
INSERT INTO actions (sid, seq, content, observation, tool, outcome, exit_code, started_at, duration_s, idempotency_key)
{_NUMBERS}, {_TURNS}
SELECT {_SID}, seq, {{bytes_of}}({" || ' ' || ".join(_SOME)} || '\n{_CALL}'{{end_of_bytes}}),
       CASE WHEN n % {LONG} = 0 THEN {{long}} ELSE {{short}} END, 'execute_bash', 'ok', 0,
       {{ended}} - {_LASTED} + seq, 0.5, {{empty}}
FROM numbers CROSS JOIN turns
"""
_INDEX = f"""
INSERT INTO action_index (id, sid, seq{{words_too}})
{_NUMBERS}, {_TURNS}
SELECT {_NUMBER}, {_SID}, seq{{words}}
FROM numbers CROSS JOIN turns
"""
_WORDS = {
    # SQLite's are in a table of their own
    True: f"""
INSERT INTO action_words (rowid, words)
{_NUMBERS}, {_TURNS}
SELECT {_NUMBER}, '{" ".join(_COMMON)} ' || {" || ' ' || ".join(_SOME)}
FROM numbers CROSS JOIN turns
""",
    False: f", array_to_tsvector(ARRAY[{', '.join([repr(word) for word in _COMMON] + _SOME)}])",
}
_PATCHES = f"""
INSERT INTO patches (sid, instance_id, diff, cause, base_commit, captured_at, sha256)
{_NUMBERS}
SELECT {_SID}, {_INSTANCE}, {{diff}}, {{empty}}, 'b', {{ended}}, 's' FROM numbers WHERE n % {LONG} = 0
"""


async def fill(database: Database, sessions: int) -> None:
    """`sessions` ended sessions with ten searchable actions and a verdict each, one in a hundred with a patch."""
    image = SandboxSpec(images=("image:latest",))
    tasks = [TaskInstance(instance_id=f"bench__task-{n}", repo="a/b", sandbox=image) for n in range(_INSTANCES)]
    await Instances(database).add(tasks)
    first = time.time() - DAYS * 86_400
    known = {
        "sessions": sessions,
        "ended": f"({first} + n * {DAYS * 86_400.0 / sessions})",
        "empty": _bytes(database, ""),
        "short": _bytes(database, _LINE * 4),
        "long": _bytes(database, _LINE * 60),
        "diff": _bytes(database, "+a line\n" * 200),
    }
    sqlite = database.is_sqlite
    known |= {
        "bytes_of": "CAST" if sqlite else "convert_to",
        "end_of_bytes": " AS BLOB" if sqlite else ", 'UTF8'",
        "words_too": "" if sqlite else ", words",
        "words": "" if sqlite else _WORDS[False],
    }
    statements = [_SESSIONS, _VERDICTS, _ACTIONS, _PATCHES, _INDEX, *([_WORDS[True]] if sqlite else [])]
    for begin in range(0, sessions, _BATCH):
        values = {**known, "begin": begin, "end": min(begin + _BATCH, sessions)}
        async with database.writing() as connection:
            for statement in statements:
                await connection.exec_driver_sql(statement.format(**values))
        print(f"{values['end']:,} of {sessions:,} sessions", flush=True)
    if not database.is_sqlite:  # autovacuum does both within minutes
        async with database.reading() as connection:
            await connection.execute(text("VACUUM ANALYZE"))


def _bytes(database: Database, value: str) -> str:
    """A literal of bytes."""
    digits = value.encode().hex()
    return f"X'{digits}'" if database.is_sqlite else f"'\\x{digits}'::bytea"
