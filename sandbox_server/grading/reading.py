"""Checks that git reads the same files in a patch as the guard (by the host's git, without a tree).

The guard splits a patch by its headers, so git must not apply anything that the guard has not seen. A header that git
reads and the guard does not (`rename old`, one name in quotes, a first file without a prefix) would let a file pass
unseen. For GNU patch, this module writes a patch in a plain form.
"""

import asyncio
import posixpath
import re
from pathlib import Path

from sandbox_server.catalogue.diff import FileSection, file_sections, touched_paths
from sandbox_server.catalogue.git_process import GitFailed, environment, run_git

_NUMSTAT_S = 60.0  # enough for the largest patches on a busy host
_MODE = re.compile(rb"(?:old mode|new mode|new file mode|deleted file mode) [0-7]{6}\n?")
_LINE = re.compile(rb"[^\n]*\n|[^\n]+")
_HUNK = re.compile(rb"@@ -\d{1,18}(?:,(\d{1,18}))? \+\d{1,18}(?:,(\d{1,18}))? @@")
_PLAIN = re.compile(rb"[A-Za-z0-9_./+-]+")


class GitReading:
    """Runs the host's git in `home`, a folder for nothing else, which is made if it is not there."""

    def __init__(self, home: Path) -> None:
        self._home = home

    async def misread(self, patch: bytes) -> str:
        """Why `patch` must not be graded: git would touch files that the guard has not seen. "" if it would not.

        Also "" if git cannot read the patch, because it then applies nothing.
        """
        env = environment(self._home, ()) | {"GIT_CEILING_DIRECTORIES": str(self._home.parent)}
        try:
            answer = await run_git(
                ["apply", "--numstat", "-z", "-"], cwd=self._home, env=env, timeout_s=_NUMSTAT_S, stdin=patch
            )
        except GitFailed as error:
            return f"git cannot read it: {error.said}" if error.ended_by_us else ""
        unseen = await asyncio.to_thread(_unseen, answer, patch)
        if not unseen:
            return ""
        names = ", ".join(name.encode("utf-8", "backslashreplace").decode() for name in unseen[:3])
        return f"git reads other files from its headers than the guard does: {names}"


def _unseen(answer: bytes, patch: bytes) -> list[str]:
    """Paths in the answer of git that the guard does not see in the patch."""
    return sorted(set(map(_path, filter(None, answer.split(b"\0")))) - touched_paths(patch))


def _path(entry: bytes) -> str:
    """The path in an entry `added TAB deleted TAB name`."""
    return posixpath.normpath(entry.split(b"\t", 2)[-1].decode("utf-8", "surrogateescape"))


def plain(patch: bytes) -> bytes:
    """The files and hunks of `patch` exactly as the guard reads them; b"" if that cannot be written.

    For GNU patch, which also accepts context diffs, ed scripts and `Index:` lines, anywhere in a text.
    """
    parts = [_plain(section) for section in file_sections(patch)]
    return b"" if any(part is None for part in parts) else b"".join(part for part in parts if part)


def _plain(section: FileSection) -> bytes | None:
    old, new = sorted(section.old), sorted(section.new)
    unsafe = any(path.startswith(("/", "../")) or path in (".", "..") for path in section.paths)
    if section.marks or unsafe or len(old) > 1 or len(new) > 1 or not section.paths or (old and new and old != new):
        return None
    head, body = section.text, b""
    if section.hunks_at is not None:
        head, body = section.text[: section.hunks_at], _hunks(section.text[section.hunks_at :])
    path = (old or new)[0]
    before, after = _quoted("a/" + path), _quoted("b/" + path)
    lines = [b"diff --git %s %s\n" % (before, after)]
    lines += [line.rstrip(b"\n") + b"\n" for line in head.splitlines(keepends=True) if _MODE.fullmatch(line)]
    if body:
        lines.append(b"--- %s\n" % (before if old else b"/dev/null"))
        lines.append(b"+++ %s\n" % (after if new else b"/dev/null"))
    return b"".join(lines) + body


def _hunks(text: bytes) -> bytes:
    """The hunks at the beginning of `text`, up to the first line that belongs to none."""
    kept: list[bytes] = []
    old = new = 0
    for found in _LINE.finditer(text):  # `findall` would hold the GIL, and so block the event loop, until its end
        line = found[0]
        if old > 0 or new > 0:
            if line[:1] not in b" -+\\\r\n":
                break
            old -= line[:1] not in (b"+", b"\\")
            new -= line[:1] not in (b"-", b"\\")
        elif counts := _HUNK.match(line):
            old, new = (int(group) if group is not None else 1 for group in counts.groups())
        elif not (kept and line.startswith(b"\\")):
            break
        kept.append(line.removesuffix(b"\n") + b"\n")
    return b"".join(kept)


def _quoted(name: str) -> bytes:
    """The name as git writes it in headers: in C quotes if it has unusual characters."""
    raw = name.encode("utf-8", "surrogateescape")
    if _PLAIN.fullmatch(raw):
        return raw
    return b'"%s"' % b"".join(bytes([c]) if _PLAIN.fullmatch(bytes([c])) else b"\\%03o" % c for c in raw)
