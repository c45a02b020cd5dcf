"""A small kernel gateway for e2b-code-interpreter: Python in the standard library alone, one execution at a time.

Runs in a sandbox, on the port that E2B's SDK asks (49999): POST /execute streams lines of JSON, POST /contexts makes a
namespace of its own. As in Jupyter, lines `!command` and `%pip ...` run in a shell, a cell may await, `display` and
objects with `_repr_png_` and the like show more than text, and figures of matplotlib are shown at the end of their
cell. A template with Jupyter in place of it can do more: other languages, charts as data, interrupts.
"""

import ast
import asyncio
import base64
import contextlib
import inspect
import io
import json
import os
import re
import subprocess
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT = 49999
_ONE = threading.Lock()
_SHOWN = ("html", "markdown", "svg", "png", "jpeg", "pdf", "latex", "json", "javascript")
_SHELL_LINE = re.compile(r"^(\s*)(?:!|%(?=pip\b))(.+)$", re.MULTILINE)


def parsed(code: str) -> ast.Module:
    """The code's tree; lines for a shell become calls. Raises SyntaxError."""
    try:
        return ast.parse(code)
    except SyntaxError:
        calls = _SHELL_LINE.sub(lambda line: f"{line[1]}__shell__({line[2]!r})", code)
        if calls == code:
            raise
        return ast.parse(calls)


def shell(command: str) -> None:
    """Print what the command prints; its failure is no error, as in Jupyter."""
    words = ["/bin/bash", "-c", command]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as run:
        for line in run.stdout or ():
            print(line, end="")


def shown(value: object) -> dict[str, object]:
    """The fields of a result: the value as text, and as what its `_repr_*_` methods make of it."""
    found: dict[str, object] = {"text": repr(value)}
    if isinstance(value, type):
        return found
    for name in _SHOWN:
        made = getattr(value, f"_repr_{name}_", lambda: None)()
        made = made[0] if isinstance(made, tuple) else made  # with metadata
        if made:
            found[name] = base64.b64encode(made).decode() if isinstance(made, bytes) else made
    return found


def figures() -> list[dict[str, object]]:
    """The open figures of matplotlib, if the code uses it; they are closed."""
    if (pyplot := sys.modules.get("matplotlib.pyplot")) is None:
        return []
    found = []
    for number in pyplot.get_fignums():
        drawn = io.BytesIO()
        figure = pyplot.figure(number)
        figure.savefig(drawn, format="png", bbox_inches="tight")
        found.append({"text": repr(figure), "png": base64.b64encode(drawn.getvalue()).decode()})
    pyplot.close("all")
    return found


class Context:
    """A namespace in which code runs, with its working directory."""

    def __init__(self, cwd: str) -> None:
        self.id = str(uuid.uuid4())
        self.cwd = cwd
        self.count = 0
        self.loop = asyncio.new_event_loop()
        self.restart()

    def restart(self) -> None:
        """Forget all names."""
        self.names: dict[str, object] = {"__name__": "__main__", "__shell__": shell}

    def run(self, code: str, tell: Callable[[dict[str, object]], None]) -> None:
        """Run the code and tell its output, the value of its last expression, its error."""
        self.count += 1

        def display(*values: object) -> None:
            for value in values:
                tell({"type": "result", "is_main_result": False, **shown(value)})

        self.names["display"] = display
        try:
            tree = parsed(code)
            last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
            self._evaluate(tree, "exec")
            value = None if last is None else self._evaluate(ast.Expression(last.value), "eval")
            if value is not None:
                tell({"type": "result", "is_main_result": True, **shown(value)})
            for figure in figures():
                tell({"type": "result", "is_main_result": False, **figure})
        except BaseException as error:  # noqa: BLE001 -- the code's own, SystemExit included; it ends the cell alone
            told = traceback.format_exc()
            tell({"type": "error", "name": type(error).__name__, "value": str(error), "traceback": told})
        tell({"type": "number_of_executions", "execution_count": self.count})

    def _evaluate(self, tree: ast.Module | ast.Expression, mode: str) -> object:
        cell = compile(tree, "<cell>", mode, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        value = eval(cell, self.names)  # noqa: S307 -- to run what it is sent is its purpose
        awaits = cell.co_flags & inspect.CO_COROUTINE
        return self.loop.run_until_complete(value) if awaits else value


class Printed(io.TextIOBase):
    """A stream whose text is told by lines, or when it is flushed."""

    def __init__(self, name: str, tell: Callable[[dict[str, object]], None]) -> None:
        self._name, self._tell, self._kept = name, tell, ""

    def write(self, text: str) -> int:
        """Tell all whole lines."""
        self._kept += text
        whole = self._kept.rfind("\n") + 1
        self._say(whole)
        return len(text)

    def flush(self) -> None:
        """Tell the rest."""
        self._say(len(self._kept))

    def _say(self, length: int) -> None:
        text, self._kept = self._kept[:length], self._kept[length:]
        if text:
            self._tell({"type": self._name, "text": text, "timestamp": time.time_ns()})


CONTEXTS: dict[str, Context] = {}
DEFAULT = Context(os.path.expanduser("~"))


class Gateway(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """GET /health, for the template's ready command; GET /contexts."""
        shown = [self._shown(context) for context in CONTEXTS.values()]
        self._answer(200, shown if self.path == "/contexts" else "OK")

    def do_POST(self) -> None:
        """POST /execute, /contexts."""
        asked = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        if (asked.get("language") or "python") != "python":
            self._answer(400, f"this gateway runs Python, not {asked['language']}")
        elif self.path == "/contexts":
            context = Context(asked.get("cwd") or DEFAULT.cwd)
            CONTEXTS[context.id] = context
            self._answer(201, self._shown(context))
        elif self.path.startswith("/contexts/") and self.path.endswith("/restart"):
            context = CONTEXTS.get(self.path.split("/")[2])
            if context:
                context.restart()
            self._answer(204 if context else 404, None)
        elif (context_id := asked.get("context_id")) and context_id not in CONTEXTS:
            self._answer(404, f"context {context_id} not found")
        else:
            self._execute(CONTEXTS.get(context_id, DEFAULT), asked["code"], asked.get("env_vars") or {})

    def do_DELETE(self) -> None:
        """DELETE /contexts/{id}."""
        gone = CONTEXTS.pop(self.path.rpartition("/")[2], None)
        self._answer(204 if gone else 404, None)

    def _execute(self, context: Context, code: str, env: dict[str, str]) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/x-ndjson")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        kept = dict(os.environ)
        with _ONE:
            os.environ.update(env)
            os.chdir(context.cwd)
            out, err = Printed("stdout", self._tell), Printed("stderr", self._tell)
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                context.run(code, self._tell)
                out.flush()
                err.flush()
            os.environ.clear()
            os.environ.update(kept)
        self.wfile.write(b"0\r\n\r\n")

    def _tell(self, message: dict[str, object]) -> None:
        line = json.dumps(message).encode() + b"\n"
        self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
        self.wfile.flush()

    def _shown(self, context: Context) -> dict[str, object]:
        return {"id": context.id, "language": "python", "cwd": context.cwd}

    def _answer(self, status: int, body: object) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *words: object) -> None:
        """Nothing: the start command's log is the client's."""


if __name__ == "__main__":
    os.environ.setdefault("MPLBACKEND", "Agg")
    ThreadingHTTPServer(("127.0.0.1", PORT), Gateway).serve_forever()
