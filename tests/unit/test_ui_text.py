"""A policy's text is displayed, but never interpreted, by a browser or a terminal."""

import re
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from sandbox_server.insight.sanitize import coloured, for_terminal
from sandbox_server.ui import text
from sandbox_server.ui.render import rendered


class Read(HTMLParser):
    """Tags and text of a piece of HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def terminal(output: str) -> str:
    return "".join(text.terminal(output))


def diff(patch: bytes) -> str:
    return "".join(text.diff(patch))


OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
HOSTILE = st.lists(
    st.one_of(
        st.text(max_size=8),
        st.sampled_from(
            ["<script>", "</pre>", '"', "'", "&", "\x1b", "\x1b[", "31m", "38;5;", "38;2;1;2;3m", "\x1b]8;;"]
        ),
        st.sampled_from(
            ["\x1b]8;;http://x\x07", "\x9b31m", "\u202e", "\ud800", "\r", "\n", "\0", "\x1b[0;1;7;48;5;9m"]
        ),
    ),
    max_size=20,
).map("".join)


@given(HOSTILE)
def test_nothing_but_coloured_spans_comes_out(hostile: str) -> None:
    """A policy would run its script in the operator's browser."""
    for html in (terminal(hostile), diff(hostile.encode("utf-8", "surrogatepass"))):
        read = Read(html)
        assert read.tags <= {"span"} and read.attributes <= {"class"}
        assert all(re.fullmatch("[a-z0-9 ]+", name) for name in re.findall('class="([^"]*)"', html))
        assert not OBEYED.search(html)
        html.encode()


@given(HOSTILE)
def test_nothing_reaches_a_terminal(hostile: str) -> None:
    """`sessions follow` would set titles, or write over what it has shown."""
    assert not OBEYED.search(for_terminal(hostile))
    # a recording may colour what plays it
    assert not OBEYED.search(re.sub("\x1b\\[[0-9;:]*m", "", coloured(hostile)))


def test_a_terminals_colours() -> None:
    begun = terminal("a \x1b[1;31mFAILED\x1b[0m b\x1b[38;5;196mc\x1b[38;2;0;200;0md\x1b[39m")
    assert begun == 'a <span class="b f1">FAILED</span> b<span class="f9">c</span><span class="f2">d</span>'
    assert terminal("\x1b[31;41mx\x1b[m\x1b[2K\x1b[1A.") == '<span class="f1">x</span>.'  # no hidden text


def test_what_a_terminal_would_obey() -> None:
    """Titles, links and the clipboard; a line that hides another; text that runs backwards."""
    assert terminal("\x1b]0;owned\x07a\x1b]8;;http://x\x1b\\b\x1b]52;c;cm0=\x07c") == "abc"
    assert terminal("\x1b]0;never ends\nrm -rf /") == "␛]0;never ends\nrm -rf /"
    assert terminal(" 1 %\r50 %\r100 %\r\ndone\r\n") == "100 %\ndone\n"
    assert terminal("user\u202etxt.exe \x08\x7f\x9b1m") == "user[U+202E]txt.exe ␈␡[9B]1m"
    assert terminal("\x1b]8;;http://" + "x" * 500 + "\x1b\\a") == "a"
    assert terminal("\u061c\u2066\u2067\u2068\u2069") == "[U+061C][U+2066][U+2067][U+2068][U+2069]"


def test_50_mb_are_cut() -> None:
    """One observation would make a page that no browser opens."""
    html = terminal("\x1b[31m<" * 9_000_000)
    assert len(html) < 400_000 and "characters left out" in html
    assert len(diff(b"+<x>\n" * 10_000_000)) < 1_000_000


def test_a_diff() -> None:
    patch = b'diff --git a/<b> b/<b>\n--- a/\xe2\x80\xaex\n+++ "b/\xff"\n@@ -1 +1 @@\n-<i>\n+1 & 2\n same'
    assert diff(patch).split("\n") == [
        '<span class="file">diff --git a/&lt;b&gt; b/&lt;b&gt;</span>',
        '<span class="file">--- a/[U+202E]x</span>',
        '<span class="file">+++ &#34;b/\ufffd&#34;</span>',
        '<span class="hunk">@@ -1 +1 @@</span>',
        '<span class="del">-&lt;i&gt;</span>',
        '<span class="add">+1 &amp; 2</span>',
        '<span class="same"> same</span>',
    ]


async def test_templates_write_nothing_raw() -> None:
    """Whatever a page says of an error may quote a policy."""
    known = {"path": "/ui", "token": "", "needed": False}
    page = await rendered(
        "refused.html", code="<b>", detail="<script>alert(1)</script>\u202e{{ 7 * 7 }}\ud800", **known
    )
    assert "&lt;script&gt;alert(1)&lt;/script&gt;[U+202E]{{ 7 * 7 }}\ufffd" in page and "<b>" not in page


def test_styles_end_and_unknown_colours_style_nothing() -> None:
    """The rest of a page's output would be inverse, or bold because a colour was spelled in a way of its own."""
    assert "".join(terminal("\x1b[7ma\x1b[27mb")) == '<span class="inv">a</span>b'
    assert "".join(terminal("\x1b[38;9;1ma")) == "a"


def test_a_diff_of_one_long_line_says_that_it_is_cut() -> None:
    """A person would take the shown part for the whole."""
    assert "400,001 bytes is not shown" in "".join(diff(b"+" * 400_001))
    assert "not shown" not in "".join(diff(b"+" * 400_000))
