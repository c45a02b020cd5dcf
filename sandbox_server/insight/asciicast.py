"""Writes a session as an asciicast, a recording that asciinema plays. Pure.

Text of the policy is made harmless: of its escape sequences only colours are kept.

Source: docs.asciinema.org/manual/asciicast/v3.
"""

import json
from collections.abc import Iterable, Iterator

from sandbox_server.insight.sanitize import coloured, plain
from sandbox_server.records import ActionRecord, SessionRecord

_COLS, _ROWS = 120, 36
_IDLE_S = 2.0
"""Players shorten longer pauses, mostly the model's, to this many seconds."""


def head(record: SessionRecord) -> str:
    """The header line of the recording."""
    title = plain(f"session {record.sid}: {record.instance_id} in {record.run or '(no run)'}")
    term = {"cols": _COLS, "rows": _ROWS, "type": "xterm-256color"}
    told = {"version": 3, "term": term, "timestamp": int(record.created_at), "idle_time_limit": _IDLE_S, "title": title}
    return json.dumps(told) + "\n"


def events(actions: Iterable[ActionRecord], last: float) -> Iterator[tuple[str, float]]:
    """Yield (event lines, time of the last one) of each action; `last`: time of the event before the first one."""
    for one in actions:
        began, ended = max(last, one.started_at), max(last, one.started_at + one.duration_s)
        name = plain(one.tool) or "none"
        call = f"\x1b[1m#{one.seq} {name}\x1b[0m\n\x1b[36m{plain(one.content)}\x1b[0m\n"
        status = "" if one.exit_code is None else f"\x1b[2mexit {one.exit_code}\x1b[0m\n"
        lines = (
            _event(began - last, "m", f"{one.seq} {name}"),
            _event(0.0, "o", call),
            _event(ended - began, "o", f"{coloured(one.observation)}\x1b[0m\n{status}\n"),
        )
        last = ended
        yield "".join(lines), last


def _event(after_s: float, code: str, text: str) -> str:
    return json.dumps([round(after_s, 6), code, text.replace("\n", "\r\n") if code == "o" else text]) + "\n"
