"""Checks of the overview: the server's health in one word, and the links that lead from there to the cause."""

import html
import re
from typing import Any

import httpx

from .serving import Server, until

_CLICKS = 3
"""Most clicks from the overview to the cause."""


def says(server: Server, run: str | None, word: str, rule: str) -> None:
    """Wait up to 60 s until the overview shows `word` and has `rule` as first finding; it may be some seconds old."""
    seen: dict[str, Any] = {}

    def said() -> bool:
        answer = httpx.get(f"{server.url}/v1/overview", params=_of(run), timeout=60)
        seen.update(answer.raise_for_status().json())
        return bool(seen["word"] == word and seen["findings"][0]["rule"] == rule)

    try:
        until(said, 6)
    except AssertionError as error:
        raise AssertionError((seen["word"], seen["findings"])) from error
    assert f'<h1 class="word w-{word}">{word}</h1>' in _page(server, "/ui", run)


def leads(server: Server, run: str | None, *links: str, to: str) -> None:
    """Follow links from the overview, and assert that the last page contains `to`.

    The first link is that of the first finding; on each page after it, the first link that matches the next pattern of
    `links`.
    """
    assert len(links) < _CLICKS
    page = _page(server, "/ui", run)
    shown = re.search('<ul class="why">\n<li>[^\n]*<a href="([^"]*)">Show</a></li>', page)
    assert shown, page
    page = _page(server, html.unescape(shown[1]))
    for link in links:
        hrefs = map(html.unescape, re.findall('<a href="([^"]*)"', page))
        href = next((href for href in hrefs if re.fullmatch(link, href)), None)
        assert href, (link, page)
        page = _page(server, href)
    assert to in html.unescape(page), page


def session_of(sids: list[str]) -> str:
    """Pattern that matches the links to these sessions."""
    return f"/ui/sessions/(?:{'|'.join(sids)})"


def _page(server: Server, path: str, run: str | None = None) -> str:
    answer = httpx.get(server.url + path, params=_of(run) or None, timeout=60)
    return answer.raise_for_status().text


def _of(run: str | None) -> dict[str, str]:
    return {} if run is None else {"run": run}
