"""The site of the documents: built strictly, so that a broken link fails; nothing of it comes from another host."""

import re
import subprocess
from collections.abc import Callable

from tests.deployment import ROOT

LOADED = re.compile(
    r'<(?:script|img|iframe)[^>]*\ssrc="?(?:https?:)?//|<link[^>]*rel="?(?!canonical)[^>]*href="?https?://'
)


def test_the_site_is_whole_and_needs_no_other_host(missing: Callable[[str], object]) -> None:
    python = ROOT / ".cache" / "site" / "docs" / "bin" / "python"
    if not python.exists():
        missing("the environment of the site (scripts/environments.sh site .cache/site)")
    done = subprocess.run(
        [str(python), "scripts/docs.py"], cwd=ROOT, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages = list((ROOT / "build" / "site").rglob("*.html"))
    assert len(pages) > 25
    assert [page.name for page in pages if LOADED.search(page.read_text())] == []
    assert "traceparent" in (ROOT / "build" / "site" / "search" / "search_index.json").read_text()
