"""Which files a diff changes and which it makes. Pure."""

import re
from dataclasses import dataclass

from unidiff.errors import UnidiffParseError
from unidiff.patch import PatchSet

_ESCAPE = re.compile(rb"\\([0-7]{3}|.)")
_CONTROL = dict(zip(b"abtnvfr", b"\a\b\t\n\v\f\r", strict=True))


@dataclass(frozen=True, slots=True)
class PatchFiles:
    """Paths relative to the repository, in the diff's order."""

    existing: tuple[str, ...]
    """There before: modified, deleted, or renamed away."""
    new: tuple[str, ...]
    """Made by the diff: added, or the new name of what was renamed or copied."""


def patch_files(diff: str) -> PatchFiles:
    """The files that a git diff touches; none for an empty one.

    Raises:
        ValueError: it is not empty and no readable diff.

    """
    try:
        files = PatchSet(diff)
    except UnidiffParseError as error:
        raise ValueError(f"no readable diff: {error}") from None
    if diff.strip() and not files:
        raise ValueError("no readable diff: there is no file in it")
    existing = dict.fromkeys(_path(file.source_file) for file in files if file.source_file != "/dev/null")
    made = dict.fromkeys(_path(file.target_file) for file in files if file.target_file != "/dev/null")
    return PatchFiles(tuple(existing), tuple(path for path in made if path not in existing))


def _path(name: str) -> str:
    r"""Take git's `a/` or `b/` off, and the quotes and escapes of "a/t\303\251st \".py"."""
    if len(name) > 1 and name[0] == name[-1] == '"':
        name = _ESCAPE.sub(_unescaped, name[1:-1].encode()).decode("utf-8", "surrogateescape")
    return name[2:] if name.startswith(("a/", "b/")) else name


def _unescaped(escape: re.Match[bytes]) -> bytes:
    code = escape[1]
    if len(code) == 3:
        return bytes([int(code, 8) & 0xFF])
    return bytes([_CONTROL.get(code[0], code[0])])
