"""What the overview says of a server, and the way from there to the cause."""

import html
import re
from typing import Any

import httpx

from .serving import Server, until

_CLICKS = 3
"""From the overview to the cause, at most."""


def says(server: Server, run: str | None, word: str, rule: str) -> None:
    """Wait, 60 s at most, until the overview says it; the overview may be some seconds old."""
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
    """From the overview follow the link of its first finding, then on each page the first that has the next pattern.

    The last page shows `to`.
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
    """Pattern of the links to these sessions."""
    return f"/ui/sessions/(?:{'|'.join(sids)})"


def _page(server: Server, path: str, run: str | None = None) -> str:
    answer = httpx.get(server.url + path, params=_of(run) or None, timeout=60)
    return answer.raise_for_status().text


def _of(run: str | None) -> dict[str, str]:
    return {} if run is None else {"run": run}
