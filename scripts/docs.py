"""Builds the site of the documents into build/site, strictly: a link that leads nowhere ends it with status 1.

Runs in the environment of requirements/site-docs.txt. The documents keep their places in the repository, so that one
link works in an editor, on a code host and in the site; files that they link to (scripts, settings) become part of it.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STAGE = ROOT / "build" / "site-source"
SITE = ROOT / "build" / "site"
FIRST = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "client/README.md", "examples/README.md")
_LINK = re.compile(r"(?<![!`])\[([^\]]*)\]\(((?!\w+:|#|/)[^)\s#]+)(#[^)\s]*)?\)")
# (behind a backquote it is text)
_IMAGE = re.compile(r"!\[[^\]]*\]\(((?!\w+:)[^)\s]+)\)")
_CODE = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)


class Stage:
    """The documents and all that they link to."""

    def __init__(self, pages: Sequence[Path]) -> None:
        self.wrong: list[str] = []
        self._pages = frozenset(pages)
        self._done: set[Path] = set()

    def add(self, path: Path) -> None:
        """Copy a file; of a document also what it links to."""
        if path in self._done:
            return
        self._done.add(path)
        target = STAGE / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix != ".md":
            shutil.copyfile(path, target)
            return
        parts = _CODE.split(path.read_text())
        parts[::2] = [self._linked(path, text) for text in parts[::2]]
        target.write_text("".join(parts))

    def _linked(self, path: Path, text: str) -> str:
        for image in _IMAGE.finditer(text):
            self._found(path, image[1])
        return _LINK.sub(lambda link: self._link(path, link), text)

    def _link(self, path: Path, link: re.Match[str]) -> str:
        found = self._found(path, link[2])
        # folders, and documents that are parts of others, have no page: the name has to do
        return link[0] if found in self._done else link[1]

    def _found(self, path: Path, to: str) -> Path | None:
        found = (path.parent / to).resolve()
        if not found.exists() or not found.is_relative_to(ROOT):
            self.wrong.append(f"{path.relative_to(ROOT)}: {to} does not exist")
            return None
        if found in self._pages or (found.is_file() and found.suffix != ".md"):
            self.add(found)
        return found


def main() -> int:
    """Stage, then build."""
    shutil.rmtree(STAGE, ignore_errors=True)
    pages = [*(ROOT / name for name in FIRST), *sorted((ROOT / "docs").rglob("*.md"))]
    stage = Stage(pages)
    for path in pages:
        stage.add(path)
    if stage.wrong:
        sys.stderr.write("\n".join(stage.wrong) + "\n")
        return 1
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean", "--site-dir", str(SITE)]
    words += ["--config-file", str(ROOT / "mkdocs.yml")]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    # not by --quiet, which would silence the warnings that make it strict
    done = subprocess.run(words, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    sys.stderr.write(done.stderr if done.returncode else f"{(SITE / 'index.html').relative_to(ROOT)}\n")
    return done.returncode


if __name__ == "__main__":
    raise SystemExit(main())
