"""The pages with lists and counts. Each takes the same query parameters as its JSON counterpart."""

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import fields
from statistics import median
from typing import Annotated, Any, cast
from urllib.parse import parse_qs

from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi.responses import RedirectResponse

from sandbox_server import clock
from sandbox_server.catalogue.insight.records import GroupKind, SessionFilter
from sandbox_server.errors import StateUnavailable
from sandbox_server.insight.health_rules import pass_rate
from sandbox_server.insight.rates import DAY_S
from sandbox_server.insight.wall_time import STAGES
from sandbox_server.lifecycle import SessionState
from sandbox_server.protocols._filters import InstanceId, Run, Since, cursor, wanted_sessions
from sandbox_server.protocols._parts import fleet_of, instances_of, sessions_of
from sandbox_server.protocols._traits import Trait
from sandbox_server.protocols.insight import Limit, Window, days_of, groups_of, insight_of, pass_rates_of
from sandbox_server.protocols.search import Limit as SearchLimit
from sandbox_server.protocols.search import Number, Words, next_of
from sandbox_server.state.logouts import Logouts
from sandbox_server.telemetry import KEYS_REFUSED
from sandbox_server.ui.login import COOKIE, Logins
from sandbox_server.ui.render import FOLDER, HEADERS, page
from sandbox_server.ui.route import NoKey, PageRoute
from sandbox_server.ui.sorting import GROUPS, NODES, RATES, RUNS, SESSIONS, Sort, ordered
from sandbox_server.verdicts import VerdictName

TRAITS = (Trait(re.compile("/ui(/|$)"), opens=True),)
"""The pages check access themselves, because a browser sends a cookie instead of a key."""

_LOGIN_BYTES = 4096
_STATIC = {"style.css": "text/css", "ui.js": "text/javascript", "icon.svg": "image/svg+xml"}
_SIBLINGS = 64
_TESTED = (VerdictName.RESOLVED, VerdictName.UNRESOLVED)


def logins_of(request: Request) -> Logins:
    """The server's `Logins`."""
    return cast(Logins, request.app.state.logins)


def _logouts_of(request: Request) -> Logouts:
    return cast(Logouts, request.app.state.logouts)


async def seen_by(request: Request) -> None:
    """Check that the request may view pages. Raises NoKey."""
    logins = logins_of(request)
    if logins.role(request) is None:
        raise NoKey
    if logins.left_s(request):
        with suppress(StateUnavailable):  # the pages show what is wrong, so they must work without Redis
            if await _logouts_of(request).has(request.cookies[COOKIE]):
                raise NoKey


OPEN = APIRouter(prefix="/ui", include_in_schema=False, route_class=PageRoute)
"""Routes that need no login: the login form, and the style and script of all pages."""
ROUTER = APIRouter(prefix="/ui", include_in_schema=False, dependencies=[Depends(seen_by)], route_class=PageRoute)


@OPEN.get("/static/{name}")
async def static(name: Annotated[str, Path(max_length=40)]) -> Response:
    """Our own style and script."""
    if name not in _STATIC:
        return Response(status_code=404)
    kept = {**HEADERS, "Cache-Control": "no-cache"}
    return Response((FOLDER / "static" / name).read_bytes(), media_type=_STATIC[name], headers=kept)


@OPEN.get("/login")
async def ask_for_key(request: Request, to: str = "/ui") -> Response:
    """The login form."""
    return await page(request, "login.html", to=_own(to), wrong=False)


@OPEN.post("/login")
async def log_in(request: Request) -> Response:
    """Exchange a key for a cookie."""
    form = await form_of(request)
    to = _own(form.get("to", ""))
    answer = RedirectResponse(to, 303, HEADERS)
    # the header is untrusted, but affects only the sender's own cookie, and makes it stricter
    secure = "https" in (request.url.scheme, request.headers.get("x-forwarded-proto", ""))
    if logins_of(request).begin(form.get("key", ""), answer, secure=secure):
        return answer
    KEYS_REFUSED.labels("login").inc()
    return await page(request, "login.html", 401, to=to, wrong=True)


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a small form; {} for any other body."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _LOGIN_BYTES:
            return {}
    try:
        found = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=8)
    except ValueError:  # more fields than any form of ours has
        return {}
    return {name: values[-1] for name, values in found.items()}


def _own(to: str) -> str:
    """`to` if it is one of our paths, else /ui: no redirects to other hosts."""
    return to if re.fullmatch(r"/ui([/?][!-\[\]-~]*)?", to) else "/ui"


@ROUTER.post("/logout")
async def log_out(request: Request) -> Response:
    """End the login and delete its cookie. Raises StateUnavailable: neither was done."""
    logins = logins_of(request)
    if not logins.is_own(request, (await form_of(request)).get("token", "")):
        return await page(request, "stale.html", 403)
    if left_s := logins.left_s(request):
        await _logouts_of(request).add(request.cookies[COOKIE], left_s=left_s)
    answer = RedirectResponse("/ui/login", 303, HEADERS)
    logins.end(answer)
    return answer


