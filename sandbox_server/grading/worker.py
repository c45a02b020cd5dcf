"""The process that imports swebench's heavy half (1 to 3 s, 170 MB), so that the API process need not.

JSON lines: a request `{"op", "row", "bound_s", ...}` on stdin, one reply `{"ok": ...}` or `{"error": text}` on
stdout. Ends at the end of stdin, thus with its parent. Run by its path in isolated mode, so it imports nothing of ours.
"""

import functools
import importlib
import importlib.metadata
import json
import os
import signal
import sys
import tempfile
from typing import Any

Fields = dict[str, Any]


@functools.cache
def _library(module: str) -> Any:
    # Imported at the first request: what the library prints, or fails with, must find stdout already moved away.
    return importlib.import_module(f"swebench.harness.{module}")


def _spec(row: Fields) -> Any:
    parsers = _library("log_parsers").PARSER_REGISTRY
    if row["log_parser"] not in parsers:
        raise LookupError(f"swebench knows no log parser {row['log_parser']!r}")
    return _library("utils").make_test_spec(row)


def script(request: Fields) -> Fields:
    """The text to run: the row's script, with the test command's exit code recorded as the library does."""
    return {"script": _spec(request["row"]).eval_script}


def report(request: Fields) -> Fields:
    """The library's verdict on a log, and the facts that explain why there may be none."""
    row, log = request["row"], request["log"]
    grading, constants = _library("grading"), _library("constants")
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", errors="replace", newline="", suffix=".log") as file:
        file.write(log)
        file.flush()
        # The patch exists: only None or not None is looked at here, and the empty one never comes this far.
        prediction = {"instance_id": row["instance_id"], "model_patch": "applied"}
        found = grading.get_eval_report(_spec(row), prediction, file.name, include_tests_status=True)
    return {
        "report": found[row["instance_id"]],
        "started": constants.START_TEST_OUTPUT in log,
        "ended": constants.END_TEST_OUTPUT in log,
        "exit_code": grading.parse_test_exit_code(log),
        "version": importlib.metadata.version("swebench"),
    }


_OPS = {"script": script, "report": report}


def _answer(line: bytes) -> Fields:
    request = json.loads(line)
    # The signal's default action ends the process even inside a regular expression that never returns.
    signal.setitimer(signal.ITIMER_REAL, request["bound_s"])
    try:
        return {"ok": _OPS[request["op"]](request)}
    except Exception as error:  # noqa: BLE001 - any fault of the library is the reply, not the end of the worker
        return {"error": f"{type(error).__name__}: {error}"}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def main() -> None:
    """Serve until stdin ends."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever the library prints goes to stderr, not between the replies
    for line in sys.stdin.buffer:
        replies.write(json.dumps(_answer(line)).encode() + b"\n")
        replies.flush()


if __name__ == "__main__":
    main()
