"""Renders templates, with the headers of every page. All values are made harmless and escaped."""

import asyncio
import functools
import math
import sys
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemBytecodeCache, FileSystemLoader, StrictUndefined
from jinja2.bccache import Bucket
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from sandbox_server import clock
from sandbox_server.slices import sliced
from sandbox_server.ui import text
from sandbox_server.ui.drawing import stacked, timeline
from sandbox_server.ui.login import Logins

FOLDER = Path(__file__).parent
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def _harmless(value: object) -> object:
    return text.plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _seconds(value: float | None) -> str:
    """Format a duration for people."""
    if value is None or not math.isfinite(value):
        return "-"
    if value < 0.9995:
        return f"{1000 * value:.3g} ms" if value >= 0.00005 else "0 s"
    if value < 60:
        return f"{value:.3g} s"
    if value < 3600:
        return f"{int(value // 60)} min {int(value % 60)} s"
    return f"{int(value // 3600)} h {int(value % 3600 // 60)} min"


def _ago(at: float | None) -> str:
    return "-" if not at else f"{_seconds(max(0.0, clock.now() - at))} ago"


def _when(at: float | None) -> str:
    return "-" if not at else time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))


def _query(values: Mapping[str, object], **changes: object) -> str:
    """The query string of `values` with some `changes`; None removes a name."""
    kept = {name: value for name, value in {**values, **changes}.items() if value not in (None, "")}
    return "?" + urlencode({name: text.plain(value) for name, value in kept.items()}) if kept else "?"


class _Compiled(FileSystemBytecodeCache):
    """A cache of compiled templates in a folder beside them, like `__pycache__`; unused if it cannot be written."""

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Write a compiled template, unless Python is told to write no bytecode (PYTHONDONTWRITEBYTECODE)."""
        if not sys.dont_write_bytecode:
            with suppress(OSError):
                Path(self.directory).mkdir(exist_ok=True)
                super().dump_bytecode(bucket)


_ENVIRONMENT = Environment(
    loader=FileSystemLoader(FOLDER / "templates"),
    bytecode_cache=_Compiled(str(FOLDER / "templates" / "__pycache__"), "%s.pyc"),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_harmless,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)
_ENVIRONMENT.filters |= {
    "seconds": _seconds,
    "ago": _ago,
    "when": _when,
    "terminal": text.terminal,
    "diff": text.diff,
}
_ENVIRONMENT.globals |= {"query": _query, "stacked": stacked, "timeline": timeline}


def _compile() -> None:
    for name in _ENVIRONMENT.list_templates(["html"]):
        _ENVIRONMENT.get_template(name)


@functools.cache
def warm() -> Future[None]:
    """Load the templates on a thread, once. The first time they are compiled, which takes 200 ms of CPU."""
    thread = ThreadPoolExecutor(1, "templates")
    compiled = thread.submit(_compile)
    thread.shutdown(wait=False)
    return compiled


async def rendered(template: str, **values: object) -> str:
    """Render the template in slices, because a page can take a second and actions need the same event loop."""
    return "".join(await sliced(_ENVIRONMENT.get_template(template).generate(values)))


async def page(request: Request, template: str, status: int = 200, **values: object) -> Response:
    """A rendered page as the response to `request`."""
    logins: Logins = request.app.state.logins
    known = {
        "path": request.url.path,
        "token": logins.token(request),
        "needed": logins.needed,
        "role": logins.role(request),
    }
    await asyncio.wrap_future(warm())  # meanwhile the first page's queries ran
    return HTMLResponse(await rendered(template, **known, **values), status, HEADERS)