@ROUTER.get("")
async def overview(request: Request, run: Run = None, window_s: Window = 3600.0) -> Response:
    """The service's health in one word, and its evidence."""
    seen = await insight_of(request).overview(run=run or None, window_s=window_s)
    names = dict.fromkeys(one.verdict for one in (*seen.now, *seen.before))
    table = [(name, *_counted(name, seen.now), *_counted(name, seen.before)) for name in names]
    asked = {"run": run, "window_s": window_s}
    rates = (pass_rate(seen.now), pass_rate(seen.before))
    longest = max((wall.total_s for wall in seen.wall_by_run.values()), default=0.0)
    return await page(
        request, "overview.html", seen=seen, table=table, asked=asked, rates=rates, stages=STAGES, longest=longest
    )


def _counted(name: str, counts: Iterable[Any]) -> tuple[int, int]:
    """(unmasked, masked) count of a verdict."""
    own = [one for one in counts if one.verdict == name]
    return sum(one.count for one in own if not one.mask), sum(one.count for one in own if one.mask)


@ROUTER.get("/sessions")
async def sessions(
    request: Request, wanted: Annotated[SessionFilter, Depends(wanted_sessions)], limit: Limit = 50, sort: Sort = ""
) -> Response:
    """Sessions that match the filter in the URL."""
    listed = await sessions_of(request).list(wanted, limit=limit)
    asked = {**asked_of(request), "limit": request.query_params.get("limit"), "sort": sort}
    return await page(
        request,
        "sessions.html",
        listed=ordered(listed, sort, SESSIONS),
        asked=asked,
        next=cursor(listed[-1]) if len(listed) == limit else None,
        states=[state.value for state in SessionState],
        verdicts=[name.value for name in VerdictName],
    )


def asked_of(request: Request) -> dict[str, str]:
    """The query's values as sent; "" for missing ones."""
    return {field.name: request.query_params.get(field.name, "") for field in fields(SessionFilter)}


@ROUTER.get("/runs")
async def runs(request: Request, since: Since = None, limit: Limit = 100, sort: Sort = "") -> Response:
    """The results of each run."""
    found = await insight_of(request).counts.runs(clock.now() - DAY_S if since is None else since, limit=limit)
    return await page(request, "runs.html", runs=ordered(found, sort, RUNS), asked=_listed(request, sort))


@ROUTER.get("/groups")
async def groups(
    request: Request,
    run: Run = None,
    instance: InstanceId = None,
    kind: GroupKind | None = None,
    since: Since = None,
    limit: Limit = 100,
    sort: Sort = "",
) -> Response:
    """Groups, or one group with its sessions side by side."""
    found = await groups_of(request, run, instance, kind, since, limit)
    siblings, tokens = [], {}
    if run is not None and instance is not None:
        siblings = await sessions_of(request).list(SessionFilter(run=run, instance=instance), limit=_SIBLINGS)
        tokens = await insight_of(request).listing.tokens_of([seen.record.sid for seen in siblings])
    asked = {"run": run, "instance": instance, "kind": kind, **_listed(request, sort)}
    return await page(
        request,
        "groups.html",
        groups=ordered(found, sort, GROUPS),
        siblings=siblings,
        tokens=tokens,
        asked=asked,
        kinds=[kind.value for kind in GroupKind],
    )


@ROUTER.get("/pass-rates")
async def pass_rates(request: Request, limit: Limit = 200, sort: Sort = "") -> Response:
    """Instances, those whose pass rate jumped first."""
    rates = ordered(await pass_rates_of(request, limit), sort, RATES)
    return await page(request, "pass_rates.html", rates=rates, asked=_listed(request, sort))


@ROUTER.get("/instances/{instance_id:path}")
async def instance(
    request: Request, instance_id: Annotated[str, Path(min_length=1, max_length=400, pattern="^[^\\x00]+$")]
) -> Response:
    """One instance: pass rate by day, newest sessions, result of its check."""
    instances = instances_of(request)
    task = await instances.by_id(instance_id)
    newest = await sessions_of(request).list(SessionFilter(instance=instance_id), limit=50)
    check = await instances.verified(instance_id)
    days = await days_of(request, instance_id)
    tested = [seen for seen in newest if seen.summary and seen.summary.verdict in _TESTED and not seen.summary.mask]
    view = await sessions_of(request).view(tested[0].record.sid) if tested else None
    ended = [one.record.ended_at - one.record.created_at for one in newest if one.record.ended_at]
    return await page(
        request,
        "instance.html",
        task=task,
        days=days,
        asked=None,
        newest=newest,
        check=check,
        last=view.graded.verdict if view and view.graded else None,
        lasted=median(ended) if ended else None,
        lasted_of=len(ended),
    )


@ROUTER.get("/actions")
async def actions(
    request: Request, q: Words = "", run: Run = None, before: Number = None, limit: SearchLimit = 50
) -> Response:
    """Actions by the words in them."""
    hits = await insight_of(request).search.find(q, run=run, before=before, limit=limit) if q else []
    asked = {"q": q, "run": run}
    return await page(request, "actions.html", hits=hits, asked=asked, next=next_of(hits, limit))


@ROUTER.get("/nodes")
async def nodes(request: Request, sort: Sort = "") -> Response:
    """The nodes and their free slots."""
    nodes = ordered(await fleet_of(request).nodes(), sort, NODES)
    return await page(request, "nodes.html", nodes=nodes, asked={"sort": sort})


def _listed(request: Request, sort: str) -> dict[str, str | None]:
    """The query parameters that the links of a list keep."""
    return {name: request.query_params.get(name) for name in ("since", "limit")} | {"sort": sort}
